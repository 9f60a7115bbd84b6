"""One server with a port for PostgreSQL's clients, for all tests of this folder, over the lake of the folder above."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.terms import QueryLimits
from strandline.jobs.server.state.access import ServerOptions
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.server.conftest import DEFINITIONS

TOWNS = ("Rome", "Oslo", "a/b ü", "Rome", "Rome", "Lima", "Oslo", "Rome", "Oslo", "Lima")
"""The towns of ten visits, so that five visits side by side make 100,000 rows."""
LIMITS = QueryLimits(seconds=PATIENCE_SECONDS, memory_bytes=256 << 20, rows=100_000, answer_bytes=8 << 20)
ALL_ROWS = "SELECT v0.id, v4.town FROM visits v0" + "".join(f" JOIN visits v{n} ON v{n}.n > 0" for n in range(1, 5))


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("postgres")
    served = ServedLake(load_settings(lake=folder / "lake"), DEFINITIONS)
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": number, "town": town, "n": number + 1} for number, town in enumerate(TOWNS)])
        served.append("places", [{"name": "Rome", "tags": [("hot", 1)], "opens": 34_500_250}])
        served.refresh(duckdb_engine)
    options = ServerOptions(folder / "server", limits=LIMITS, queries=2, body_bytes=1 << 20)
    with postgres_server(served.settings, options) as address:
        yield address


@pytest.fixture
def session(address: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection
