"""The command: it listens, serves, ends in good order with a subscriber connected, and says why where it cannot."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from infra.ports import free_port
from strandline.jobs.cli.main import app
from strandline.jobs.model.settings import load_settings
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.unit.server.conftest import DEFINITIONS

COMMAND = "from strandline.jobs.cli.main import main; main()"


def test_it_listens_and_ends_with_a_subscriber_connected(tmp_path: Path) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
        served.refresh(duckdb_engine)
    address = f"127.0.0.1:{free_port()}"
    arguments = [sys.executable, "-c", COMMAND, "serve", "--folder", str(tmp_path / "server"), "--log-requests"]
    environment = os.environ | {"STRANDLINE_LAKE": str(served.lake.root)}
    with subprocess.Popen(
        [*arguments, "--listen", address], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(lambda: process.poll() is not None or _is_up(address), "it does not listen")
            second = [*arguments, "--listen", "127.0.0.1:0"]
            refused = subprocess.run(second, env=environment, capture_output=True, text=True, check=False)
            assert (refused.returncode, refused.stderr.startswith("[store.writer_busy] ")) == (2, True)
            assert "Traceback" not in refused.stderr
            with httpx.stream("GET", f"http://{address}/v1/views/by_town/changes", timeout=PATIENCE_SECONDS) as events:
                lines = events.iter_lines()
                assert next(lines) == "event: row"
                process.send_signal(signal.SIGTERM)
                assert any(line == "event: progress" for line in lines)
            assert process.wait(timeout=PATIENCE_SECONDS) in (0, -signal.SIGTERM)
        finally:
            process.kill()
        assert process.stderr is not None
        said = process.stderr.read()
        assert f"listening on http://{address}\n" in said
        assert '"route": "/health"' in said


def test_as_many_files_as_the_system_allows() -> None:
    program = (
        "import resource as r\n"
        "_, most = r.getrlimit(r.RLIMIT_NOFILE)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, most))\n"
        "from strandline.jobs.server.app import allow_files\n"
        "allow_files(); allow_files()\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0] == min(most, 1 << 16) or r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody listens already."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_a_port_that_is_taken_is_said_with_a_way_out(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal("--listen", f"127.0.0.1:{taken}")
    assert said.startswith(f"[settings.invalid] the server cannot listen on 127.0.0.1, port {taken}: address already")
    assert f"ss -ltnp 'sport = :{taken}'" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--listen", "127.0.0.1:99999"], "--listen: 99999 is no port"),
        (["--postgres-port", "70000"], "--postgres-port: 70000 is no port"),
        (["--tokens", "no.json"], "the file of tokens cannot be read: no.json"),
        (["--certificate", "no.pem"], "'no.pem' cannot be read: No such file or directory"),
        (["--certificate", "text.pem"], "'text.pem' are no certificate with its key"),
        (["--key", "text.pem"], "--key is of no use without --certificate"),
        (["--listen", "192.0.2.1:80", "--tokens", "x"], "on 192.0.2.1, which others may reach"),
    ],
)
def test_what_it_cannot_start_with_is_named(
    arguments: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.pem").write_text("no certificate")
    said = refusal(*arguments)
    assert said.startswith(f"[settings.invalid] {what}")
    assert "\n  hint: " in said


def refusal(*arguments: str) -> str:
    """What the command says when it does not start."""
    done = CliRunner().invoke(app, ["serve", *arguments], catch_exceptions=False)
    assert done.exit_code == 2
    assert "listening" not in done.stderr
    return done.stderr


def _is_up(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/health", timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.TransportError:
        return False
