"""The commands compact, rebuild, backup, restore and drill: what they print, and how they end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli import main as cli
from strandline.jobs.model.settings import Settings
from strandline.state_store.errors import StorageDenied
from strandline.state_store.leases import ReaderLease
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


def test_rebuild_prints_its_plan_and_does_it(made: MadeLake) -> None:
    code, out, _ = invoke("rebuild", "totals", "--dry-run")
    assert code == 0
    assert "compute 'totals' from 'visits'" in out
    (planned,) = [json.loads(line) for line in invoke("rebuild", "totals", "--dry-run", "--json")[1].splitlines()]
    assert [each["table"] for each in planned["computed"]] == ["totals"]
    code, out, err = invoke("rebuild", "totals", "--json")
    assert (code, json.loads(out)["computed"]) == (0, [{"table": "totals", "inserted": 0, "deleted": 0}])
    assert "totals: rebuilt (+0 −0)" in err


def test_a_backup_is_restored_and_drilled(made: MadeLake, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    assert "files, 0.0 kB are there" in invoke("backup", backup, "--dry-run")[1]
    assert invoke("backup", backup)[0] == 0
    assert json.loads(invoke("backup", backup, "--json")[1])["written"] == 0
    code, _, err = invoke("restore", backup, str(tmp_path / "restored"))
    assert (code, "every digest is equal" in err) == (0, True)
    assert invoke("restore", backup, str(tmp_path / "restored"))[0] == 2
    code, out, err = invoke("drill", "owned", "--scenario", "backup", "--scenario", "changelog", "--backup", backup)
    assert (code, err) == (0, "2 drills, 0 skipped: all is well\n")
    assert out.splitlines()[1].split() == ["|view", "|backup", "|changelog", "|"]
    assert re.search(r"^\|owned +\|\d\.\d s +\|\d\.\d s +\|$", out, re.MULTILINE)
    flip(data_file(Path(str(made.lake.table("owned")))))
    code, failed, err = invoke("drill", "owned", "--scenario", "changelog", "--json")
    assert (code, json.loads(failed)["passed"]) == (1, False)
    assert err == "1 drill, 0 skipped: failed: changelog of owned\n"
    out = invoke("drill", "owned", "--scenario", "changelog")[1]
    assert re.search(r"^\|owned +\|FAILED +\|$", out, re.MULTILINE)
    assert f"FAILED changelog of owned: {json.loads(failed)['why']}" in out


def test_a_plan_of_drills_fits_on_a_screen(made: MadeLake) -> None:
    code, out, _ = invoke("drill", "--dry-run")
    lines = out.splitlines()
    assert code == 0
    assert re.search(
        r"^\|killed-driver +\|the driver, by SIGKILL in the middle of an epoch +\|20 +\|not known yet +\|$",
        out,
        re.MULTILINE,
    )
    assert lines[-1].startswith("each of ")
    assert "owned" in lines[-1]
    planned = [json.loads(line) for line in invoke("drill", "--dry-run", "--json")[1].splitlines()]
    views = {each["view"] for each in planned}
    assert len(planned) == len(views) * (len(lines) - 6)
    assert lines[-2] == "all of them will take: not known yet"
    assert lines[-1] == f"each of {len(views)} views: {', '.join(dict.fromkeys(each['view'] for each in planned))}"


def test_a_maintenance_without_names_says_a_line_of_each_table_and_what_event_logs_keep(made: MadeLake) -> None:
    out = invoke("compact", "--dry-run")[1].splitlines()
    told = dict(line.split(": ", 1) for line in out)
    assert len(told) == len(out)
    assert told["owned"].endswith("nothing to do; keep from version 0 for the recovery horizon")
    assert re.search(r"; keep all rows: 9 rows, \d+\.\d kB, the oldest event of \d{4}-", told["visits"])
    code, out_of, err = invoke("compact")
    assert (code, out_of) == (0, "")
    assert err == f"{len(told)} tables: nothing to merge or remove\n"


def test_status_says_what_an_event_log_keeps(made: MadeLake) -> None:
    lines = [json.loads(line) for line in invoke("status", "--json")[1].splitlines()]
    logs = {each["log"]: each for each in lines if "log" in each}
    assert set(logs) == {"visits", "pages__log"}
    assert logs["visits"]["rows"] == 9
    assert logs["visits"]["bytes"] > 0
    assert logs["visits"]["oldest_event"].endswith("+00:00")


def test_a_rebuild_and_a_backfill_say_what_they_do(made: MadeLake) -> None:
    code, _, err = invoke("rebuild", "owned")
    assert code == 0
    lines = [line.split(" ", 1)[1] for line in err.splitlines()]
    assert re.fullmatch(r"computing 'owned'.*: [\d,]+ rows to read", lines[0])
    assert re.fullmatch(r"'owned': \+0 −0 rows \(\d\.\d s\)", lines[1])
    assert "refreshing what reads it" in lines


def test_a_drill_of_a_lake_that_may_only_be_read_has_its_result(
    made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise StorageDenied("'drills' may not be written by this user")

    monkeypatch.setattr("strandline.jobs.operate.recovery.drill_history.record", denied)
    code, out, err = invoke("drill", "owned", "--scenario", "changelog", "--json")
    assert (code, json.loads(out)["passed"]) == (0, True)
    assert "is not kept in the lake: 'drills' may not be written by this user" in err


def test_an_alert_is_acknowledged_by_its_kind_and_subject(made: MadeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.state_store.leases._LEASE_MS", 60_000)
    ReaderLease(made.lake.table("totals"), "slow").publish(1)
    rows = [json.loads(line) for line in invoke("status", "--json")[1].splitlines()]
    [alert] = [each for each in rows if "alert" in each]
    assert (alert["alert"], alert["state"], alert["severity"]) == ("lease", "firing", "warn")
    code, _, err = invoke("acknowledge", "lease", alert["subject"], "--by", "ana", "--note", "it is on holiday")
    assert (code, "acknowledged for 24 h" in err) == (0, True)
    rows = [json.loads(line) for line in invoke("status", "--json")[1].splitlines()]
    [alert] = [each for each in rows if "alert" in each]
    assert alert["state"] == "acknowledged by ana: it is on holiday"
    code, _, err = invoke("acknowledge", "lease", "nobody of totals")
    assert (code, "lease slow of totals" in err) == (2, True)


def test_status_says_what_may_be_relied_on_of_each_view(made: MadeLake) -> None:
    assert invoke("verify", "totals", "--deep")[0] == 0
    rows = [json.loads(line) for line in invoke("status", "--json")[1].splitlines()]
    found = {each["view"]: each["right"] for each in rows if "view" in each}
    assert (found["totals"], found["owned"]) == (True, None)
    code, out, _ = invoke("status")
    assert code == 0
    assert re.search(r"\|totals\s*\|yes, \d+ s ago\s*\|0 s", out)
