"""The server beside Dagster: it starts with a token of its own, asks for it, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import httpx
import pytest

from infra.ports import free_port
from strandline.jobs.server.state.access import Tokens
from strandline.orchestration.up import Service, link_assets, server_command, token_file
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.warm_process import exit_code
from tests.unit.orchestration.child_drains import alive


def test_the_token_is_made_once_and_nobody_else_reads_it(tmp_path: Path) -> None:
    file = token_file(tmp_path)
    text = file.read_text()
    assert token_file(tmp_path).read_text() == text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert text.strip() not in (tmp_path / "server" / "tokens.json").read_text()
    file.unlink()
    assert token_file(tmp_path).read_text() != text, "a token that is lost is replaced"


def make_token_file(folder: Path) -> None:
    """As a process of its own does it."""
    token_file(folder)


@pytest.mark.kill
@pytest.mark.parametrize("place", ["before-token-file", "inside-token-file"])
@pytest.mark.parametrize("lost", ["tokens.json", "token"])
def test_a_kill_leaves_no_token_that_the_server_refuses(tmp_path: Path, place: str, lost: str) -> None:
    token_file(tmp_path)
    (tmp_path / "server" / lost).unlink()
    assert exit_code(make_token_file, tmp_path, failpoint=place) == -signal.SIGKILL
    file = token_file(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    Tokens(tmp_path / "server" / "tokens.json").find(f"Bearer {file.read_text().strip()}")


def test_assets_link_to_it_unless_the_settings_name_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_SERVER__URL", raising=False)
    found: dict[str, str] = {}
    link_assets(found, 8089)
    assert found == {"STRANDLINE_SERVER__URL": "http://127.0.0.1:8089"}
    monkeypatch.setenv("STRANDLINE_SERVER__URL", "https://shop.example")
    untouched: dict[str, str] = {}
    link_assets(untouched, 8089)
    assert untouched == {}


def test_it_answers_who_has_the_token_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", str(tmp_path / "lake"))
    (tmp_path / "lake" / "catalog").mkdir(parents=True)
    token, port = token_file(tmp_path).read_text().strip(), free_port()
    service = Service("the server", server_command(tmp_path, port), tmp_path / "output" / "server.log")
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as client:
            wait_until(lambda: service.process.poll() is not None or _answers(client), "it does not answer")
            assert service.process.poll() is None, service.tail()
            assert client.get("/v1/views").status_code == 401
            found = client.get("/v1/views", headers={"authorization": f"Bearer {token}"})
            assert (found.status_code, found.json()["views"]) == (200, [])
    finally:
        service.stop()
    assert not alive(service.process.pid)
    assert os.listdir(tmp_path / "server")


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False
