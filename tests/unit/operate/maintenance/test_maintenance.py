"""Maintenance: planned, done beside a writer or as one, proved; and nothing goes that somebody needs."""

from __future__ import annotations

import pytest

from strandline.jobs.model.settings import RetentionSettings, Settings
from strandline.jobs.operate.assurance import LogCost, log_costs
from strandline.jobs.operate.maintenance import MaintenanceResult, TableResult, execute_maintenance, plan_maintenance
from strandline.jobs.operate.verify.findings import sized
from strandline.jobs.operate.verify.verify import verify
from strandline.state_store import leases
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import LeaseHeld, VersionGone
from strandline.state_store.leases import LEASE_DAYS, ReaderLease
from strandline.state_store.lock import writer_lock
from tests.support.on_disk import data_files
from tests.support.operated_lake import epoch
from tests.unit.operate.verify.lakes import MadeLake

DAY_MS = 86_400_000


@pytest.fixture
def brief(shop: MadeLake) -> Settings:
    """Settings under which only the present version is kept for its own sake."""
    return shop.settings.model_copy(update={"retention": RetentionSettings(horizon_days=1e-9)})


def only(result: MaintenanceResult, table: str) -> TableResult:
    return next(each for each in result.tables if each.table == table)


def healthy(settings: Settings) -> None:
    wrong = [each for each in verify(settings, deep=True) if each.ok is False]
    assert wrong == []


def test_a_young_lake_is_left_as_it_is(shop: MadeLake) -> None:
    plan = plan_maintenance(shop.settings)
    assert not any(each.due for each in plan.tables)
    done = execute_maintenance(shop.settings, plan)
    assert done.proved
    assert {each.proved for each in done.tables} == {None}
    (visits,) = (each for each in plan.tables if each.table == "visits")
    kept = reader.read_rows(shop.lake.table("visits"))
    oldest = min(kept["_timestamp"].to_pylist())
    size = sum(file.stat().st_size for file in data_files(shop.lake.table("visits")))
    assert visits.log == LogCost("visits", kept.num_rows, size, oldest)
    assert f"; nothing to do; keep all rows: {visits.log}" in str(plan)
    named = plan_maintenance(shop.settings, ["visits"])
    assert f"  keep all rows, since it has no retention: {visits.log}" in str(named).splitlines()
    assert f"{kept.num_rows} rows, {sized(size)}, the oldest event of {oldest:%Y-%m-%d %H:%M}" in str(visits.log)
    assert visits.as_json()["keeps_all_rows"] == visits.log.as_json()
    assert {each.table for each in plan.tables if each.log is not None} == {"visits", "pages__log"}
    assert log_costs(shop.settings) == [each.log for each in plan.tables if each.log is not None]


def test_what_nobody_needs_goes_and_no_row_changes(shop: MadeLake, brief: Settings) -> None:
    rows = {name: reader.read_rows(shop.lake.table(name)) for name in ("owned", "totals", "visits")}
    before = only_digests(shop)
    plan = plan_maintenance(brief)
    done = execute_maintenance(brief, plan)
    assert done.proved
    owned = only(done, "owned")
    assert owned.proved
    assert owned.freed > 0
    assert owned.restore_rows_after == 3 < owned.restore_rows_before, "the newest row of each key"
    assert only_digests(shop) == before
    for name, kept in rows.items():
        assert reader.read_rows(shop.lake.table(name)) == kept
    path = shop.lake.table("owned")
    assert log.versions(path) == [owned.version]
    with pytest.raises(VersionGone):
        reader.read_changes(path, 1)
    healthy(shop.settings)
    again = plan_maintenance(brief)
    assert not any(each.due for each in again.tables)


def only_digests(made: MadeLake) -> dict[str, str]:
    heads = {name: reader.head(made.lake.table(name)) for name in ("owned", "totals", "spread", "pages", "visits")}
    return {name: head.record.digest for name, head in heads.items() if head is not None}


def test_epochs_go_on_after_it(shop: MadeLake, brief: Settings) -> None:
    for number in range(4, 6):
        execute_maintenance(brief, plan_maintenance(brief))
        epoch(shop, number)
    healthy(shop.settings)


def test_a_view_that_stands_still_holds_its_inputs(shop: MadeLake, brief: Settings) -> None:
    at = shop.vector("spread")["spread__stage_1"].version
    shop.visits([(0, "z", 1.0)], {0: 99})
    visits = next(each for each in plan_maintenance(brief).tables if each.table == "visits")
    assert visits.cleanup.first < visits.cleanup.version
    assert {need.who for need in visits.cleanup.needs if need.kind == "vector"} == {"totals", "spread__stage_1"}
    assert f"version {visits.cleanup.first} for 'totals'" in str(plan_maintenance(brief))
    assert at > 0


def test_a_lease_is_kept_and_named(shop: MadeLake, brief: Settings) -> None:
    path = shop.lake.table("owned")
    expected = reader.read_changes(path, 2)
    ReaderLease(path, "slow").publish(2)
    plan = plan_maintenance(brief, ["owned"])
    (owned,) = plan.tables
    assert owned.cleanup.first == 2
    assert "keep from version 2 for the lease of 'slow'" in str(plan)
    assert execute_maintenance(brief, plan).proved
    assert reader.read_changes(path, 2) == expected
    healthy(shop.settings)


def test_what_would_break_a_lease_is_refused_with_the_lease_named(shop: MadeLake, brief: Settings) -> None:
    path = shop.lake.table("owned")
    ReaderLease(path, "slow").publish(2)
    with pytest.raises(LeaseHeld, match="'slow' still needs version 2"):
        plan_maintenance(brief, ["owned"], before=3)
    (owned,) = plan_maintenance(shop.settings, ["owned"], before=2).tables
    assert owned.cleanup.first == 2


def test_a_lease_that_comes_between_plan_and_execution_is_not_broken(shop: MadeLake, brief: Settings) -> None:
    path = shop.lake.table("owned")
    plan = plan_maintenance(brief, ["owned"])
    ReaderLease(path, "late").publish(1)
    before = log.versions(path)
    with pytest.raises(LeaseHeld, match="'late'"):
        execute_maintenance(brief, plan)
    assert log.versions(path) == before


def test_the_lease_of_a_dead_reader_is_shown_and_holds_nothing(
    shop: MadeLake, brief: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop.lake.table("owned")
    with monkeypatch.context() as past:
        past.setattr(leases, "_now_ms", lambda: log.now_ms() - (LEASE_DAYS + 1) * DAY_MS)
        ReaderLease(path, "dead").publish(1)
    plan = plan_maintenance(brief, ["owned"])
    (owned,) = plan.tables
    assert [lease.reader for lease in owned.cleanup.expired] == ["dead"]
    assert "the lease of 'dead' at 1 has ended" in str(plan)
    assert owned.cleanup.first == owned.cleanup.version
    assert execute_maintenance(brief, plan).proved


def small_files(made: MadeLake) -> None:
    for number in range(8):
        made.visits([(0, f"p{number}", 1.0)], {0: 20 + number})


def test_small_files_are_merged_by_the_writer(shop: MadeLake) -> None:
    small_files(shop)
    plan = plan_maintenance(shop.settings, ["visits"])
    done = only(execute_maintenance(shop.settings, plan), "visits")
    assert done.files_after < done.files_before
    assert (done.proved, done.note) == (True, "")
    assert plan_maintenance(shop.settings, ["visits"]).tables[0].merges.merges == ()


def test_beside_a_running_stream_the_merge_is_left_to_it(shop: MadeLake, brief: Settings) -> None:
    small_files(shop)
    lock = shop.lake.lock("shop")
    with writer_lock(lock, "run shop"):  # type: ignore[arg-type]
        done = only(execute_maintenance(brief, plan_maintenance(brief, ["visits", "owned"])), "visits")
        assert done.files_after == done.files_before
        assert "'shop' is being written by process" in done.note
        assert done.proved is True
    assert log.versions(shop.lake.table("owned"))[0] > 0, "the clean-up was done all the same"


def test_the_plan_can_be_read_by_programs(shop: MadeLake, brief: Settings) -> None:
    (owned,) = plan_maintenance(brief, ["owned"]).tables
    said = owned.as_json()
    assert said["kept_from"] == said["version"]
    assert said["restore_rows"]["after"] == 3
    assert said["removes"]["files"] == len(owned.cleanup.files) > 0


def test_bytes_are_told_in_the_unit_that_fits() -> None:
    assert [sized(each) for each in (0, 8_493, 3_120_544, 1_200_000_000)] == ["0.0 kB", "8.5 kB", "3.1 MB", "1.2 GB"]
