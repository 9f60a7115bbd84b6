"""A view's rows come back from its changelog topic, with the digest that the table had."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext
from strandline.jobs.ivm.refresh.refresh import rebuild_stage
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.from_topic import rebuild_from_topic
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.publish.topic import NeverPublished, TopicDiffers
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.on_disk import on_disk
from tests.support.published_lake import PublishedLake


@pytest.fixture
def made(settings: Settings, duckdb_engine: DuckDBEngine) -> PublishedLake:
    made = PublishedLake(settings)
    for _ in range(4):
        made.epoch(duckdb_engine)
    return made


VIEWS = ("by_town", "by_both", "hourly", "open_places", "lands", "total")


@pytest.mark.parametrize("lost", [False, True])
def test_the_rows_come_back(made: PublishedLake, lost: bool) -> None:
    """Over a table that was damaged by nobody, nothing changes; one that is gone has its rows again."""
    for view in VIEWS:
        made.publish(view)
        table = made.lake.table(view)
        assert isinstance(table, Path)
        before = reader.head(table)
        assert before is not None
        if lost:
            shutil.rmtree(table)
        done = rebuild_from_topic(made.settings, view)
        after = reader.head(table)
        assert after is not None
        assert (after.record.digest, done.of_version) == (before.record.digest, before.version), view
        # A scan compares the rows with the digest that the record states.
        assert reader.read_rows(table).num_rows == done.rows == before.record.rows, view
        assert (after.record.inserted, after.record.deleted) == ((done.rows, 0) if lost else (0, 0)), view


def test_a_run_stops_at_such_a_table_until_it_is_rebuilt(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """And the rebuild changes no row that is seen."""
    made.publish("by_town")
    rebuild_from_topic(made.settings, "by_town")
    context = RunContext(None, made.lake, "test/1", duckdb_engine=duckdb_engine)
    catalog = made.catalog()
    levels = maintained(catalog.definitions(), catalog)
    failures = refresh_all(context, levels, frozenset()).failures
    assert isinstance(failures["by_town"], RefreshFailed)
    assert "strandline rebuild by_town" in str(failures["by_town"])
    [item] = [item for level in levels for item in level if item.name == "by_town"]
    done = rebuild_stage(context, Heads(made.lake), item.stages[-1], Owner(item.fingerprint))
    assert (done.inserted, done.deleted) == (0, 0)
    made.epoch(duckdb_engine)
    assert made.publish("by_town").records > 0
    folds = list(made.folds("by_town"))
    assert folds[-1] == (folds[-1][0], made.digest("by_town", folds[-1][0]))


@pytest.mark.parametrize("lost", [False, True])
def test_it_is_whole_to_a_verification_which_says_where_its_rows_are_from(
    made: PublishedLake, duckdb_engine: DuckDBEngine, lost: bool
) -> None:
    """Of the rows all is proved but what only the inputs tell; after a rebuild from them, that too."""
    made.publish("by_town")
    if lost:
        shutil.rmtree(on_disk(made.lake.table("by_town")))
    rebuild_from_topic(made.settings, "by_town")
    checks = {each.check: each for each in verify(made.settings, ["by_town"], deep=True)}
    assert {name for name, each in checks.items() if each.ok is not True} == {"definition", "vector", "recompute"}
    assert (checks["vector"].ok, checks["recompute"].ok) == (None, None)
    assert "put back from its changelog topic" in checks["recompute"].what
    assert "put back from its changelog topic" in checks["definition"].what
    assert checks["definition"].hint == "type: strandline rebuild by_town"
    rebuild(made.settings, "by_town")
    assert [each for each in verify(made.settings, ["by_town"], deep=True) if each.ok is not True] == []


def test_a_topic_that_holds_no_version_is_refused(made: PublishedLake) -> None:
    with pytest.raises(NeverPublished, match="strandline publish by_town"):
        rebuild_from_topic(made.settings, "by_town")


def test_a_topic_that_does_not_add_up_is_refused(made: PublishedLake) -> None:
    """Somebody added a record that looks like ours."""
    made.publish("by_town")
    log = LocalLog(made.lake)
    partition, end = max(log.end_offsets("by_town").items(), key=lambda each: each[1])
    [last] = log.read("by_town", partition, end - 1, end)
    headers = tuple(last.headers[-1] or ())
    log.produce("by_town", [Record(b'"nowhere"', last.values[-1], 0, headers, partition)])
    before = reader.head(made.lake.table("by_town"))
    with pytest.raises(TopicDiffers, match="adds up to"):
        rebuild_from_topic(made.settings, "by_town")
    assert reader.head(made.lake.table("by_town")) == before
