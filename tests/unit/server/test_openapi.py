"""The description of the API: valid OpenAPI, and answers are as it says."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate


def test_answers_are_as_the_description_says(client: TestClient) -> None:
    told: dict[str, Any] = client.get("/v1/openapi.json").json()
    validate(told)
    asked: list[tuple[str, str, str, dict[str, Any] | None, int]] = [
        ("get", "/v1/views", "/v1/views", None, 200),
        ("get", "/v1/views/{view}", "/v1/views/by_town", None, 200),
        ("get", "/v1/views/{view}/rows", "/v1/views/by_town/rows?key=Rome", None, 200),
        ("post", "/v1/views/{view}/rows", "/v1/views/by_town/rows", {"keys": ["Rome"]}, 200),
        ("post", "/v1/query", "/v1/query", {"sql": "SELECT town FROM by_town"}, 200),
        ("post", "/v1/query", "/v1/query", {"sql": "SELECT nothing FROM by_town"}, 404),
        ("post", "/v1/streams/{stream}", "/v1/streams/visits", {"rows": [{"id": 1}]}, 200),
        ("get", "/v1/views/{view}", "/v1/views/nothing", None, 404),
    ]
    for method, path, url, body, status in asked:
        operation = told["paths"][path][method]
        assert {"token": []} in operation["security"]
        found = client.request(method, url, json=body)
        assert found.status_code == status, found.text
        schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
        named = told["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
        Draft202012Validator(named).validate(found.json())
