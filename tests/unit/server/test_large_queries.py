"""Queries that programs write, over HTTP and PostgreSQL's protocol: answered, or refused with a type."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from fastapi.testclient import TestClient

from strandline.jobs.server.access.options import ServerOptions
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake
from tests.unit.sql.test_size import REFUSED

EQUALITIES = "SELECT town FROM by_town WHERE " + " OR ".join(f"visits = {number}" for number in range(1_000))
HERE = [
    text.replace("sales", "by_town").replace("shop", "town").replace("qty", "visits") for text, _ in REFUSED.values()
]


@pytest.mark.parametrize("number", range(len(HERE)), ids=list(REFUSED))
def test_over_http(client: TestClient, number: int) -> None:
    found = client.post("/v1/query", json={"sql": HERE[number]})
    assert (found.status_code, found.json()["code"]) == (400, "sql.not_supported")
    pushed = client.post("/query", json={"ksql": f"{HERE[number]} EMIT CHANGES;"})
    assert (pushed.status_code, pushed.json()["code"]) == (400, "sql.not_supported")


def test_equalities_are_answered(client: TestClient) -> None:
    found = client.post("/v1/query", json={"sql": EQUALITIES})
    assert found.status_code == 200
    assert {row["town"] for row in found.json()["rows"]} == {"Rome", "Oslo", "a/b ü"}


def test_over_postgres(client: TestClient, served: ServedLake, tmp_path: Path) -> None:
    del client  # the lake has its rows
    with (
        postgres_server(served.settings, ServerOptions(tmp_path / "server", queries=1)) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        assert len(connection.execute(EQUALITIES.encode()).fetchall()) == 3
        for text in HERE:
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                connection.execute(text.encode())
        assert connection.execute("SELECT 1").fetchone() == (1,)
