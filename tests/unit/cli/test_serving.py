"""`strandline serve`: the option of the replicas' backend wins over the setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli.main import app
from strandline.jobs.model.settings import Settings
from strandline.jobs.server import app as server


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Settings]:
    """The settings of the servers that were started; none of them listens."""
    found: list[Settings] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_SERVER__REPLICA", "lmdb")
    monkeypatch.setattr(server, "listen", lambda settings, *_, **__: found.append(settings))
    return found


@pytest.mark.parametrize(
    ("arguments", "backend"),
    [((), "lmdb"), (("--replica", "memory"), "memory"), (("--replica", "dynamodb"), "dynamodb")],
)
def test_the_option_wins_over_the_setting(served: list[Settings], arguments: tuple[str, ...], backend: str) -> None:
    assert CliRunner().invoke(app, ["serve", *arguments]).exit_code == 0
    assert [settings.server.replica for settings in served] == [backend]


def test_an_unknown_backend_is_refused(served: list[Settings]) -> None:
    refused = CliRunner().invoke(app, ["serve", "--replica", "redis"])
    assert (refused.exit_code, served) == (2, [])
