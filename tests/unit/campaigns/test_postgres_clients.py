"""The campaign of PostgreSQL's clients: who is missing is named, and what a client says is counted."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.campaigns.postgres_clients import Client, Outcome, clients, drive


def test_clients_that_are_not_there_are_named_with_the_reason(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    missing = {client.name: client.missing for client in clients(str(bare), None)}
    assert missing["asyncpg"] == f"{bare} has no asyncpg"
    assert "jar" in missing["pgJDBC"] or "java" in missing["pgJDBC"]
    assert {client.name: client.missing for client in clients(sys.executable, None)}["BI tools"] == ""


def test_what_a_client_says_is_counted() -> None:
    program = "import sys; print('version 1.2'); print('ok', sys.argv[1]); print('FAIL b: why'); sys.exit(3)"
    outcome = drive(Client("some", (sys.executable, "-c", program, "{url}")), "host=h port=1 user=me dbname=lake")
    assert outcome == Outcome("1.2", 1, ("b: why", "ended with 3: "))
