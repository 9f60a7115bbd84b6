"""Look-ups of one key in front of the framework: the answers of the route behind them, to every request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import hypothesis.strategies as st
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings

from strandline.jobs.server.app import application
from strandline.jobs.server.http.answers import ARROW
from strandline.jobs.server.http.rows import ROUTE, PointLookups, router
from strandline.jobs.server.state.access import ServerOptions
from tests.support.examples import SLOWNESS
from tests.support.served_lake import ServedLake
from tests.support.server_of import server_of
from tests.support.waiting import wait_until

DEFINITIONS = """
    CREATE TABLE things (
        id BIGINT PRIMARY KEY, label VARCHAR, good BOOLEAN, share DOUBLE, price DECIMAL(9, 2), day DATE, opens TIME,
        seen TIMESTAMP, raw BYTES, tags MAP<VARCHAR, INT>, past ARRAY<TIME>, at STRUCT<x INT, t TIME>, "odd ""name" INT
    ) WITH (KAFKA_TOPIC = 'things');
    CREATE TABLE by_label AS SELECT label, COUNT(*) AS n FROM things GROUP BY label;
    CREATE TABLE by_both AS SELECT label, good, COUNT(*) AS n FROM things GROUP BY label, good;
"""
ROWS: list[dict[str, Any]] = [
    {"id": 1, "label": 'a/b "ü" \u2028\\', "good": True, "share": 0.1, 'odd "name': 7},
    {"id": 2, "label": "", "good": False, "share": float("inf"), "tags": [("hot", 1)], "past": [34_500_250, None]},
    {"id": -3, "label": "plain", "share": -0.0, "at": {"x": 1, "t": 1_000}},
]
VIEWS = ("things", "by_label", "by_both")
KEYS = ("1", "2", "-3", "9", "+1", " 1", "1e0", "x", "", "plain", quote('a/b "ü" \u2028\\', safe=""), "plain/true", "/")


@pytest.fixture(scope="module")
def pointed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server whose views have replicas that answer."""
    from strandline.jobs.model.settings import load_settings

    served = ServedLake(load_settings(lake=tmp_path_factory.mktemp("lake")), DEFINITIONS)
    with served.duckdb_engine() as duckdb_engine:
        served.append("things", ROWS)
        served.refresh(duckdb_engine)
    app = application(served.settings, ServerOptions(tmp_path_factory.mktemp("server"), queries=0))
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:

        def live() -> bool:
            """Each view has a replica, and the server has looked how far its topics are."""
            told = [client.get(f"/v1/views/{view}/rows?limit=0").headers for view in VIEWS]
            measured = all("strandline-behind-records" in headers for headers in told)
            return measured and bool(client.get("/ready").json()["live"] == len(VIEWS))

        wait_until(live, lambda: client.get("/ready").json())
        yield client


def counted(client: TestClient) -> float:
    """Requests that the route or what stands before it has answered."""
    samples = (sample for metric in server_of(client).metrics.registry.collect() for sample in metric.samples)
    return sum(s.value for s in samples if s.name.endswith("seconds_count") and s.labels["route"] == ROUTE)


def answers(client: TestClient, path: str, headers: dict[str, str]) -> list[tuple[int, Any, dict[str, str]]]:
    """What stands before the route answers, and what the route answers: the query string sends a request to it."""
    found = [client.get(path, headers=headers), client.get(f"{path}?wait_ms=1", headers=headers)]
    return [(each.status_code, without_age(each.content), dict(sorted(each.headers.items()))) for each in found]


def without_age(body: bytes) -> bytes:
    return body.partition(b'"freshness_ms"')[0]


def alike(client: TestClient, path: str, headers: dict[str, str] | None = None) -> None:
    first, second = answers(client, path, headers or {})
    for _, _, found in (first, second):
        for name in ("strandline-freshness-ms", "strandline-staleness-ms", "content-length"):
            found.pop(name, None)
    assert first == second


@pytest.mark.parametrize("view", [*VIEWS, "nothing", "THINGS", "by%5Flabel"])
def test_the_answer_is_that_of_the_route(pointed: TestClient, view: str) -> None:
    for key in KEYS:
        alike(pointed, f"/v1/views/{view}/rows/{key}")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, *SLOWNESS])
@given(st.sampled_from(VIEWS), st.binary(max_size=12), st.sampled_from(["", "Bearer x", "Basic \xff"]))
def test_whatever_the_path_says_the_answer_is_that_of_the_route(
    pointed: TestClient, view: str, key: bytes, authorization: str
) -> None:
    headers = {"authorization": authorization} if authorization.isascii() and authorization else {}
    alike(pointed, f"/v1/views/{view}/rows/{quote(key)}", headers)


def test_a_row_of_every_type_does_not_reach_the_route(pointed: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [pointed.get(f"/v1/views/things/rows/{row['id']}?wait_ms=1").json()["row"] for row in ROWS]
    given: list[bool] = []
    answer = PointLookups.answer

    async def noted(self: PointLookups, scope: Any, send: Any) -> bool:
        given.append(await answer(self, scope, send))
        return given[-1]

    monkeypatch.setattr(PointLookups, "answer", noted)
    assert [pointed.get(f"/v1/views/things/rows/{row['id']}").json()["row"] for row in ROWS] == expected
    assert pointed.get("/v1/views/things/rows/77").status_code == 404
    assert given == [True] * 4
    assert pointed.get("/v1/views/things/rows/1", headers={"accept": ARROW}).headers["content-type"] == ARROW
    assert pointed.get("/v1/views/things/rows/1?columns=id").json()["row"] == {"id": 1}
    assert pointed.get("/v1/views/things/rows/x").status_code == 400
    assert given == [True] * 4 + [False] * 3


def test_it_is_measured_as_the_route_that_describes_it(pointed: TestClient) -> None:
    assert ROUTE in {getattr(route, "path", None) for route in router.routes}
    before = counted(pointed)
    pointed.get("/v1/views/things/rows/1")
    pointed.get("/v1/views/things/rows/1?wait_ms=1")
    assert counted(pointed) == before + 2
