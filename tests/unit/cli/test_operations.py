"""The commands compact, backup, restore and drill: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli import main as cli
from jobs.model.settings import Settings
from state_store.leases import ReaderLease
from tests.support.operated_lake import operated
from tests.unit.operate.verify.damage import data_file, flip
from tests.unit.operate.verify.lakes import MadeLake


@pytest.fixture
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> MadeLake:
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))
    monkeypatch.setenv("COLUMNS", "200")
    return operated(settings, 3)


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, [*arguments], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def test_compact_prints_its_plan_and_does_it(made: MadeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = invoke("compact", "owned", "--dry-run")
    assert code == 0
    assert "keep from version 0 for the recovery horizon" in out
    monkeypatch.setenv("STRANDLINE_RETENTION__HORIZON_DAYS", "0.0000001")
    (planned,) = [json.loads(line) for line in invoke("compact", "owned", "--dry-run", "--json")[1].splitlines()]
    assert planned["kept_from"] == planned["version"] == 3
    assert (made.lake.table("owned") / "_delta_log" / f"{0:020d}.json").exists()
    code, out, _ = invoke("compact", "owned", "--json")
    done = json.loads(out)
    assert (code, done["proved"], done["removed"]) == (0, True, planned["removes"]["files"])
    ReaderLease(made.lake.table("totals"), "slow").publish(1)
    code, _, err = invoke("compact", "totals", "--before", "2")
    assert code == 2
    assert "[store.lease_held] reader 'slow' still needs version 1 of 'totals'" in err
    assert invoke("compact", "--before", "2")[0] == 2


def test_a_backup_is_restored_and_drilled(made: MadeLake, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    assert "files, 0.0 MB are there" in invoke("backup", backup, "--dry-run")[1]
    assert invoke("backup", backup)[0] == 0
    assert json.loads(invoke("backup", backup, "--json")[1])["written"] == 0
    code, _, err = invoke("restore", backup, str(tmp_path / "restored"))
    assert (code, "every digest is equal" in err) == (0, True)
    assert invoke("restore", backup, str(tmp_path / "restored"))[0] == 2
    code, out, err = invoke("drill", "owned", "--scenario", "backup", "--scenario", "changelog", "--backup", backup)
    assert (code, err) == (0, "2 drills, 0 skipped: all is well\n")
    assert out.count("|ok") == 2
    flip(data_file(Path(str(made.lake.table("owned")))))
    code, out, err = invoke("drill", "owned", "--scenario", "changelog", "--json")
    assert (code, json.loads(out)["passed"]) == (1, False)
    assert err == "1 drill, 0 skipped: failed: changelog of owned\n"
