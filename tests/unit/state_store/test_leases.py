"""Leases: what a reader has published is kept, whatever its age, until the lease ends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from strandline.state_store import leases
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS, clean, plan_cleanup
from strandline.state_store.errors import CorruptState, TableMissing, VersionGone
from strandline.state_store.files import create, make_folder, remove_folder
from strandline.state_store.leases import FOLDER, LEASE_DAYS, RENEW_SECONDS, ReaderLease, living
from strandline.state_store.paths import LakePath, is_folder
from strandline.state_store.tablespec import RECOVERY_HORIZON_DAYS
from tests.support.on_disk import on_disk
from tests.unit.state_store.delta.test_cleanup import Clock, lived


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """One clock for commits, clean-up and leases."""
    made = Clock(monkeypatch)
    monkeypatch.setattr(leases, "_now_ms", lambda: made.now)
    return made


def test_a_table_that_nobody_reads_has_none(tmp_path: Path) -> None:
    assert living(tmp_path, 0) == []


def test_a_lease_ends_when_it_is_withdrawn_or_not_renewed(tmp_path: Path, clock: Clock) -> None:
    one, other = ReaderLease(tmp_path, "one"), ReaderLease(tmp_path, "../other")
    one.publish(3)
    other.publish(5)
    assert sorted((lease.reader, lease.version) for lease in living(tmp_path, clock.now)) == [
        ("../other", 5),
        ("one", 3),
    ]
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / FOLDER}
    one.withdraw()
    one.withdraw()
    assert [lease.version for lease in living(tmp_path, clock.now)] == [5]
    assert [lease.version for lease in living(tmp_path, clock.now + LEASE_DAYS * DAY_MS - 1)] == [5]
    assert living(tmp_path, clock.now + LEASE_DAYS * DAY_MS) == []


def test_readers_of_long_names_have_leases_of_their_own(folder: LakePath) -> None:
    table = folder / "t"
    make_folder(table)
    assert create(table / "a", b"")
    readers = [f"topic-{'注文' * 40}-{number}" for number in range(2)]
    for version, reader_name in enumerate(readers):
        ReaderLease(table, reader_name).publish(version)
    found = living(table, 0)
    assert sorted((lease.reader, lease.version) for lease in found) == [(readers[0], 0), (readers[1], 1)]
    assert all((table / FOLDER / leases.file_of(lease).partition("/")[2]).exists() for lease in found)
    ReaderLease(table, readers[0]).withdraw()
    assert [lease.version for lease in living(table, 0)] == [1]


def test_a_lease_is_written_again_when_it_is_old_or_the_reader_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    lease = ReaderLease(tmp_path, "one")

    def published() -> int:
        return living(tmp_path, 0)[0].version

    lease.renew(3)
    lease.renew(4)
    assert published() == 3, "it costs a flushed file, and an older version is on the safe side"
    seconds += RENEW_SECONDS
    lease.renew(4)
    assert published() == 4
    lease.renew(2)
    assert published() == 2


def test_what_is_leased_is_kept_beyond_the_horizon(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock)
    unleased = plan_cleanup(table.path, clock.now)
    assert unleased.first > 60 - RECOVERY_HORIZON_DAYS > 7
    ReaderLease(table.path, "slow").publish(7)
    ReaderLease(table.path, "slower, gone").publish(2)
    clock.pass_days(1, table.path)
    ReaderLease(table.path, "slow").publish(7)
    clock.pass_days(LEASE_DAYS - 0.5, table.path)
    expected = reader.read_rows(table.path, 7)
    changes = reader.read_changes(table.path, 7)
    plan = plan_cleanup(table.path, clock.now)
    assert plan.first == 7
    clean(plan)
    assert reader.read_rows(table.path, 7) == expected
    assert reader.read_changes(table.path, 7) == changes
    assert {lease.reader for lease in living(table.path, clock.now)} == {"slow"}


def test_a_lease_that_has_ended_holds_nothing_and_goes(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock)
    ReaderLease(table.path, "gone").publish(7)
    clock.pass_days(LEASE_DAYS + 1, table.path)
    plan = plan_cleanup(table.path, clock.now)
    assert plan.first > 7
    clean(plan)
    assert not (table.path / FOLDER / "gone.json").exists()
    with pytest.raises(VersionGone):
        reader.read_changes(table.path, 7)


def test_a_lease_of_a_version_that_is_gone_keeps_nothing_more(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock)
    clean(plan_cleanup(table.path, clock.now))
    first = log.versions(table.path)[0]
    assert first > 0
    ReaderLease(table.path, "late").publish(0)
    assert plan_cleanup(table.path, clock.now).first > first


def test_a_broken_lease_stops_the_clean_up(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock, 3)
    lease = ReaderLease(table.path, "one")
    lease.publish(1)
    (file,) = on_disk(table.path / FOLDER).iterdir()
    for broken in (b"{", b'{"format": 9}', b'{"format": 1}', b"[]"):
        file.write_bytes(broken)
        with pytest.raises(CorruptState, match="a lease does not read back"):
            plan_cleanup(table.path, clock.now)
    lease.publish(1)
    plan_cleanup(table.path, clock.now)


def test_a_lease_does_not_begin_the_folder_of_a_dropped_table_again(folder: LakePath) -> None:
    table = folder / "tables" / "t"
    make_folder(table)
    assert create(table / "a", b"")
    lease = ReaderLease(table, "one")
    lease.publish(1)
    remove_folder(table)
    with pytest.raises(TableMissing):
        lease.publish(2)
    lease.withdraw()
    assert not is_folder(table)
