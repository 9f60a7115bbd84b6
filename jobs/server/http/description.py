"""The description of the API (OpenAPI 3.1) as generated clients need it: tokens, errors, what answers hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fastapi import FastAPI

_OPEN: Final = ("/health", "/ready", "/info", "/healthcheck", "/")
"""Routes that ask for no token."""
_TEXT: Final = {"type": ["string", "null"]}
_ERROR: Final = {
    "type": "object",
    "required": ["code", "action", "message"],
    "properties": {
        "code": {"type": "string", "description": "stable, such as serve.key_required"},
        "action": {"type": "string", "description": "what to do: retry, stop, …"},
        "message": {"type": "string"},
        "where": _TEXT,
        "hint": _TEXT,
    },
}
_NUMBER: Final = {"type": ["integer", "null"]}
_VIEW: Final = {
    "type": "object",
    "required": ["name", "kind", "pipeline"],
    "properties": {
        "name": {"type": "string"},
        "kind": {"type": "string", "enum": ["stream", "table", "view"]},
        "pipeline": {"type": "string"},
        "state": {"type": "string"},
        "version": _NUMBER,
        "event_time": _TEXT,
        "freshness_ms": _NUMBER,
        "rows": _NUMBER,
        "rows_per_second": {"type": ["number", "null"]},
        "replica": {"type": ["object", "null"]},
    },
}
_INSERTED: Final = {
    "type": "object",
    "required": ["inserted", "position"],
    "properties": {"inserted": {"type": "integer"}, "position": {"type": "string"}},
}
_VIEWS: Final = {
    "type": "object",
    "required": ["views", "health"],
    "properties": {"views": {"type": "array", "items": _VIEW}, "health": {"type": "object"}},
}
_ROWS: Final = {
    "type": "object",
    "required": ["rows"],
    "properties": {"rows": {"type": "array", "items": {"type": "object"}}, "version": _NUMBER, "freshness_ms": _NUMBER},
}
_ANSWERS: Final = {
    ("get", "/v1/views"): _VIEWS,
    ("get", "/v1/views/{view}"): _VIEW,
    ("get", "/v1/views/{view}/rows"): _ROWS,
    ("post", "/v1/views/{view}/rows"): _ROWS,
    ("post", "/v1/query"): _ROWS,
    ("post", "/v1/streams/{stream}"): _INSERTED,
}
"""What the bodies of answers hold."""
_STATUSES: Final = {
    "400": "the request or its SQL",
    "401": "the token",
    "403": "the token's scope, or a page of others",
    "404": "no such view, column or row",
    "408": "it took longer than it may",
    "413": "it is more than it may be",
    "415": "a write that is not JSON",
    "422": "an idempotency key that was used for other rows",
    "429": "come again after Retry-After",
    "503": "come again after Retry-After",
}


def described(app: FastAPI) -> dict[str, Any]:
    """The description of an application's routes."""
    found = app.openapi()
    parts = found.setdefault("components", {})
    parts.setdefault("securitySchemes", {})["token"] = {"type": "http", "scheme": "bearer"}
    parts.setdefault("schemas", {})["Error"] = _ERROR
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            _complete(operation, method, path)
    return found


def _complete(operation: dict[str, Any], method: str, path: str) -> None:
    if path not in _OPEN:
        operation["security"] = [{}, {"token": []}]  # a server on loopback may have none
    responses = operation.setdefault("responses", {})
    shape = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, why in _STATUSES.items():
        responses[status] = {"description": why, "content": shape}
    answer = _ANSWERS.get((method, path))
    if answer is not None:
        content = responses.setdefault("200", {"description": "the answer"}).setdefault("content", {})
        content.setdefault("application/json", {})["schema"] = answer
    if (method, path) == ("post", "/v1/streams/{stream}"):
        rows = {
            "type": "object",
            "required": ["rows"],
            "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
        }
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": rows}}}
        key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 200}}
        operation["parameters"] = [*(each for each in operation.get("parameters", ()) if each["in"] != "header"), key]
