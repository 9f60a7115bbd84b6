"""Commands about a lake that is not there: a wrong STRANDLINE_LAKE must not read as "all is well"."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli.main import app

COMMANDS = (
    ("status",),
    ("verify",),
    ("verify", "a_view"),
    ("compact",),
    ("compact", "--dry-run"),
    ("backup", "backup"),
    ("drill",),
    ("drill", "--dry-run"),
    ("publish",),
    ("rebuild", "a_view"),
    ("backfill", "a_view", "--from", "2026-11-01"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("there", [False, True], ids=["no folder", "an empty one"])
def test_it_is_said(arguments: tuple[str, ...], there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_LAKE", str(tmp_path / "wrong"))
    if there:
        (tmp_path / "wrong").mkdir()
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"[store.object_missing] there is no lake yet ({tmp_path / 'wrong'})\n  hint: ")
    assert sorted(tmp_path.rglob("*")) == ([tmp_path / "wrong"] if there else [])
