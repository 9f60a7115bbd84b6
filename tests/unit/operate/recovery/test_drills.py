"""Every drill is green on a healthy lake, leaves it untouched, and is red when its fault is really there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from strandline.jobs.model.errors import UnknownName
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.recovery.drill_history import DrillResult, history, record
from strandline.jobs.operate.recovery.scenarios import SCENARIOS, Drill, plan_drills, run_drill
from strandline.state_store.commits import CommitRecord
from strandline.state_store.errors import CorruptState
from tests.support.on_disk import on_disk
from tests.support.warm_process import exit_code
from tests.unit.operate.verify.lakes import MadeLake


def drilled(made: MadeLake, scenario: str, view: str = "owned") -> DrillResult:
    return run_drill(made.settings, Drill(scenario, view, 60.0))


@pytest.mark.parametrize("scenario", [each.name for each in SCENARIOS])
def test_a_healthy_view_passes_and_the_live_lake_is_only_read(shop: MadeLake, tmp_path: Path, scenario: str) -> None:
    lake = Path(str(shop.settings.lake))
    before = {each: each.read_bytes() for each in lake.rglob("*") if each.is_file()}
    result = run_drill(shop.settings, Drill(scenario, "owned", 60.0), scratch=tmp_path)
    assert {each: each.read_bytes() for each in lake.rglob("*") if each.is_file()} == before
    assert list(tmp_path.iterdir()) == [], "the copy is gone"
    assert (result.passed, result.digest_equal, result.rpo_versions, result.rpo_rows) == (True, True, 0, 0), result.why
    assert result.rows == 3
    assert result.rto_seconds is not None


@pytest.mark.parametrize("view", ["pages", "spread"])
def test_keyed_sources_and_views_of_several_stages_are_drilled_too(shop: MadeLake, view: str) -> None:
    for scenario in ("changelog", "recompute", "point-in-time", "feed-gap"):
        result = drilled(shop, scenario, view)
        assert result.passed, f"{scenario}: {result.why}"


def _drilled(lake: Path, scratch: Path) -> None:
    run_drill(load_settings(lake=lake), Drill("backup", "owned", 60.0), scratch=scratch)


def test_a_drill_that_is_killed_leaves_the_lake_alone_and_its_copy_to_the_next(shop: MadeLake, tmp_path: Path) -> None:
    lake = Path(str(shop.settings.lake))
    before = {each: each.stat().st_mtime_ns for each in lake.rglob("*")}
    assert exit_code(_drilled, lake, tmp_path, failpoint="inside-restore:3") == -signal.SIGKILL
    assert {each: each.stat().st_mtime_ns for each in lake.rglob("*")} == before
    assert len(list(tmp_path.iterdir())) == 1
    assert exit_code(_drilled, lake, tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_drill_over_its_target_has_failed(shop: MadeLake) -> None:
    result = run_drill(shop.settings, Drill("recompute", "owned", 0.000001))
    assert (result.passed, result.digest_equal) == (False, True)
    assert "the target is" in result.why


def test_a_view_with_a_single_version_is_skipped_and_says_why(settings: Settings) -> None:
    made = MadeLake(settings)
    made.visits([(0, "a", 1.0)], {0: 1})
    made.tables["totals"].create(CommitRecord(epoch=0))
    result = drilled(made, "feed-gap", "totals")
    assert result.passed is None
    assert "too few versions" in result.why


def test_the_plan_is_every_scenario_of_every_view(shop: MadeLake) -> None:
    plan = plan_drills(shop.settings)
    assert {each.view for each in plan} == {"pages", "totals", "owned", "spread"}
    assert len(plan) == 4 * len(SCENARIOS)
    assert {each.target_seconds for each in plan_drills(shop.settings, ["owned"], target_seconds=3)} == {3}
    with pytest.raises(UnknownName, match="changelog"):
        plan_drills(shop.settings, ["owned"], ["changelgo"])
    with pytest.raises(UnknownName, match="visits"):
        plan_drills(shop.settings, ["visits"])


def test_the_history_keeps_every_run(shop: MadeLake) -> None:
    results = [drilled(shop, "recompute"), drilled(shop, "feed-gap")]
    record(shop.lake, results[:1])
    record(shop.lake, results[1:])
    record(shop.lake, [])
    assert history(shop.lake) == results
    (first, _) = sorted(on_disk(shop.lake.drills).iterdir())
    first.write_text("{")
    with pytest.raises(CorruptState):
        history(shop.lake)
