"""Logs that were trimmed: what stops, what is noticed, what goes on, and when the bytes leave the disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.topics import lag
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.rules.stored import spec_of, stored_columns
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import RetentionSettings
from strandline.jobs.operate.maintenance import execute_maintenance, plan_maintenance
from strandline.jobs.operate.recovery.scenarios import plan_drills, run_drill
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import RowChanges, commit
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.delta.trims import TrimLimits, plan_trim, trim
from strandline.state_store.errors import ForeignWrite
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore
from tests.support.arrow_table import ArrowTable
from tests.support.on_disk import data_files, on_disk
from tests.support.replicated import unique_key
from tests.support.retained_lake import FOLDS, LOOK_BACK
from tests.unit.operate.maintenance.rounds import checks, lake, wrong


def test_rules_refuse_what_is_gone_even_where_nobody_asked_them(tmp_path: Path) -> None:
    """A join that was computed from all events, over a log that was trimmed behind its back: it stops, typed."""
    made = lake(tmp_path, LOOK_BACK["joined"], FOLDS["counts"])
    path = made.lake.table("s")
    head = reader.head(path)
    assert head is not None
    snapshot = read_snapshot(path, head.version)
    trim(path, head, snapshot, plan_trim(path, snapshot, TrimLimits(before=made.now - 600_000), ()))
    made.feed("s", [("a", 1)])
    failures = made.refresh().failures
    assert failures.keys() == {"joined"}
    assert failures["joined"].code == "pipeline.events_gone"
    assert "its rule reads former events again" in failures["joined"].message


def test_trimmed_events_do_not_come_back_and_a_hole_is_noticed(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    made.trimmed("s")
    assert checks(made, "s")["s", "offsets"].what == "10 records of topic 's'"
    source = made.catalog.get("s")
    assert isinstance(source, Source)
    assert lag(source, made.lake, LocalLog(made.lake)) == 0
    path = made.lake.table("s")
    head = reader.head(path)
    assert head is not None
    assert head.record.trimmed is not None
    false = replace(head.record.trimmed, begins={"0": 99, "1": 99})
    commit(path, head, replace(head.record, epoch=head.record.epoch + 1, trimmed=false), RowChanges())
    found = checks(made, "s")["s", "offsets"]
    assert found.ok is False
    assert "stands in the log, and retention has taken it" in found.what


def test_another_tool_that_removes_rows_is_noticed(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    made.trimmed("s")
    path = made.lake.table("s")
    newest = log.newest_version(path)
    assert newest is not None
    name, body = next(iter(read_snapshot(path, newest).files.items()))
    action = {"remove": {"path": name, "deletionTimestamp": log.now_ms(), "dataChange": True, "size": body["size"]}}
    entry = [{"commitInfo": {"operation": "DELETE", "timestamp": log.now_ms()}}, action]
    on_disk(log.commit_file(path, newest + 1)).write_bytes("\n".join(map(json.dumps, entry)).encode())
    failure = made.refresh().failures["counts"]
    assert isinstance(failure, ForeignWrite)
    assert "another tool's DELETE" in failure.message


def test_drills_of_a_view_over_a_trimmed_log_are_not_red(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    made.trimmed()
    made.feed("s", [("a", 1)])
    made.refreshed()
    scenarios = ("changelog", "recompute", "point-in-time", "short-topic")
    planned = plan_drills(made.settings, ["counts"], scenarios)
    found = {each.scenario: run_drill(made.settings, each) for each in planned}
    assert {name: each.passed for name, each in found.items()} == {
        **dict.fromkeys(scenarios, True),
        "recompute": None,
        "short-topic": None,
    }
    assert "the history of 's' begins after" in found["recompute"].why


def test_rows_of_events_that_are_left_are_proved(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["large"])
    made.trimmed()
    made.feed("s", [("a", 5), ("b", 1)])
    made.feed("t", [("a", 7), ("e", 8)])
    made.refreshed()
    found = checks(made)
    assert (found["large", "recompute"].ok, found["t", "recompute"].ok) == (None, None)
    assert found["large", "recompute"].what.startswith("5 rows of events that are left, as its SQL gives them; the")
    assert found["t", "recompute"].what.startswith("2 rows of events that are left, as its SQL gives them; the")
    stage = plan(made.catalog.get("large"), made.catalog).stages[-1]
    schema = pa.schema([(name, kind.arrow()) for name, kind in stored_columns(stage)])
    wrongly = ArrowTable(made.lake.table("large"), schema, spec_of(stage))
    wrongly.apply([{"k": "a", "v": 99, "_partition": 1, "_offset": 1000}])
    assert checks(made)["large", "recompute"].what.startswith("the rows of events that are left are not those of its")


def test_a_view_is_not_taken_back_to_before_its_first_refresh(tmp_path: Path) -> None:
    """From there it would be a new one, computed from the events that are left."""
    made = lake(tmp_path, FOLDS["counts"], rounds=1)
    drills = plan_drills(made.settings, ["counts"], ("point-in-time",))
    assert run_drill(made.settings, drills[0]).passed, "to version 0, from which all events are there"
    made.minutes += 60
    made.trimmed()
    assert run_drill(made.settings, drills[0]).passed is None
    made.feed("s", [("a", 1)])
    made.refreshed()
    assert run_drill(made.settings, drills[0]).passed


def test_a_replica_of_the_log_restores_itself(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    path = made.lake.table("s")
    source = made.catalog.get("s")
    assert isinstance(source, Source)
    replica = Replica("s", MemoryStore(), Layout(reader.schema(path), unique_key(log_spec(source))))
    follower = Follower(path, replica, "copy")
    follower.catch_up()
    made.trimmed("s")
    follower.catch_up()
    head = reader.head(path)
    assert head is not None
    assert str(replica.digest()) == head.record.digest


def test_files_of_what_went_leave_the_disk_with_the_versions_that_need_them(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    made.trimmed()
    there = len(data_files(made.lake.table("s")))
    brief = made.settings.model_copy(update={"retention": RetentionSettings(horizon_days=1e-9)})
    made.feed("s", [("a", 1)])
    made.refreshed()
    execute_maintenance(brief, plan_maintenance(brief))
    assert len(data_files(made.lake.table("s"))) < there
    assert wrong(made) == []


def test_a_source_gets_columns_after_a_trim(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"], rounds=3)
    made.trimmed()
    gone = made.gone("s")
    made.sql("ALTER STREAM s ADD COLUMN w INT;")
    made.feed("s", [("a", 1)])
    made.refreshed()
    assert (made.gone("s"), wrong(made)) == (gone, [])
