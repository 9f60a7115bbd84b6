"""The topic of a published view is an asset below its changelog, and says how far it is."""

from __future__ import annotations

import os

import dagster as dg
import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import SourceUnavailable
from strandline.jobs.model.settings import Settings
from strandline.jobs.publish.publisher import TopicStanding
from strandline.jobs.publish.topic import POSITION
from strandline.jobs.run.heartbeat import Heartbeat
from strandline.orchestration import assets
from strandline.orchestration.assets import ChangelogTopics
from strandline.orchestration.definitions import build
from strandline.orchestration.stream import Progress
from strandline.orchestration.streaming import Told
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.processes import process
from tests.support.catalog_from_sql import run
from tests.support.published_lake import PublishedLake

TOPIC = dg.AssetKey(["topics", "by_town.topic"])


@pytest.fixture
def made(settings: Settings) -> PublishedLake:
    return PublishedLake(settings)


def told(topics: ChangelogTopics) -> dict[str, dict[str, object]]:
    """{topic: what was observed of it}."""
    return {
        each.asset_key.path[-1]: {label: value.value for label, value in each.metadata.items()}
        for each in topics.events()
    }


def test_the_topic_stands_below_the_changelog(made: PublishedLake) -> None:
    graph = build(made.settings).get_repository_def().asset_graph
    node = graph.get(TOPIC)
    assert node.parent_keys == {dg.AssetKey(["changelogs", "by_town__changelog"])}
    assert node.is_external
    assert node.kinds == {"file", "changelog"}
    assert node.metadata["partitions"] == 3
    assert node.description is not None
    assert "`by_town` is published" in node.description


def test_a_source_over_the_topic_comes_after_the_view(made: PublishedLake) -> None:
    """The topic is one asset, and the way from the events of one to the rows of the other is whole."""
    sql = "CREATE TABLE copy (town VARCHAR PRIMARY KEY, visits BIGINT) WITH (KAFKA_TOPIC = 'by_town', FORMAT = 'JSON');"
    run(sql, made.catalog(), pipeline="another")
    graph = build(made.settings).get_repository_def().asset_graph
    assert graph.get(TOPIC).parent_keys == {dg.AssetKey(["changelogs", "by_town__changelog"])}
    assert graph.get(dg.AssetKey(["logs", "copy__log"])).parent_keys == {TOPIC}


def test_what_was_published_and_what_waits_is_told_once(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    topics = ChangelogTopics(made.settings, made.catalog().definitions())
    assert told(topics)["by_town.topic"] == {}, "nothing yet"
    made.epoch(duckdb_engine)
    published = made.publish("by_town")
    first = {"published version": published.version, "published rows": 3, "versions behind": 0}
    assert told(topics) == {"by_town.topic": first}
    assert told(topics) == {}
    made.epoch(duckdb_engine)
    assert told(topics) == {"by_town.topic": {**first, "versions behind": 1}}


def test_brokers_that_do_not_answer_are_asked_once(
    made: PublishedLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Six views are published there, and each try would wait."""
    asked = []

    def silent(view: View, *_: object) -> TopicStanding:
        asked.append(view.name)
        raise SourceUnavailable("the brokers do not answer")

    monkeypatch.setattr(assets, "topic_standing", silent)
    assert told(ChangelogTopics(made.settings, made.catalog().definitions())) == {}
    assert len(asked) == 1
    assert "do not answer" in caplog.text


def test_a_topic_that_does_not_read_back_hides_no_other(
    made: PublishedLake, duckdb_engine: DuckDBEngine, caplog: pytest.LogCaptureFixture
) -> None:
    made.epoch(duckdb_engine)
    made.publish("by_both")
    LocalLog(made.lake).ensure_topic("by_town")
    LocalLog(made.lake).produce("by_town", [Record(b"1", b"{}", 0, ((POSITION, b"?"),))])
    found = told(ChangelogTopics(made.settings, made.catalog().definitions()))
    assert found["by_both.topic"]["versions behind"] == 0
    assert "by_town.topic" not in found
    assert "'by_town'" in caplog.text


def test_health_checks_observe_the_topics(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    made.epoch(duckdb_engine)
    made.publish("by_town")
    checks = {dg.AssetCheckKey(dg.AssetKey(["projections", "by_town"]), "late_rows")}
    everything = build(made.settings).get_repository_def().get_implicit_global_asset_job_def()
    job = everything.get_subset(asset_selection=set(), asset_check_selection=checks)
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance).success
        [found] = instance.fetch_observations(TOPIC, limit=10).records
    assert found.asset_observation is not None
    assert found.asset_observation.metadata["versions behind"].value == 0


def test_the_progress_of_a_stream_tells_it_too(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    made.epoch(duckdb_engine)
    made.publish("by_town")
    me = process(os.getpid())
    assert me is not None
    beat = Heartbeat("tests", "continuous", me, 1, 1, None, None, 0, {}, {}, ())
    with dg.DagsterInstance.ephemeral() as instance:
        telling = Told().telling(instance, made.settings, [])
        events = list(Progress(made.settings, [], {}, made.catalog().definitions(), telling).events(beat))
    assert TOPIC in {each.asset_key for each in events}
