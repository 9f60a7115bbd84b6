"""What Dagster keeps of what it was told outside of runs, in the storage that `make up` has."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent, StepMaterializationData

from strandline.orchestration.history import Thinned, delete_runs, thin

VIEW = dg.AssetKey(["projections", "v"])
CHECK = dg.AssetCheckKey(VIEW, "freshness")
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
NOW = NOON.replace(tzinfo=None)
"""As Dagster stores it."""
DATA_VERSION = {"dagster/data_version": "d"}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as found:
        yield found


def tell(instance: dg.DagsterInstance, ago: dt.timedelta, run_id: str = "") -> None:
    """A materialization and a result of a check, told so long before noon."""
    rows = StepMaterializationData(dg.AssetMaterialization(VIEW, tags=DATA_VERSION))
    kinds: list[tuple[dg.DagsterEventType, Any]] = [
        (dg.DagsterEventType.ASSET_MATERIALIZATION, rows),
        (dg.DagsterEventType.ASSET_CHECK_EVALUATION, dg.AssetCheckEvaluation(VIEW, CHECK.name, True)),
    ]
    for kind, data in kinds:
        event = DagsterEvent(kind.value, "job", event_specific_data=data)
        instance.report_dagster_event(event, run_id, timestamp=(NOON - ago).timestamp())


def kept(instance: dg.DagsterInstance) -> list[dt.timedelta]:
    """How long ago the materializations were told that there are."""
    found = instance.fetch_materializations(VIEW, limit=1000).records
    return [NOON - dt.datetime.fromtimestamp(each.timestamp, dt.UTC) for each in found]


def results(instance: dg.DagsterInstance) -> int:
    """The results of the check that there are."""
    return len(instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=1000))


def test_a_day_is_kept_whole_then_an_event_an_hour_and_then_the_last(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    minutes = [dt.timedelta(days=100, minutes=each) for each in (20, 10)]
    minutes += [dt.timedelta(days=2, hours=each, minutes=20) for each in (1, 0)]
    minutes += [dt.timedelta(days=2, hours=each, minutes=10) for each in (1, 0)]
    minutes += [dt.timedelta(minutes=each) for each in (20, 10)]
    for ago in sorted(minutes, reverse=True):
        tell(instance, ago)
    assert thin(instance, NOW, 1.0, 90.0, dry_run=True) == Thinned(4, 4)
    assert thin(instance, NOW, 1.0, 90.0) == Thinned(4, 4), "of which the dry run has deleted none"
    of_two_days_ago = [dt.timedelta(days=2, minutes=10), dt.timedelta(days=2, hours=1, minutes=10)]
    assert kept(instance) == [dt.timedelta(minutes=10), dt.timedelta(minutes=20), *of_two_days_ago]
    assert results(instance) == 4
    with sqlite3.connect(tmp_path / "history" / "runs" / "index.db") as index:
        assert index.execute("SELECT COUNT(*) FROM event_logs").fetchone() == (8,)
        assert index.execute("SELECT COUNT(*) FROM asset_event_tags").fetchone() == (4,)
    with sqlite3.connect(tmp_path / "history" / "runs" / ".db") as without_run:
        assert without_run.execute("SELECT COUNT(*) FROM event_logs").fetchone() == (4,)
    assert thin(instance, NOW, 1.0, 90.0) == Thinned(0, 0)


def test_an_asset_of_which_nothing_was_heard_for_a_year_stays_materialized(instance: dg.DagsterInstance) -> None:
    tell(instance, dt.timedelta(days=366))
    tell(instance, dt.timedelta(days=365))
    assert thin(instance, NOW, 1.0, 90.0) == Thinned(1, 1)
    assert kept(instance) == [dt.timedelta(days=365)]
    assert results(instance) == 1
    last = instance.get_latest_materialization_event(VIEW)
    assert last is not None
    assert last.asset_materialization is not None


def test_what_a_run_told_goes_with_the_run(instance: dg.DagsterInstance) -> None:
    run = instance.create_run_for_job(dg.GraphDefinition(name="job").to_job())
    for days in (200, 199):
        tell(instance, dt.timedelta(days=days), run.run_id)
    assert thin(instance, NOW, 1.0, 90.0) == Thinned(0, 0)
    assert len(kept(instance)) == 2


def test_the_runs_of_hourly_jobs_go_after_a_week_and_what_they_found_stays(instance: dg.DagsterInstance) -> None:
    runs = [
        instance.create_run_for_job(dg.GraphDefinition(name=name).to_job(), status=status)
        for name, status in (
            ("health_checks", dg.DagsterRunStatus.SUCCESS),
            ("health_checks", dg.DagsterRunStatus.STARTED),
            ("drain_shop", dg.DagsterRunStatus.SUCCESS),
        )
    ]
    tell(instance, dt.timedelta(days=8), runs[0].run_id)
    soon = dt.datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(hours=1)
    assert delete_runs(instance, soon, ["health_checks"], 7.0) == 0
    later = soon + dt.timedelta(days=7)
    assert delete_runs(instance, later, ["health_checks"], 7.0, dry_run=True) == 1
    assert delete_runs(instance, later, ["health_checks"], 7.0) == 1
    assert {run.run_id for run in instance.get_runs()} == {run.run_id for run in runs[1:]}
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key([CHECK])
    assert latest[CHECK].evaluation is not None
