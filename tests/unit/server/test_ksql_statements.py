"""What ksqlDB's clients ask before their first query: the server, its health, and what is defined."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient


def answers(client: TestClient, text: str) -> list[dict[str, Any]]:
    found = client.post("/ksql", json={"ksql": text, "streamsProperties": {}})
    assert found.status_code == 200, found.text
    made: list[dict[str, Any]] = found.json()
    return made


def named(found: list[dict[str, Any]]) -> list[str]:
    return sorted(each["name"] for each in found)


def test_the_server_says_what_it_is(client: TestClient) -> None:
    told = client.get("/info").json()["KsqlServerInfo"]
    assert set(told) == {"version", "kafkaClusterId", "ksqlServiceId", "serverStatus"}
    assert told["serverStatus"] == "RUNNING"
    health = client.get("/healthcheck")
    assert (health.status_code, health.json()["isHealthy"]) == (200, True)


def test_the_cluster_and_the_properties(client: TestClient) -> None:
    told = client.get("/v1/metadata").json()
    assert told["version"] == client.get("/info").json()["KsqlServerInfo"]["version"]
    assert told["clusterId"] == client.get("/v1/metadata/id").json()
    assert set(told["clusterId"]["scope"]["clusters"]) == {"kafka-cluster", "ksql-cluster"}
    ((host, status),) = client.get("/clusterStatus").json()["clusterStatus"].items()
    assert (host, status["hostAlive"]) == ("127.0.0.1", True)
    assert client.get("/is_valid_property/auto.offset.reset").json() is True
    refused = client.get("/is_valid_property/auto.offset")
    assert (refused.status_code, refused.json()["@type"]) == (400, "generic_error")


def test_every_query_has_one_sink_and_one_topic(client: TestClient) -> None:
    """ksqlDB's Java client refuses a list in which one has not."""
    (queries,) = answers(client, "LIST QUERIES;")
    assert queries["queries"]
    assert {(len(each["sinks"]), len(each["sinkKafkaTopics"])) for each in queries["queries"]} == {(1, 1)}


def test_streams_and_tables(client: TestClient) -> None:
    streams, tables = answers(client, "LIST STREAMS; SHOW TABLES;")
    assert (streams["@type"], streams["statementText"], streams["warnings"]) == ("streams", "LIST STREAMS;", [])
    visits = next(each for each in streams["streams"] if each["name"] == "VISITS")
    assert visits == {
        **{"type": "STREAM", "name": "VISITS", "topic": "visits", "isWindowed": False},
        **{"keyFormat": "KAFKA", "valueFormat": "JSON"},
    }
    assert named(tables["tables"]) == ["BY_ID", "BY_TOWN", "HOURLY", "PLACES", "TRIPS_TO"]
    assert [each["name"] for each in tables["tables"] if each["isWindowed"]] == ["HOURLY"]


def test_topics_queries_functions_and_properties(client: TestClient) -> None:
    topics, queries, functions, properties = answers(
        client, "SHOW TOPICS; SHOW QUERIES; SHOW FUNCTIONS; SHOW PROPERTIES;"
    )
    assert {"name": "visits", "replicaInfo": [1]} in topics["topics"]
    assert "CTAS_BY_TOWN" in [each["id"] for each in queries["queries"]]
    assert {"name": "TOPK", "type": "AGGREGATE", "category": ""} in functions["functions"]
    assert properties["@type"] == "properties"


def test_a_description_has_columns_of_every_kind_and_the_queries_around(client: TestClient) -> None:
    (found,) = answers(client, "DESCRIBE PLACES;")
    told = found["sourceDescription"]
    assert (found["@type"], told["name"], told["type"], told["topic"]) == (
        *("sourceDescription", "PLACES", "TABLE", "places"),
    )
    plain = {"fields": None, "memberSchema": None}
    assert told["fields"] == [
        {"name": "NAME", "schema": {"type": "STRING", **plain}, "type": "KEY"},
        {
            "name": "TAGS",
            "schema": {"type": "MAP", "fields": None, "memberSchema": {"type": "INTEGER", **plain}},
        },
        {"name": "OPENS", "schema": {"type": "TIME", **plain}},
    ]
    (found,) = answers(client, "DESCRIBE VISITS;")
    read = {each["id"] for each in found["sourceDescription"]["readQueries"]}
    assert read == {"CTAS_BY_TOWN", "CTAS_BY_ID", "CTAS_HOURLY"}


@pytest.mark.parametrize(
    ("text", "statement", "code"),
    [
        ("DESCRIBE nowhere;", "DESCRIBE nowhere", "sql.unknown_name"),
        ("SHOW TABLES; DROP TABLE by_town;", "DROP TABLE by_town", "sql.not_supported"),
        ("CREATE STREAM z (a INT) WITH (KAFKA_TOPIC='z');", None, "sql.not_supported"),
        ("LIST SANDWICHES;", "", None),
    ],
)
def test_what_is_refused_says_which_statement(
    client: TestClient, text: str, statement: str | None, code: str | None
) -> None:
    found = client.post("/ksql", json={"ksql": text})
    told = found.json()
    assert (found.status_code, told["@type"], told["error_code"]) == (400, "statement_error", 40001)
    assert statement is None or told["statementText"] == statement
    assert code is None or told["code"] == code


def test_a_body_that_is_none(client: TestClient) -> None:
    found = client.post("/ksql", json={"sql": "SHOW TABLES;"})
    assert (found.status_code, found.json()["@type"]) == (400, "generic_error")
