"""Consistent cuts: whatever the versions that views stand at, what one query reads of them reflects one input."""

from __future__ import annotations

import random

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.consistent_snapshot import newest_snapshot, reflected
from strandline.jobs.serve.errors import NoConsistentSnapshot
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log
from strandline.state_store.layout import LakeLayout
from tests.support.examples import examples
from tests.support.on_disk import on_disk
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits, SUM(n) AS n FROM visits GROUP BY town;
    CREATE TABLE by_id AS SELECT id, COUNT(*) AS visits, SUM(n) AS n FROM visits GROUP BY id;
    CREATE MATERIALIZED VIEW by_count AS SELECT visits, SUM(n) AS n FROM by_town GROUP BY visits;
"""
VIEWS = ("by_town", "by_id", "by_count")
SUMS = "SELECT (SELECT SUM(n) FROM by_town) AS a, (SELECT SUM(n) FROM by_id) AS b, (SELECT SUM(n) FROM by_count) AS c"


@pytest.fixture
def served(settings: Settings) -> ServedLake:
    return ServedLake(settings, DEFINITIONS)


@pytest.mark.parametrize("seed", range(examples(2)))
def test_views_refreshed_in_any_order_are_read_at_one_version_of_their_input(served: ServedLake, seed: int) -> None:
    """After every step of a random history, three sums over the same events are equal, and as new as they can be."""
    chance = random.Random(seed)
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 0, "town": "a", "n": 1}])
        served.refresh(duckdb_engine)
        for step in range(12):
            if chance.random() < 0.5:
                served.append("visits", [{"id": step % 3, "town": chance.choice("abc"), "n": chance.randint(1, 9)}])
            else:
                served.refresh(duckdb_engine, chance.sample(VIEWS, chance.randint(1, 3)))
            assert_one_input(served.lake)
            ((a, b, c),) = rows(served, SUMS)
            assert a == b == c


def assert_one_input(lake: LakeLayout) -> None:
    cut = newest_snapshot((*VIEWS, "visits"), lake)
    standing = [found for found in cut.tables.values() if found is not None]
    of_visits = {found.versions.get("visits", -1) for found in standing if found.table != "visits"}
    at = cut.version("visits")
    # A view that was just made reflects nothing, as the log does in the version that made it.
    assert len({max(version, 0) for version in of_visits} | ({max(at, 0)} if at is not None else set())) <= 1


def test_a_table_that_is_ahead_is_read_as_it_was(served: ServedLake) -> None:
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 1, "town": "a", "n": 5}])
        served.refresh(duckdb_engine, VIEWS)
        served.append("visits", [{"id": 1, "town": "b", "n": 7}])
        served.refresh(duckdb_engine, ["by_town"])
    assert rows(served, "SELECT SUM(n) FROM by_town") == [(12,)]
    assert rows(served, "SELECT t.n, i.n FROM by_town t JOIN by_id i ON t.visits = i.visits") == [(5, 5)]
    assert rows(served, "SELECT COUNT(*), (SELECT SUM(n) FROM by_id) FROM visits") == [(1, 5)]


def test_a_version_that_is_gone_is_a_typed_error(served: ServedLake) -> None:
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 1, "town": "a", "n": 5}])
        served.refresh(duckdb_engine, VIEWS)
        served.append("visits", [{"id": 1, "town": "b", "n": 7}])
        served.refresh(duckdb_engine, ["by_town"])
    path = served.lake.table("by_town")
    for version in range(log.newest_version(path) or 0):
        on_disk(log.commit_file(path, version)).unlink()
    with pytest.raises(NoConsistentSnapshot, match="by_town"):
        rows(served, SUMS)
    assert newest_snapshot(["by_town"], served.lake).versions == {"by_town": log.newest_version(path)}


def test_a_view_that_never_ran_holds_nobody_back(served: ServedLake) -> None:
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 1, "town": "a", "n": 5}])
        served.refresh(duckdb_engine, ["by_town"])
    assert rows(served, "SELECT t.n, i.n FROM by_town t LEFT JOIN by_id i ON t.visits = i.visits") == [(5, None)]


def test_what_a_version_reflects_goes_down_to_the_topic(served: ServedLake) -> None:
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 1, "town": "a", "n": 5}, {"id": 2, "town": "a", "n": 6}])
        served.refresh(duckdb_engine, VIEWS)
    found = reflected(served.lake, "by_count", log.newest_version(served.lake.table("by_count")) or 0)
    assert found.versions.keys() == {"by_count", "by_town", "visits"}
    assert found.offsets["visits"].ends == {0: 2}
    assert found.event_time == served.last_event_time


def rows(served: ServedLake, text: str) -> list[tuple[object, ...]]:
    (result,) = Interpreter(served.settings).run(text)
    assert isinstance(result, Rows)
    return [tuple(row) for row in result.rows]
