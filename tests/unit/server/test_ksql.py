"""ksqlDB's REST shape: names in upper case, a header and rows, an answer for each insert."""

from __future__ import annotations

import json

from fastapi.testclient import TestClient

ROME = "SELECT town, visits, n FROM BY_TOWN WHERE TOWN = 'Rome';"


def lines(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


def test_query_gives_a_header_and_rows(client: TestClient) -> None:
    found = client.post("/query", json={"ksql": ROME, "streamsProperties": {}})
    assert found.json() == [
        {"header": {"schema": "`TOWN` STRING, `VISITS` BIGINT, `N` BIGINT"}},
        {"row": {"columns": ["Rome", 2, 5]}},
    ]


def test_query_stream_gives_lines(client: TestClient) -> None:
    header = {"columnNames": ["TOWN", "VISITS", "N"], "columnTypes": ["STRING", "BIGINT", "BIGINT"]}
    assert lines(client.post("/query-stream", json={"sql": ROME}).text) == [header, ["Rome", 2, 5]]


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
    assert client.post("/query", json={"ksql": "SELECT * FROM by_town EMIT CHANGES;"}).status_code == 400
