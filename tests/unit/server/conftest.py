"""One server over one small lake for each test module: what it takes to start is its query process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.terms import QueryLimits
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE places (name VARCHAR PRIMARY KEY, tags MAP<VARCHAR, INT>, opens TIME) WITH (KAFKA_TOPIC = 'places');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits, SUM(n) AS n FROM visits GROUP BY town;
    CREATE TABLE by_id AS SELECT id, town, COUNT(*) AS visits FROM visits GROUP BY id, town;
    CREATE TABLE hourly AS SELECT town, WINDOWSTART AS windowstart, WINDOWEND AS windowend, COUNT(*) AS visits
        FROM visits WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY town;
    CREATE STREAM trips (id BIGINT KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'trips');
    CREATE TABLE trips_to AS SELECT town, COUNT(*) AS trips FROM trips GROUP BY town;
"""
# The time is for tests of that limit to shorten: what shall be answered may come as late as a slow machine gives it.
LIMITS = QueryLimits(seconds=PATIENCE_SECONDS, memory_bytes=256 << 20, rows=5_000, answer_bytes=4 << 20)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ServedLake:
    return ServedLake(load_settings(lake=tmp_path_factory.mktemp("served") / "lake"), DEFINITIONS)


@pytest.fixture(scope="module")
def client(served: ServedLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("server")
    with served.duckdb_engine() as duckdb_engine:
        towns = ("Rome", "Oslo", "a/b ü", "Rome")
        served.append("visits", [{"id": number, "town": town, "n": number + 1} for number, town in enumerate(towns)])
        served.append("places", [{"name": "Rome", "tags": [("hot", 1)], "opens": 34_500_250}])
        served.refresh(duckdb_engine)
    options = ServerOptions(folder, limits=LIMITS, queries=1, body_bytes=1 << 20, wait_seconds=PATIENCE_SECONDS)
    with TestClient(application(served.settings, options), "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client
