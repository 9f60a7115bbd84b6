"""The description of the API: valid OpenAPI, complete, and answers are as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from strandline.jobs.server.http.answers import status_of
from strandline.state_store.errors import StrandlineError


@pytest.fixture(scope="module")
def told(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/openapi.json").json()
    return found


def operations(told: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_a_client_can_be_generated_from_it(told: dict[str, Any]) -> None:
    validate(told)
    identities = [operation["operationId"] for _, _, operation in operations(told)]
    assert len(set(identities)) == len(identities)
    for method, path, operation in operations(told):
        where = f"{method} {path}"
        forms = operation["responses"]["200"]["content"]
        assert forms or path == "/close-query", where
        assert all("schema" in form for form in forms.values()), where
        assert all(each.get("description") for each in operation.get("parameters", ()) if each["in"] == "query"), where
        assert method != "post" or "requestBody" in operation or path == "/inserts-stream", where
        assert path in ("/health", "/ready", "/healthcheck") or {"token": []} in operation["security"], where


def test_every_status_of_an_error_is_in_it(told: dict[str, Any]) -> None:
    def all_of(kind: type[StrandlineError]) -> Iterator[type[StrandlineError]]:
        yield kind
        for each in kind.__subclasses__():
            yield from all_of(each)

    statuses = {str(status_of(kind.__new__(kind, "what is wrong"))) for kind in all_of(StrandlineError)}
    for method, path, operation in operations(told):
        assert statuses <= set(operation["responses"]), f"{method} {path}"


ASKED: list[tuple[str, str, str, dict[str, Any] | None, int]] = [
    ("get", "/v1/views", "/v1/views", None, 200),
    ("get", "/v1/views/{view}", "/v1/views/by_town", None, 200),
    ("get", "/v1/views/{view}/rows/{key}", "/v1/views/by_town/rows/Rome", None, 200),
    ("get", "/v1/views/{view}/rows/{key}", "/v1/views/by_town/rows/nowhere", None, 404),
    ("get", "/v1/views/{view}/rows/{key}", "/v1/views/nothing/rows/Rome", None, 404),
    ("get", "/v1/views/{view}/rows", "/v1/views/by_town/rows?key=Rome", None, 200),
    ("post", "/v1/views/{view}/rows", "/v1/views/by_town/rows", {"keys": ["Rome"]}, 200),
    ("post", "/v1/query", "/v1/query", {"sql": "SELECT town FROM by_town"}, 200),
    ("post", "/v1/query", "/v1/query", {"sql": "SELECT nothing FROM by_town"}, 404),
    ("post", "/v1/cuts", "/v1/cuts", {"seconds": 5}, 200),
    ("post", "/v1/streams/{stream}", "/v1/streams/visits", {"rows": [{"id": 1}]}, 200),
    ("get", "/v1/views/{view}", "/v1/views/nothing", None, 404),
    ("get", "/v1/lineage", "/v1/lineage", None, 200),
    ("get", "/health", "/health", None, 200),
    ("get", "/info", "/info", None, 200),
    ("get", "/v1/metadata", "/v1/metadata", None, 200),
    ("get", "/v1/metadata/id", "/v1/metadata/id", None, 200),
    ("get", "/clusterStatus", "/clusterStatus", None, 200),
    ("get", "/is_valid_property/{name}", "/is_valid_property/auto.offset.reset", None, 200),
    ("post", "/query", "/query", {"ksql": "SELECT * FROM by_town WHERE town = 'Rome';"}, 200),
    ("post", "/ksql", "/ksql", {"ksql": "LIST STREAMS; DESCRIBE BY_TOWN;"}, 200),
    ("post", "/ksql", "/ksql", {"ksql": "DROP TABLE by_town;"}, 400),
]


@pytest.mark.parametrize(("method", "path", "url", "body", "status"), ASKED)
def test_answers_are_as_it_says(
    client: TestClient, told: dict[str, Any], method: str, path: str, url: str, body: dict[str, Any] | None, status: int
) -> None:
    operation = told["paths"][path][method]
    if body is not None:
        asked = operation["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator(asked).validate(body)
    found = client.request(method, url, json=body)
    assert found.status_code == status, found.text
    schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": told["components"]}).validate(found.json())
