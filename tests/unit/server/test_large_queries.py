"""Queries that programs write, over HTTP and PostgreSQL's protocol: answered, or refused with a type."""

from __future__ import annotations

from pathlib import Path
from threading import current_thread
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from strandline.jobs.serve.subscription import Subscription, subscription
from strandline.jobs.server.state import hub
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.sql.size import QUERY_CHARACTERS
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


@pytest.mark.parametrize(
    ("path", "member", "end"),
    [
        ("/v1/query", "sql", ""),
        ("/query", "ksql", ";"),
        ("/query", "ksql", " EMIT CHANGES;"),
        ("/query-stream", "sql", " EMIT CHANGES;"),
        ("/ksql", "ksql", ";"),
    ],
)
def test_a_text_that_is_too_long_is_refused_unread(client: TestClient, path: str, member: str, end: str) -> None:
    found = client.post(path, json={member: f"SELECT town FROM by_town WHERE visits {' ' * QUERY_CHARACTERS}> 1{end}"})
    assert (found.status_code, found.json()["code"]) == (400, "sql.not_supported")
    assert "characters" in found.json()["message"]


def test_a_subscription_is_planned_beside_the_event_loop(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []

    def noted(*arguments: Any) -> Subscription:
        places.append(current_thread().name)
        return subscription(*arguments)

    monkeypatch.setattr(hub, "subscription", noted)
    pushed = {"ksql": "SELECT town, visits + 17 AS x FROM by_town EMIT CHANGES LIMIT 0;"}
    assert client.post("/query", json=pushed).status_code == 200
    assert client.get("/v1/views/by_town/changes?where=visits%3E17&limit=0").status_code == 200
    assert [name.startswith("asyncio_") for name in places] == [True, True]


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
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="characters"):
            connection.execute(f"SELECT 1{' ' * QUERY_CHARACTERS}".encode())
        assert connection.execute("SELECT 1").fetchone() == (1,)
