"""SELECTs of keys: a replica answers them as the query processes do, on every surface, and nothing but them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.shape import shape_of
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.server.state.by_key import KeyedQueries
from tests.support.served_lake import ServedLake
from tests.support.server_of import server_of
from tests.support.waiting import wait_until

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n INT, day DATE, at TIMESTAMP, x DECIMAL(10, 2), f DOUBLE,
        b BOOLEAN) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE places (name VARCHAR PRIMARY KEY, tags MAP<VARCHAR, INT>, opens TIME, raw BYTES)
        WITH (KAFKA_TOPIC = 'places');
    CREATE TABLE by_id AS SELECT id, town, COUNT(*) AS visits, MAX(n) AS n, MAX(day) AS day, MAX(at) AS at, SUM(x) AS x,
        SUM(f) AS f, LATEST_BY_OFFSET(b) AS b FROM visits GROUP BY id, town;
    CREATE TABLE by_day AS SELECT day, at, b, COUNT(*) AS visits FROM visits GROUP BY day, at, b;
    CREATE TABLE hourly AS SELECT town, WINDOWSTART AS windowstart, WINDOWEND AS windowend, COUNT(*) AS visits
        FROM visits WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY town;
"""
TABLES = ("by_id", "by_day", "hourly", "places")

KEYED = (
    "SELECT * FROM by_id WHERE id = 1 AND town = 'Rome'",
    "select visits, town AS t from by_id b where town = 'Rome' and b.id = 1;",
    "SELECT town, town, id FROM by_id WHERE 1 = id AND 'Oslo' = town",
    "SELECT * FROM by_id WHERE id IN (3, 1, -2, 1, 99) AND town IN ('Rome', 'Oslo', 'it''s')",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND town IN ('Rome', 'Oslo') LIMIT 20",
    "SELECT * FROM by_id WHERE id = -2 AND town = 'it''s'",
    "SELECT * FROM by_id WHERE (id = (-2)) AND (town = 'it''s')",
    "SELECT * FROM by_id WHERE id = CAST(1 AS BIGINT) AND town = 'Rome'",
    "SELECT id FROM by_id WHERE id = 9000000000000 AND town = 'Rome'",
    "SELECT * FROM by_id WHERE id = 1",
    "SELECT * FROM by_id WHERE id = 1 AND n > 1 AND n <= 5 AND n <> 3 AND NOT n = 4",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND n BETWEEN 1 AND 2",
    "SELECT * FROM by_id WHERE id = 4 AND n IS NULL AND town = 'Pisa'",
    "SELECT * FROM by_id WHERE id = 4 AND town = 'Pisa' AND n > 0",
    "SELECT * FROM by_id WHERE id = 4 AND town = 'Pisa' AND n NOT IN (1, 2)",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND n IN (1, 2) AND day IS NOT NULL",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND day > '2024-05-01' AND at <= '2024-05-03 00:00:00'",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND day = DATE '2024-05-02'",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND f > 1 AND x > 1",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND b = TRUE",
    "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND town > 'P'",
    "SELECT * FROM by_id WHERE id = 1 AND id = 2 AND town = 'Rome'",
    "SELECT * FROM by_day WHERE day = '2024-05-02' AND at = '2024-05-02 10:00:00.5' AND b = TRUE",
    "SELECT * FROM by_day WHERE day = CAST('2024-05-02' AS DATE)",
    "SELECT visits, windowstart FROM hourly WHERE town = 'Rome'",
    "SELECT * FROM hourly WHERE town = 'Rome' AND windowstart >= 1714521600000 AND windowend > 5",
    "SELECT * FROM places WHERE name = 'Rome'",
    "SELECT * FROM places WHERE name = '2024-05-01'",
)
"""Answered by a replica."""
OTHERS = (
    "SELECT * FROM by_id",
    "SELECT * FROM by_id WHERE town = 'Rome'",
    "SELECT * FROM by_id WHERE id = 1 OR id = 2",
    "SELECT id + 1 AS id FROM by_id WHERE id = 1",
    "SELECT LEN(LPAD(town, 2000, 'x')) FROM by_id WHERE id = 1",
    "SELECT * FROM by_id WHERE id = 1 AND LEN(town) > 3",
    "SELECT * FROM by_id WHERE id = 1 + 1",
    "SELECT * FROM by_id WHERE id = n",
    "SELECT * FROM by_id WHERE id = 1.0",
    "SELECT * FROM by_id WHERE id = 99999999999999999999",
    "SELECT * FROM by_id WHERE id = 1 AND n > 9999999999",
    "SELECT * FROM by_id WHERE id = 1 AND x = 1.5",
    "SELECT * FROM by_id WHERE id = NULL",
    "SELECT COUNT(*) FROM by_id WHERE id = 1",
    "SELECT DISTINCT id FROM by_id WHERE id = 1",
    "SELECT * FROM by_id WHERE id = 1 ORDER BY town",
    "SELECT * FROM by_id WHERE id = (SELECT 1)",
    "SELECT * FROM by_id a JOIN hourly h ON a.town = h.town WHERE a.id = 1",
    "SELECT * FROM visits WHERE id = 1",
    "SELECT * FROM by_id WHERE id = 1; SELECT 1",
    "SELECT * FROM by_id VERSION AS OF 1 WHERE id = 1",
    "SELECT * FROM by_id AS OF VERSION 1 WHERE id = 1",
    "SELECT * FROM table_changes('by_id', 0, 1) WHERE id = 1",
    "SELECT * FROM nowhere WHERE id = 1",
    "SELECT nothing FROM by_id WHERE id = 1",
    "SELECT * FROM by_id WHERE id = 'x'",
    "SELECT * FROM by_id WHERE id = 1 -- and more",
)
"""Answered, or refused, by a query process."""


_ID = re.compile(r'"queryId": ?"query_[0-9a-f]+",?')


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    served = ServedLake(load_settings(lake=tmp_path_factory.mktemp("by_key") / "lake"), DEFINITIONS)
    rows = [
        (1, "Rome", 1, "2024-05-01", "1.50", 1.5, True),
        (1, "Rome", 4, "2024-05-02", "0.25", 2.5, False),
        (1, "Oslo", 2, "2024-05-02", "2.00", float("inf"), True),
        (2, "Rome", 3, "2024-05-03", "3.00", -0.5, True),
        (3, "Oslo", 5, "2024-05-02", "9.99", 7.0, False),
        (-2, "it's", 6, None, None, None, None),
        (4, "Pisa", None, None, "1.00", 3.0, True),
    ]
    names = ("id", "town", "n", "day", "x", "f", "b")
    made = []
    for row in rows:
        each: dict[str, object] = dict(zip(names, row, strict=True))
        each["day"] = dt.date.fromisoformat(str(row[3])) if row[3] else None
        each["at"] = dt.datetime.fromisoformat(f"{row[3]}T10:00:00.500000+00:00") if row[3] else None
        each["x"] = Decimal(str(row[4])) if row[4] else None
        made.append(each)
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", made)
        tags = {"tags": [("hot", 1)], "opens": 34_500_250, "raw": b"\x00\xff"}
        served.append("places", [{"name": "Rome", **tags}, {"name": "2024-05-01", **tags}])
        served.refresh(duckdb_engine)
    options = ServerOptions(tmp_path_factory.mktemp("server"), queries=1)
    with TestClient(application(served.settings, options), "http://127.0.0.1") as client:
        for name in TABLES:
            client.get(f"/v1/views/{name}/rows?limit=1")
        wait_until(lambda: client.get("/ready").json()["live"] == len(TABLES), "the replicas do not follow")
        yield client


def by_key(client: TestClient) -> float:
    """How many answers replicas have given."""
    found = client.get("/metrics").text.splitlines()
    lines = [line for line in found if line.startswith("strandline_lookups_total") and 'by="replica"' in line]
    return sum(float(line.split()[-1]) for line in lines)


def body(client: TestClient, text: str) -> dict[str, Any]:
    found = client.post("/v1/query", json={"sql": text}).json()
    for name in ("freshness_ms", "staleness_ms", "behind_records"):
        found.pop(name, None)
    return dict(found)


async def nothing(*_arguments: object, **_options: object) -> None:
    """The answer of whoever answers nothing."""


@pytest.mark.parametrize("text", KEYED)
def test_a_replica_answers_as_a_query_process_does(
    client: TestClient, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = by_key(client)
    for _ in range(2):  # the plan is made, and then it is known
        found = body(client, text)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(KeyedQueries, "find", nothing)
            expected = body(client, text)
        if "LIMIT" in text:  # in any order
            found["rows"], expected["rows"] = (sorted(map(str, each["rows"])) for each in (found, expected))
        assert found == expected
    assert "rows" in found, found
    assert by_key(client) == before + 2


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_more_than_keys_goes_to_a_query_process(client: TestClient, text: str) -> None:
    before = by_key(client)
    client.post("/v1/query", json={"sql": text})
    assert by_key(client) == before


def test_one_plan_serves_all_constants(client: TestClient) -> None:
    shapes = {shape_of(f"SELECT * FROM by_id WHERE id IN ({', '.join(map(str, ids))})") for ids in ((1,), (-2, 7, 9))}
    assert len({shape.text for shape in shapes if shape is not None}) == 1
    known = server_of(client).by_key
    body(client, "SELECT visits FROM by_id WHERE id = 1 AND town = 'Rome'")
    before = len(known._prepared)
    assert body(client, "SELECT visits FROM by_id WHERE id = 2 AND town = 'Rome'")["rows"] == [{"visits": 1}]
    assert len(known._prepared) == before


def test_ksqldbs_clients_are_answered_alike(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for route, member in (("/query", "ksql"), ("/query-stream", "sql")):
        for text in (
            "SELECT * FROM BY_ID WHERE ID = 1 AND TOWN = 'Rome';",
            "SELECT TAGS, OPENS FROM PLACES WHERE NAME = 'Rome';",
        ):
            before = by_key(client)
            found = client.post(route, json={member: text}).text
            assert by_key(client) == before + 1
            with monkeypatch.context() as elsewhere:
                elsewhere.setattr(KeyedQueries, "find", nothing)
                expected = client.post(route, json={member: text}).text
            assert _ID.sub("", found) == _ID.sub("", expected)


def test_a_limit_is_kept(client: TestClient) -> None:
    """Any of the rows may come."""
    found = body(client, "SELECT * FROM by_id WHERE id IN (1, 2, 3) AND town IN ('Rome', 'Oslo') LIMIT 2")["rows"]
    assert len(found) == 2


def test_at_least_is_met_or_waited_for(client: TestClient) -> None:
    text = "SELECT visits FROM by_id WHERE id = 2 AND town = 'Rome'"
    version = client.post("/v1/query", json={"sql": text}).json()["versions"]["by_id"]
    found = client.post("/v1/query", json={"sql": text, "at_least": {"by_id": version}})
    assert found.json()["rows"] == [{"visits": 1}]
    assert (
        client.post("/v1/query", json={"sql": text, "at_least": {"by_id": version + 1}, "wait_ms": 0}).status_code
        == 503
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE a = E'x'",
        "SELECT * FROM t WHERE a - 5 = 3",
        "SELECT * FROM t WHERE a -5 = 3",
        "SELECT * FROM t WHERE f(a) = 3",
        "SELECT * FROM t WHERE a = $1",
        "SELECT * FROM t WHERE a = 1 /* b */",
        "INSERT INTO t SELECT * FROM t WHERE a = 1",
        f"SELECT {', '.join('a' for _ in range(2000))} FROM t WHERE a = 1",
        f"SELECT * FROM t WHERE a IN ({', '.join('1' for _ in range(20_000))})",
        "",
    ],
)
def test_what_is_not_plain_has_no_shape(text: str) -> None:
    assert shape_of(text) is None
