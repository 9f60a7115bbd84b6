"""Retention of event logs: planned for whom, done in one commit, proved; views keep what they have counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from strandline.jobs.model.errors import EventsGone
from strandline.jobs.model.settings import RetentionSettings, load_settings
from strandline.jobs.operate.maintenance import execute_maintenance, plan_maintenance
from strandline.state_store.commits import TRIM
from strandline.state_store.delta import log, reader
from strandline.state_store.digest import Digest
from strandline.state_store.leases import ReaderLease
from tests.support.retained_lake import FOLDS, LOOK_BACK, RetainedLake
from tests.unit.operate.maintenance.rounds import checks, files, lake, wrong


def test_old_events_go_and_views_keep_what_they_counted(tmp_path: Path) -> None:
    made, twin = (lake(tmp_path / name, *FOLDS.values(), rounds=3) for name in ("trimmed", "whole"))
    before = reader.head(made.lake.table("s"))
    assert before is not None
    plan = made.plan("s")
    assert (plan.plan.rows, plan.plan.begins) == (20, {0: 6, 1: 14})
    assert plan.said.startswith("20 events up to 2024-05-01 00:21:00 UTC: 2 files; it begins with offset")
    done = made.trimmed()
    assert done.proved
    assert next(each for each in done.tables if each.table == "s").trimmed == 20
    after = reader.head(made.lake.table("s"))
    assert after is not None
    assert after.record.trimmed is not None
    assert after.record.mode == TRIM
    went = Digest.parse(after.record.trimmed.digest)
    assert Digest.parse(after.record.digest) + went == Digest.parse(before.record.digest)
    assert (after.record.gone, after.record.rows, len(made.rows("s"))) == (20, 10, 10)
    for each in (made, twin):
        each.feed("s", [("d", 9), ("a", 0)])
        each.feed("t", [("a", None), ("d", 8)])
        each.refreshed()
    assert {name: made.rows(name) for name in FOLDS} == {name: twin.rows(name) for name in FOLDS}
    assert made.rows("t") == twin.rows("t")
    assert wrong(made) == []
    assert {each.check for each in checks(twin).values() if not each.ok} <= {"checkpoint"}


def test_changes_show_no_deletion_and_other_engines_read_the_rest(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    path = made.lake.table("s")
    rows, version = reader.read_rows(path), log.newest_version(path)
    made.trimmed("s")
    assert reader.read_changes(path, version).num_rows == 0
    assert reader.read_rows(path, version) == rows, "the version before is whole for as long as it is kept"
    assert len(reader.read_changes(path)) == 40
    other = DeltaTable(str(path))
    assert other.to_pyarrow_table().num_rows == reader.read_rows(path).num_rows == 10
    changed = other.load_cdf(starting_version=(version or 0) + 1).read_all()
    assert changed.num_rows == 0


def test_who_looks_back_keeps_the_log_and_the_plan_says_so(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"], LOOK_BACK["joined"], LOOK_BACK["visits"])
    text = str(plan_maintenance(made.settings, ["s"], now=made.now))
    assert "keep 30 events beyond its retention for 'joined': its join looks up former events" in text
    assert "keep 30 events beyond its retention for 'visits': its sessions are cut again from former events" in text
    assert "its retention for 'counts'" not in text
    made.trimmed()
    assert made.gone("s") == 0
    assert made.gone("t__log") > 0, "the newest row of a key needs no former event"
    made.sql("DROP TABLE visits;", "DROP MATERIALIZED VIEW joined;")
    made.trimmed()
    assert made.gone("s") == 30


def test_what_a_view_or_a_lease_has_not_taken_in_stays(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"], rounds=1)
    made.feed("s", [("a", 1), ("b", 2)])
    made.feed("s", [("a", 3)])
    made.minutes += 60
    plan = made.plan("s")
    assert (plan.plan.rows, [each.who for each in plan.plan.keepers]) == (10, ["'counts'"])
    ReaderLease(made.lake.table("s"), "slow").publish(0)
    plan = made.plan("s")
    assert (plan.plan.rows, {each.who for each in plan.plan.keepers}) == (0, {"'counts'", "the lease of 'slow'"})
    assert made.trimmed("s").tables[0].trimmed == 0


def test_a_lease_between_plan_and_execution_is_asked(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    plan = plan_maintenance(made.settings, ["s"], now=made.now)
    ReaderLease(made.lake.table("s"), "late").publish(1)
    (done,) = execute_maintenance(made.settings, plan, made.now).tables
    assert (done.trimmed, done.note) == (10, "10 events trimmed"), "20 fewer than planned"


def test_size_takes_the_oldest_and_never_goes_below(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    sizes = [int(each["size"]) for each in files(made)]
    made.sql(
        "CREATE OR REPLACE STREAM s (k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, "
        f"RETENTION_MS = -1, RETENTION_BYTES = {sum(sizes[2:])});"
    )
    made.trimmed("s")
    assert sum(int(each["size"]) for each in files(made)) == sum(sizes[2:])
    assert made.gone("s") == 20


def test_a_setting_gives_the_default_and_minus_one_takes_it_away(tmp_path: Path) -> None:
    made = RetainedLake(
        load_settings(lake=tmp_path / "lake", retention=RetentionSettings(events_days=15 / 1440)),
        ["CREATE STREAM r (k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC = 'r', PARTITIONS = 2)"],
    )
    made.sql("CREATE STREAM q (k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC = 'q', PARTITIONS = 2, RETENTION_MS = -1);")
    for _ in range(2):
        for name in ("r", "q"):
            made.feed(name, [("a", each) for each in range(10)])
    made.trimmed()
    assert (made.gone("r"), made.gone("q")) == (10, 0)


def test_a_new_view_sees_what_is_left_and_is_proved_over_that(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    made.trimmed("s")
    assert checks(made)["counts", "recompute"].ok, "the version of its vector is whole"
    made.sql(FOLDS["everything"] + ";", LOOK_BACK["joined"] + ";")
    made.feed("s", [("a", 5)])
    made.refreshed()
    assert made.rows("everything")[0][0] == 11
    found = checks(made)
    assert found["everything", "recompute"].ok
    assert "computed from the events of 's' that retention had left" in found["everything", "recompute"].what
    head = reader.head(made.lake.table("everything"))
    assert head is not None
    assert "'s' begins after 2024-05-01 00:32:00 UTC: retention has taken 30 events" in head.record.reason
    assert found["joined", "recompute"].ok
    assert found["counts", "recompute"].ok is None
    said = "the history of 's' begins after 2024-05-01 00:32:00 UTC: retention has taken 30 events"
    assert found["counts", "recompute"].what.startswith(said)
    assert all(found["counts", check].ok for check in ("digest", "row_count", "feed", "vector", "files"))
    assert made.plan("s").plan.rows == 0
    made.feed("s", [("a", 5)] * 12)
    made.refreshed()
    assert [each.who for each in made.plan("s").plan.keepers] == ["'joined'"], "from now on it keeps what it began with"
    assert wrong(made) == []


def test_what_would_lose_rows_is_refused(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    made.trimmed("s")
    before = made.rows("counts")
    with pytest.raises(EventsGone, match="retention has taken 30 events from 's', which begins after 2024-05-01 00:32"):
        made.sql("CREATE OR REPLACE TABLE counts AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;")
    assert made.rows("counts") == before
    made.sql("DROP TABLE counts;", "CREATE TABLE counts AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;")
    made.refreshed()
    assert sum(int(str(row[1])) for row in made.rows("counts")) == 10
