"""A view's topic adds up to its table at each version, whatever became of publisher, feed, table and topic."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import EncodeFailed, ViewsStopped
from strandline.jobs.model.settings import Settings
from strandline.jobs.publish.encoder import decoded_rows, live_records
from strandline.jobs.publish.publisher import open_publisher, registry_of
from strandline.jobs.publish.topic import PublisherFenced, TopicTaken, topic_as_source
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store import leases
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import TableMissing
from strandline.state_store.files import remove_file
from strandline.state_store.layout import LakeLayout
from strandline.state_store.leases import ReaderLease, living
from tests.support.published_lake import VIEWS, PublishedLake


@pytest.fixture
def made(settings: Settings) -> PublishedLake:
    return PublishedLake(settings)


def assert_folds(made: PublishedLake, view: str) -> list[int]:
    """Each version that the topic names adds up to the table's rows; those versions."""
    folds = list(made.folds(view))
    assert [(version, str(digest)) for version, digest in folds] == [
        (version, str(made.digest(view, version))) for version, _ in folds
    ]
    return [version for version, _ in folds]


def test_a_topic_adds_up_to_its_table_at_each_version(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """The first publication is the rows as they are, the next ones are the feed, one by one and several at once."""
    made.epoch(duckdb_engine)
    first = {view: made.publish(view) for view in VIEWS}
    assert {done.way for done in first.values()} == {"difference"}
    made.epoch(duckdb_engine)
    assert {made.publish(view).way for view in VIEWS} == {"changes"}
    for _ in range(3):
        made.epoch(duckdb_engine)
    for view in VIEWS:
        assert made.publish(view).writes == 1
        assert made.publish(view).way in ("nothing", "changes")
        versions = assert_folds(made, view)
        assert versions[0] == first[view].version
        assert set(versions[1:]) == {at for at in range(versions[0] + 1, versions[-1] + 1) if made.moves(view, at)}
        assert made.digest(view, versions[-1]) == made.digest(view, first[view].version + 4)


def test_a_view_without_a_table_has_nothing_to_publish(made: PublishedLake) -> None:
    with pytest.raises(TableMissing):
        made.publish("by_town")


def test_a_gap_in_the_feed_is_answered_by_the_difference(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """Also the rows that went meanwhile go from the topic."""
    made.epoch(duckdb_engine)
    made.publish("open_places")
    for _ in range(2):
        made.epoch(duckdb_engine)
    table = made.lake.table("open_places")
    head = reader.head(table)
    assert head is not None
    make_checkpoint(table, head.version)
    remove_file(log.commit_file(table, head.version - 1))
    done = made.publish("open_places")
    assert (done.way, done.records) == ("difference", 1)
    assert made.records("open_places")[head.version] == [(1, b'"Rome"', None)]
    assert assert_folds(made, "open_places")[-1] == head.version


def test_a_publisher_holds_a_lease_on_what_it_has_not_published(
    made: PublishedLake, duckdb_engine: DuckDBEngine
) -> None:
    made.epoch(duckdb_engine)
    done = made.publish("by_town")
    [lease] = living(made.lake.table("by_town"), 0)
    assert (lease.reader, lease.version) == ("topic-by_town", done.version)


def test_an_idle_publisher_writes_its_lease_once_a_minute(
    made: PublishedLake, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks every few seconds, and a lease that is written is a flushed file."""
    made.epoch(duckdb_engine)
    written, now = [], [0.0]
    publish = ReaderLease.publish

    def noted(lease: ReaderLease, version: int) -> None:
        written.append(now[0])
        publish(lease, version)

    monkeypatch.setattr(ReaderLease, "publish", noted)
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns))
    with closing(open_publisher(made.settings, "by_town")) as publisher:
        for second in range(0, 180, 5):
            now[0] = float(second)
            publisher.catch_up()
    assert written == [0.0, 60.0, 120.0]


def test_a_table_that_was_made_anew_is_compared_with_the_topic(
    settings: Settings, duckdb_engine: DuckDBEngine, made: PublishedLake
) -> None:
    made.epoch(duckdb_engine)
    made.epoch(duckdb_engine)
    before = made.publish("by_both")
    set_aside(made.lake, "by_both")
    made.refresh(duckdb_engine, {"by_both"})
    done = made.publish("by_both")
    # The same rows in a table of another identity: nothing is to be said of them.
    assert (before.records, done.way, done.records) == (6, "difference", 0)
    made.epoch(duckdb_engine)
    assert made.publish("by_both").records == 3


def test_the_plan_says_what_is_to_be_published(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    made.epoch(duckdb_engine)

    def planned() -> tuple[object, ...]:
        plan = open_publisher(made.settings, "by_town").plan()
        return plan.way, plan.as_json()["from_version"], plan.as_json()["to_version"]

    assert planned() == ("difference", None, 1)
    assert not LocalLog(made.lake).exists("by_town"), "a plan changes nothing"
    made.publish("by_town")
    assert planned() == ("nothing", 1, 1)
    made.epoch(duckdb_engine)
    assert planned() == ("changes", 1, 2)


def test_a_second_publisher_ends_the_first(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    made.epoch(duckdb_engine)
    first = open_publisher(made.settings, "by_town")
    first.catch_up()
    made.epoch(duckdb_engine)
    made.publish("by_town")
    made.epoch(duckdb_engine)
    with pytest.raises(PublisherFenced, match="by_town"):
        first.catch_up()
    made.publish("by_town")
    assert assert_folds(made, "by_town") == [1, 2, 3]


def test_what_others_wrote_is_not_deleted(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    made.epoch(duckdb_engine)
    topics = LocalLog(made.lake)
    topics.ensure_topic("by_town")
    topics.produce("by_town", [Record(b'"Rome"', b"{}", 0)])
    with pytest.raises(TopicTaken, match="no view published"):
        made.publish("by_town")
    assert topics.end_offsets("by_town") == {0: 1}


def test_a_row_that_the_format_cannot_hold_stops_the_topic_until_it_is_gone(
    settings: Settings, lake: LakeLayout
) -> None:
    """Found by the property over paths: the versions on the way to the head were tried for ever, that one too."""
    session = Interpreter(settings, "shop")

    def published(*statements: str) -> int | None:
        list(session.run("\n".join(statements)))
        with suppress(ViewsStopped):
            drain(settings, "shop")
        with closing(open_publisher(settings, "times")) as publisher, suppress(EncodeFailed):
            return publisher.catch_up().version
        return None

    assert published(
        "CREATE TABLE t (id INT PRIMARY KEY, x VARCHAR);",
        "CREATE MATERIALIZED VIEW times WITH (KAFKA_TOPIC = 'times') AS SELECT id, CAST(x AS TIMESTAMP) AS at FROM t;",
        "INSERT INTO t VALUES (1, '2024-05-01T10:00');",
    )
    assert published("INSERT INTO t VALUES (2, '2024-05-01T10:00:00.000001');") is None
    assert published("INSERT INTO t VALUES (3, '2024-05-01T11:00');") is None
    assert published("INSERT INTO t VALUES (2, '2024-05-01T12:00');") == 4
    view = session.catalog.get("times")
    assert isinstance(view, View)
    source = topic_as_source(view)
    live = live_records(LocalLog(lake), "times", "times", lambda value: value)
    rows = decoded_rows(live, source, registry_of(settings, lake)).to_pylist()
    assert {row["id"]: row["at"].hour for row in rows} == {1: 10, 2: 12, 3: 11}
