"""ksqlDB's REST shape: names in upper case, a header and rows, an answer for each insert."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.model.tables import TOMBSTONE
from strandline.jobs.server.state.hub import Hub
from tests.support.served_lake import ServedLake
from tests.support.server_of import server_of
from tests.support.waiting import wait_until

ROME = "SELECT town, visits, n FROM BY_TOWN WHERE TOWN = 'Rome';"


def lines(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


def without_id(header: object) -> dict[str, Any]:
    """A header but for the id of its query."""
    assert isinstance(header, dict)
    inner = header.get("header", header)
    assert re.fullmatch(r"query_[0-9a-f]{32}", inner.pop("queryId"))
    return header


def hub(client: TestClient) -> Hub:
    return server_of(client).hub


def test_query_gives_a_header_and_rows(client: TestClient) -> None:
    header, *rows = client.post("/query", json={"ksql": ROME, "streamsProperties": {}}).json()
    assert [without_id(header), *rows] == [
        {"header": {"schema": "`TOWN` STRING KEY, `VISITS` BIGINT, `N` BIGINT"}},
        {"row": {"columns": ["Rome", 2, 5]}},
    ]


@pytest.mark.parametrize(("limit", "rows", "end"), [("LIMIT 1", 1, "Limit Reached"), ("LIMIT 9", 4, "Query Completed")])
def test_the_answer_about_a_stream_says_why_it_ends(client: TestClient, limit: str, rows: int, end: str) -> None:
    found = client.post("/query", json={"ksql": f"SELECT id FROM visits {limit};"}).json()
    assert without_id(found[0]) == {"header": {"schema": "`ID` BIGINT"}}
    assert (len(found) - 2, found[-1]) == (rows, {"finalMessage": end})


def test_types_of_every_kind(client: TestClient) -> None:
    sql = "SELECT tags, opens, CAST(1.5 AS DECIMAL(38, 30)) AS d, STRUCT(a := 1) AS `S` FROM places;"
    header, row = client.post("/query", json={"ksql": sql}).text.strip("[]").split(",\n")
    schema = "`TAGS` MAP<STRING, INTEGER>, `OPENS` TIME, `D` DECIMAL(38, 30), `S` STRUCT<`A` INTEGER>"
    assert without_id(json.loads(header)) == {"header": {"schema": schema}}
    assert "1.500000000000000000000000000000" in row


def test_query_stream_gives_lines(client: TestClient) -> None:
    header = {"columnNames": ["TOWN", "VISITS", "N"], "columnTypes": ["STRING", "BIGINT", "BIGINT"]}
    first, row = lines(client.post("/query-stream", json={"sql": ROME}).text)
    assert (without_id(first), row) == (header, ["Rome", 2, 5])


@pytest.mark.parametrize("sql", [ROME, "SELECT town, visits, n FROM by_town WHERE town || '' = 'Rome';"])
def test_query_stream_gives_what_is_accepted(client: TestClient, sql: str) -> None:
    def found(accept: str, body: dict[str, Any]) -> Any:
        answer = client.post("/query-stream", json=body, headers={"Accept": accept})
        assert answer.headers["content-type"].partition(";")[0] == accept.partition(";")[0]
        return answer.json()

    first, *rows = found("application/json;q=0.9, */*", {"sql": sql})
    assert (first["columnNames"], rows) == (["TOWN", "VISITS", "N"], [["Rome", 2, 5]])
    push = {"sql": "SELECT * FROM by_town EMIT CHANGES LIMIT 2;", "properties": EARLIEST}
    first, *rows = found("application/json", push)
    assert (first["columnNames"], len(rows)) == (["TOWN", "VISITS", "N"], 2)
    streamed = client.post(
        "/query-stream", json={"sql": sql}, headers={"Accept": "application/vnd.ksql.v1+json"}
    ).json()
    same = client.post("/query", json={"ksql": sql}).json()
    assert [without_id(streamed[0]), *streamed[1:]] == [without_id(same[0]), *same[1:]]
    assert lines(client.post("/query-stream", json={"sql": sql}, headers={"Accept": "*/*"}).text)[1:] == [
        ["Rome", 2, 5]
    ]


def test_inserts_stream_answers_each_row(client: TestClient) -> None:
    body = '{"target": "VISITS"}\n{"ID": 70, "TOWN": "Bonn", "N": 1}\n{"ID": "x"}\n'
    first, second = lines(client.post("/inserts-stream", content=body).text)
    assert first == {"status": "ok", "seq": 0}
    assert isinstance(second, dict)
    assert (second["status"], second["code"]) == ("error", "source.encode_failed")


def test_what_is_no_request(client: TestClient) -> None:
    assert client.post("/inserts-stream", content=b"").status_code == 400
    assert client.post("/inserts-stream", content=b"[1]").status_code == 400
    assert client.post("/query", json={"sql": ROME}).status_code == 400
    assert client.post("/query", json={"ksql": "SELECT * FROM by_town;", "streamsProperties": 1}).status_code == 400
    assert client.post("/query", json={"ksql": "DROP TABLE by_town;"}).status_code == 400
    grouped = client.post("/query", json={"ksql": "SELECT COUNT(*) FROM by_town EMIT CHANGES;"})
    assert (grouped.status_code, grouped.json()["code"]) == (400, "sql.not_supported")


def test_a_subscription_that_takes_nothing_leaves_no_feed(client: TestClient) -> None:
    """Each feed is a thread and a DuckDB."""
    body = {"ksql": "SELECT town FROM by_town WHERE visits = 77 EMIT CHANGES LIMIT 0;"}
    assert client.post("/query", json=body).status_code == 200
    assert client.get("/v1/views/by_town/changes?as_of=999&where=visits%20%3D%2078").status_code == 410
    assert hub(client).feeds() == []


EARLIEST = {"ksql.streams.auto.offset.reset": "earliest"}


def test_a_push_query_sends_the_rows_that_are_there_then_ends_at_its_limit(client: TestClient) -> None:
    sql = "SELECT town, visits FROM by_town WHERE town <> 'Oslo' EMIT CHANGES LIMIT 2;"
    first, *found = client.post("/query", json={"ksql": sql, "streamsProperties": EARLIEST}).json()
    assert [without_id(first), *found] == [
        {"header": {"schema": "`TOWN` STRING, `VISITS` BIGINT"}},
        {"row": {"columns": ["Rome", 2]}},
        {"row": {"columns": ["a/b ü", 1]}},
        {"finalMessage": "Limit Reached"},
    ]
    header = {"columnNames": ["TOWN", "VISITS"], "columnTypes": ["STRING", "BIGINT"]}
    streamed = client.post("/query-stream", json={"sql": sql, "properties": EARLIEST})
    first, *found = lines(streamed.text)
    assert [without_id(first), *found] == [header, ["Rome", 2], ["a/b ü", 1]]


def test_a_push_query_of_no_rows_ends_at_once(client: TestClient) -> None:
    found = client.post("/query", json={"ksql": "SELECT n FROM by_town EMIT CHANGES LIMIT 0;"}).json()
    assert (without_id(found[0]), found[1:]) == (
        {"header": {"schema": "`N` BIGINT"}},
        [{"finalMessage": "Limit Reached"}],
    )
    assert client.get("/v1/views/by_town/changes?limit=0").text == ""


def test_a_push_query_from_the_latest_sends_changes_and_tombstones(client: TestClient, served: ServedLake) -> None:
    sql = "SELECT name, opens FROM places WHERE opens > '01:00:00' EMIT CHANGES LIMIT 2;"
    with ThreadPoolExecutor(1) as beside, served.duckdb_engine() as duckdb_engine:
        asked = beside.submit(client.post, "/query", json={"ksql": sql})
        wait_until(lambda: hub(client).subscribers == 1, "nobody subscribed")
        for row in ({"name": "Rome", "tags": None, "opens": 7_200_000}, {"name": "Rome", TOMBSTONE: True}):
            served.append("places", [row])
            served.refresh(duckdb_engine)
        found = asked.result().json()
    assert found[1:] == [
        {"row": {"columns": ["Rome", "02:00:00.000"]}},
        {"row": {"columns": ["Rome", None], "tombstone": True}},
        {"finalMessage": "Limit Reached"},
    ]


def test_a_push_query_without_the_key_says_which_row_went(client: TestClient, served: ServedLake) -> None:
    """A row of ksqlDB's answer has a place for what is new alone."""
    with ThreadPoolExecutor(1) as beside, served.duckdb_engine() as duckdb_engine:
        asked = beside.submit(client.post, "/query", json={"ksql": "SELECT opens FROM places EMIT CHANGES LIMIT 3;"})
        wait_until(lambda: hub(client).subscribers == 1, "nobody subscribed")
        for row in ({"opens": 0}, {"opens": 1}, {TOMBSTONE: True}):
            served.append("places", [{"name": "Lima", **row}])
            served.refresh(duckdb_engine)
        found = asked.result().json()
    assert found[1:] == [
        {"row": {"columns": ["00:00:00.000"]}},
        {"row": {"columns": ["00:00:00.001"], "retracted": ["00:00:00.000"]}},
        {"row": {"columns": [None], "tombstone": True, "retracted": ["00:00:00.001"]}},
        {"finalMessage": "Limit Reached"},
    ]


@pytest.mark.parametrize("columns", ["visits", "town"])
def test_lines_that_could_not_say_which_row_went_are_refused(client: TestClient, columns: str) -> None:
    sql = f"SELECT {columns} FROM by_town EMIT CHANGES LIMIT 1;"
    found = client.post("/query-stream", json={"sql": sql, "properties": EARLIEST})
    assert (found.status_code, "which row of 'by_town' is gone" in found.json()["message"]) == (400, True)


def test_columns_that_nobody_named_have_ksqldbs_names(client: TestClient) -> None:
    sql = "SELECT visits + 1, UCASE(town) FROM by_town WHERE town = 'Rome'"
    expected = "`KSQL_COL_0` BIGINT, `KSQL_COL_1` STRING"
    assert client.post("/query", json={"ksql": f"{sql};"}).json()[0]["header"]["schema"] == expected
    pushed = client.post("/query", json={"ksql": f"{sql} EMIT CHANGES LIMIT 0;"})
    assert pushed.json()[0]["header"]["schema"] == expected


def test_each_line_of_a_push_query_is_whole_when_it_comes(client: TestClient) -> None:
    """A reader of lines would otherwise have every row when the next one comes."""
    body = {"ksql": "SELECT * FROM by_town EMIT CHANGES LIMIT 2;", "streamsProperties": EARLIEST}
    text = client.post("/query", json=body).text
    assert [line[-2:] for line in text.splitlines()] == ["},", "},", "},", "}]"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/query", {"ksql": "SELECT * FROM by_town EMIT CHANGES;", "streamsProperties": EARLIEST}),
        ("/query-stream", {"sql": "SELECT * FROM by_town EMIT CHANGES;", "properties": EARLIEST}),
    ],
)
def test_whoever_has_the_id_of_a_push_query_ends_it(client: TestClient, path: str, body: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(client.post, path, json=body)
        known = server_of(client).push_queries
        wait_until(lambda: hub(client).subscribers == 1, "nobody subscribed")
        (query_id,) = known
        assert client.post("/close-query", json={"queryId": query_id}).status_code == 200
        text = asked.result().text
    first = text.splitlines()[0]
    assert query_id in first
    if path == "/query":
        assert json.loads(text)[-1] == {"finalMessage": "Query Completed"}
    wait_until(lambda: hub(client).subscribers == 0, "it goes on")
    assert known == {}
    found = client.post("/close-query", json={"queryId": query_id})
    assert (found.status_code, found.json()["error_code"]) == (400, 40000)


def test_errors_have_ksqldbs_members_too(client: TestClient) -> None:
    found = client.post("/query", json={"ksql": "SELECT * FROM nowhere;"})
    assert found.status_code == 400
    told = found.json()
    assert (told["@type"], told["error_code"], told["code"]) == ("statement_error", 40001, "sql.unknown_name")
    assert "nowhere" in told["message"]
    found = client.post("/query", content=b"[]")
    assert (found.json()["@type"], found.json()["error_code"]) == ("generic_error", 40000)
