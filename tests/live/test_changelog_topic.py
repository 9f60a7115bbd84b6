"""Changelog topics on a real broker: each version once, whatever is killed, and the table back from the topic."""

from __future__ import annotations

from threading import Event

import pytest

from infra.kafka.broker import KafkaBroker
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.from_topic import rebuild_from_topic
from strandline.jobs.publish.publisher import Published, open_publisher
from strandline.jobs.publish.topic import NeverPublished, PublisherFenced, TopicTaken, TopicUnfit
from strandline.jobs.run.publishing import publishing
from strandline.jobs.session.status import status
from strandline.state_store.commits import Head
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.killed_publisher import published
from tests.support.published_lake import VIEWS, PublishedLake
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def made(kafka: Settings, request: pytest.FixtureRequest) -> PublishedLake:
    return PublishedLake(kafka, f"{request.node.name[5:40]}-")


def assert_folds(made: PublishedLake, view: str) -> list[int]:
    """Each version that the topic names adds up to the table's rows; those versions."""
    folds = list(made.folds(view))
    assert [(version, str(digest)) for version, digest in folds] == [
        (version, str(made.digest(view, version))) for version, _ in folds
    ]
    return [version for version, _ in folds]


def head_of(made: PublishedLake, view: str) -> Head:
    """Where the table stands."""
    head = reader.head(made.lake.table(view))
    assert head is not None
    return head


def standing(made: PublishedLake, view: str) -> tuple[object, ...]:
    """Version, rows, lag and state of a topic, as `strandline status` has them."""
    topic = made.source(view).topic
    [row] = [tuple(row) for row in status(made.settings).rows if row[1:3] == (topic, "changelog topic")]
    return row[3], row[5], row[6], row[9]


def test_each_version_and_back(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """Six views of many shapes, one version at a time and several in one transaction; then each table from its topic:
    once as it is, once lost."""
    made.epoch(duckdb_engine)
    assert standing(made, "by_town") == (None, None, None, "never published")
    for view in VIEWS:
        made.publish(view)
    made.epoch(duckdb_engine)
    assert standing(made, "by_town") == (1, 3, 1, "behind")
    made.epoch(duckdb_engine)
    for view in VIEWS:
        assert made.publish(view).writes == 1
        assert assert_folds(made, view)[-1] == head_of(made, view).version
    assert standing(made, "by_town") == (3, 5, 0, "fresh")
    for view in VIEWS:
        table = made.lake.table(view)
        said = head_of(made, view).record.digest
        if view != "total":
            set_aside(made.lake, view)
        done = rebuild_from_topic(made.settings, view)
        head = head_of(made, view)
        assert (done.of_version, head.record.digest, head.version) == (3, said, done.version)
        # The digest that the record states is compared with the rows that are read.
        assert reader.read_rows(table).num_rows == done.rows
        # The topic has it all; it only learns the number of the version.
        assert made.publish(view).records == 0


@pytest.mark.kill
def test_a_killed_publisher_loses_and_doubles_nothing(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """Killed before the transaction, inside it with all its records sent, and after its commit; on the first
    publication and on later ones. Readers of committed records see whole versions all the while."""
    for failpoint in ("inside-publish", "before-publish", "inside-publish", "after-publish"):
        for _ in range(2):
            made.epoch(duckdb_engine)
        assert published(made.settings, "by_town", failpoint) == -9
        if made.log_of("by_town").exists(made.source("by_town").topic):
            assert_folds(made, "by_town")
        assert published(made.settings, "by_town", "") == 0
        assert assert_folds(made, "by_town")[-1] == head_of(made, "by_town").version
    assert assert_folds(made, "by_town") == [2, 3, 4, 5, 6, 7, 8]


def test_a_second_publisher_fences_the_first(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    made.epoch(duckdb_engine)
    first = open_publisher(made.settings, "by_town")
    first.catch_up()
    made.epoch(duckdb_engine)
    made.publish("by_town")
    made.epoch(duckdb_engine)
    with pytest.raises(PublisherFenced, match="another publisher"):
        first.catch_up()
    first.close()
    made.publish("by_town")
    assert assert_folds(made, "by_town") == [1, 2, 3]


def test_a_topic_that_forgot_its_version_is_compared(
    made: PublishedLake, duckdb_engine: DuckDBEngine, kafka_broker: KafkaBroker
) -> None:
    """The offsets of the group have expired; then the topic was deleted and made anew."""
    topic = made.source("by_both").topic
    made.epoch(duckdb_engine)
    made.publish("by_both")
    kafka_broker.admin.delete_consumer_groups([f"strandline-{topic}"])[f"strandline-{topic}"].result(PATIENCE_SECONDS)
    with pytest.raises(NeverPublished):
        rebuild_from_topic(made.settings, "by_both")
    made.epoch(duckdb_engine)
    done = made.publish("by_both")
    assert (done.way, done.records) == ("difference", 3)
    assert assert_folds(made, "by_both") == [1, 2]
    kafka_broker.admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)
    wait_until(lambda: not made.log_of("by_both").exists(topic), "the topic is still there")
    done = made.publish("by_both")
    assert (done.way, done.records) == ("difference", 6)
    assert assert_folds(made, "by_both") == [2]


def test_a_topic_that_is_not_the_views_stays_as_it_is(
    made: PublishedLake, duckdb_engine: DuckDBEngine, kafka_broker: KafkaBroker
) -> None:
    made.epoch(duckdb_engine)
    plain, others = (made.source(view).topic for view in ("by_town", "by_both"))
    kafka_broker.create_topic(plain, 1)
    with pytest.raises(TopicUnfit, match=r"cleanup\.policy=delete"):
        made.publish("by_town")
    kafka_broker.create_topic(others, 1, {"cleanup.policy": "compact"})
    kafka_broker.produce(others, [(b"k", b"v")])
    with pytest.raises(TopicTaken):
        made.publish("by_both")
    assert made.log_of("by_both").end_offsets(others) == {0: 1}


def test_a_run_publishes_what_it_commits(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """Told of a commit, not by looking every few seconds; at its end it has published all of them."""
    told, versions = Event(), []

    def heard(done: Published) -> None:
        versions.append(done.version)
        told.set()

    views = [made.view("by_town")]
    with publishing(made.settings, views, heard, drained=True) as failures:
        for _ in range(3):
            told.clear()
            made.epoch(duckdb_engine)
            assert told.wait(PATIENCE_SECONDS)
        made.epoch(duckdb_engine)
    assert failures == {}
    assert versions == [1, 2, 3, 4]
    assert assert_folds(made, "by_town") == [1, 2, 3, 4]


def test_a_run_leaves_the_topic_to_who_publishes_beside_it(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """What stays fresh is nobody's failure; what stays behind is, and the run does not fence the other at once."""
    told = Event()
    views = [made.view("by_town")]
    with publishing(made.settings, views, lambda _: told.set(), drained=True) as failures:
        made.epoch(duckdb_engine)
        assert told.wait(PATIENCE_SECONDS)
        other = open_publisher(made.settings, "by_town")
        other.catch_up()
        made.epoch(duckdb_engine)
        other.catch_up()
    assert failures == {}
    with publishing(made.settings, views, lambda _: told.set(), drained=True) as failures:
        told.clear()
        made.epoch(duckdb_engine)
        assert told.wait(PATIENCE_SECONDS)
        open_publisher(made.settings, "by_town").catch_up()
        made.epoch(duckdb_engine)
    assert [type(error) for error in failures.values()] == [PublisherFenced]
    assert assert_folds(made, "by_town") == [1, 2, 3]
