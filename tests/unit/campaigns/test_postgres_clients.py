"""The campaign of PostgreSQL's clients: who is missing is named, and what a client says is counted."""

from __future__ import annotations

import sys

from tests.campaigns.postgres_clients import Client, Outcome, clients, drive


def test_clients_that_are_not_there_are_named_with_the_reason() -> None:
    missing = {client.name: client.missing for client in clients(sys.executable, None)}
    assert missing["asyncpg"] == f"{sys.executable} has no asyncpg"
    assert missing["BI tools"] == ""
    assert "jar" in missing["pgJDBC"] or "java" in missing["pgJDBC"]


def test_what_a_client_says_is_counted() -> None:
    program = "import sys; print('version 1.2'); print('ok', sys.argv[1]); print('FAIL b: why'); sys.exit(3)"
    outcome = drive(Client("some", (sys.executable, "-c", program, "{url}")), "host=h port=1 user=me dbname=lake")
    assert outcome == Outcome("1.2", 1, ("b: why", "ended with 3: "))
