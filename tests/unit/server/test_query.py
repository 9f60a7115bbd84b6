"""POST /v1/query: any SELECT at one cut, and nothing that hangs the server, fills it, or reads beside the lake."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from strandline.jobs.server.http.answers import ARROW
from strandline.jobs.session.interpreter import Interpreter
from tests.support.served_lake import ServedLake
from tests.support.server_of import server_of
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.unit.server.conftest import LIMITS

WAIT_MS = int(PATIENCE_SECONDS * 1000)


def product(times: int) -> str:
    """FROM a product of the four events with themselves."""
    return " ".join(["visits v0", *(f"JOIN visits v{number} ON v{number}.n > 0" for number in range(1, times))])


def ask(client: TestClient, sql: str) -> tuple[int, dict[str, Any]]:
    found = client.post("/v1/query", json={"sql": sql})
    return found.status_code, found.json()


def test_a_join_says_the_version_of_each_table(client: TestClient) -> None:
    status, body = ask(client, "SELECT t.town, i.id FROM by_town t JOIN by_id i ON t.town = i.town WHERE i.id = 1")
    assert (status, body["rows"]) == (200, [{"town": "Oslo", "id": 1}])
    assert set(body["versions"]) == {"by_town", "by_id"}


def test_a_plain_view_is_its_query(client: TestClient, served: ServedLake) -> None:
    session = Interpreter(served.settings)
    list(session.run("CREATE VIEW busy AS SELECT town, visits FROM by_town WHERE visits > 1"))
    wait_until(lambda: ask(client, "SELECT * FROM busy")[0] == 200, "the server does not see the plain view")
    assert ask(client, "SELECT town FROM busy WHERE visits < 9")[1]["rows"] == [{"town": "Rome"}]
    list(session.run("DROP VIEW busy"))


def test_arrow(client: TestClient) -> None:
    found = client.post("/v1/query", json={"sql": "SELECT COUNT(*) AS n FROM by_town"}, headers={"accept": ARROW})
    assert pa.ipc.open_stream(found.content).read_all().num_rows == 1


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        (f"SELECT COUNT(*) FROM {product(3)}", 200, None),
        (f"SELECT v0.n FROM {product(7)}", 413, "serve.too_large"),
        ("SELECT * FROM nothing", 404, "sql.unknown_name"),
        ("SELECT FROM", 400, "sql.syntax"),
        ("SELECT * FROM by_town; SELECT * FROM by_town", 400, "serve.request_refused"),
        ("DROP TABLE by_town", 400, "serve.request_refused"),
        ("INSERT INTO visits VALUES (1, 'a', 1)", 400, "serve.request_refused"),
        ("SELECT * FROM by_town EMIT CHANGES", 400, "serve.request_refused"),
        ("SELECT * FROM read_csv('/etc/passwd')", 400, "sql.not_supported"),
        ("SELECT * FROM '/etc/passwd'", 404, "sql.unknown_name"),
    ],
)
def test_each_statement_ends_with_the_status_that_it_deserves(
    client: TestClient, sql: str, status: int, code: str | None
) -> None:
    found, body = ask(client, sql)
    assert (found, body.get("code")) == (status, code), body
    assert ask(client, "SELECT COUNT(*) AS n FROM places")[1]["rows"] == [{"n": 1}]


PADDED = "LPAD(town, 16000000, 'x')"
"""One is bounded; eight of them take seconds within a single row, where nothing interrupts them."""


@pytest.mark.parametrize(
    "sql", [f"SELECT LEN({' || '.join([PADDED] * 8)}) AS n FROM by_town", f"SELECT COUNT(*) FROM {product(18)}"]
)
def test_a_query_whose_time_is_over_is_ended(client: TestClient, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, and by the end of its process where nothing interrupts it; the next query is answered."""
    count = "SELECT COUNT(*) AS n FROM places"
    assert ask(client, count)[1]["rows"] == [{"n": 1}], "a process that has imported its libraries"
    with monkeypatch.context() as patched:
        patched.setattr(server_of(client).queries, "_limits", replace(LIMITS, seconds=0.1))
        found, body = ask(client, sql)
    assert (found, body.get("code")) == (408, "serve.time_limit"), body
    assert ask(client, count)[1]["rows"] == [{"n": 1}]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("EXPLAIN by_town", "stage 1 of 1"),
        ("EXPLAIN SELECT town, MAX(n) AS n FROM visits GROUP BY town;", "the query, as a view"),
        ("EXPLAIN MAINTENANCE by_town", "SELECT"),
    ],
)
def test_explain_answers_with_the_lines_of_the_plan(client: TestClient, sql: str, words: str) -> None:
    status, body = ask(client, sql)
    assert (status, body["versions"]) == (200, {})
    assert words in "\n".join(row["plan"] for row in body["rows"])
    found = client.post("/v1/query", json={"sql": sql}, headers={"accept": ARROW})
    assert pa.ipc.open_stream(found.content).read_all().to_pylist() == body["rows"]


def test_explain_of_what_is_not_there(client: TestClient) -> None:
    assert ask(client, "EXPLAIN nothing")[1]["code"] == "sql.unknown_name"
    assert ask(client, "EXPLAIN by_town; EXPLAIN by_id")[0] == 400


def test_the_answer_waits_for_what_at_least_names(client: TestClient, served: ServedLake) -> None:
    rows = {"rows": [{"id": 9, "town": "Lima"}]}
    body = {"sql": "SELECT t.trips FROM trips_to t LEFT JOIN by_town b ON t.town = b.town"}
    with served.duckdb_engine() as duckdb_engine:
        for count in range(1, 4):
            position = client.post("/v1/streams/trips", json=rows).json()["position"]
            behind = {**body, "at_least": {"trips_to": position, "by_town": 0}}
            early = client.post("/v1/query", json={**behind, "wait_ms": 10})
            assert (early.status_code, early.json()["code"], "retry-after" in early.headers) == (
                *(503, "serve.not_yet"),
                True,
            )
            served.ingest("trips")
            with ThreadPoolExecutor(1) as beside:
                waiting = beside.submit(client.post, "/v1/query", json={**behind, "wait_ms": WAIT_MS})
                served.refresh(duckdb_engine)
                found = waiting.result().json()
            assert found["rows"] == [{"trips": count}]
            below = {**body, "at_least": {"trips": found["versions"]["trips_to"] - 1}}
            assert client.post("/v1/query", json=below).status_code == 200


def test_a_cut_that_went_back_is_no_answer_to_at_least(client: TestClient, served: ServedLake) -> None:
    body = {"sql": "SELECT b.visits FROM by_town b JOIN by_id i ON b.town = i.town", "wait_ms": 10}
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 1, "town": "Oslo", "n": 1}])
        served.refresh(duckdb_engine, {"by_town"})
        head = client.get("/v1/views/by_town").json()["version"]
        assert client.post("/v1/query", json=body).json()["versions"]["by_town"] < head
        assert client.post("/v1/query", json={**body, "at_least": {"by_town": head}}).status_code == 503
        served.refresh(duckdb_engine)
        found = client.post("/v1/query", json={**body, "at_least": {"by_town": head}}).json()
    assert found["versions"]["by_town"] == head


def test_tables_are_followed_while_somebody_waits_for_them(client: TestClient, served: ServedLake) -> None:
    next_version = client.get("/v1/views/hourly").json()["version"] + 1
    body = {"sql": "SELECT visits FROM hourly", "at_least": {"hourly": next_version}, "wait_ms": WAIT_MS}
    followed = server_of(client).followed
    with ThreadPoolExecutor(1) as beside, served.duckdb_engine() as duckdb_engine:
        waiting = beside.submit(client.post, "/v1/query", json=body)
        wait_until(lambda: "hourly" in followed(), "nobody follows what is waited for")
        served.append("visits", [{"id": 3, "town": "Rome", "n": 1}])
        served.refresh(duckdb_engine, {"hourly"})
        assert waiting.result().status_code == 200
    assert "hourly" not in followed()


@pytest.mark.parametrize(
    "given", [{"at_least": 1}, {"at_least": {"by_town": None}}, {"at_least": {"by_town": "soon"}}, {"wait_ms": -1}]
)
def test_an_at_least_that_is_none_is_refused(client: TestClient, given: dict[str, object]) -> None:
    body = {"sql": "SELECT town FROM by_town", **given}
    assert client.post("/v1/query", json=body).status_code == 400


def test_at_least_of_a_table_that_the_query_does_not_read_is_refused(client: TestClient) -> None:
    body = {"sql": "SELECT town FROM by_town", "at_least": {"places": 0}}
    assert client.post("/v1/query", json=body).status_code == 400


def test_bodies_that_are_no_query(client: TestClient) -> None:
    assert client.post("/v1/query", content=b"{").status_code == 400
    assert client.post("/v1/query", json=[1]).status_code == 400
    assert client.post("/v1/query", json={"sql": 1}).status_code == 400
    assert client.post("/v1/query", content=b" " * (2 << 20)).status_code == 413


def test_a_query_that_nests_too_deeply_is_refused_and_costs_no_process(client: TestClient) -> None:
    for sql in (
        f"SELECT {' + '.join(['n'] * 4_000)} AS x FROM by_town",
        f"SELECT {'(' * 3_000}1{')' * 3_000} AS x FROM by_town",
    ):
        found = client.post("/v1/query", json={"sql": sql})
        assert (found.status_code, found.json()["code"]) == (400, "sql.not_supported")
