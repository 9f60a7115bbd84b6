"""The API: its description (OpenAPI 3.1) as generated clients need it, and the way of a request to its endpoint.

The description has tokens, errors, and what answers hold. Each request is measured and logged: of every one are known
its route, its status, how long it took, and the bytes of its answer.

FastAPI 0.165 matches the routes of an included router twice, opens three exit stacks for a request and solves
dependencies of which there are none. Here a route stands in the application itself, and starlette calls its endpoint.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute
from starlette.routing import request_response

from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.server.http.answers import failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import APIRouter, FastAPI
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from strandline.jobs.server.state.metrics import Metrics


_OPEN: Final = ("/health", "/ready", "/healthcheck", "/")
"""Routes that ask for no token."""
_TEXT: Final = {"type": ["string", "null"]}
_NUMBER: Final = {"type": ["integer", "null"]}
_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_OBJECT: Final = {"type": "object"}
_ROW: Final = {"type": "object", "additionalProperties": True, "description": "a member for each column"}
_VERSIONS: Final = {"type": "object", "additionalProperties": _INTEGER, "description": "{table: version}"}


def _shape(required: dict[str, Any], further: dict[str, Any] | None = None) -> dict[str, Any]:
    """The schema of an object: the members that it always has, and those that it may have."""
    return {"type": "object", "required": [*required], "properties": {**required, **(further or {})}}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_ERROR: Final = _shape(
    {
        "code": {"type": "string", "description": "stable, such as serve.key_required"},
        "action": {"type": "string", "description": "what to do: retry, stop, …"},
        "message": _STRING,
    },
    {"where": _TEXT, "hint": _TEXT},
)
_REFLECTED: Final = {
    "event_time": {**_TEXT, "description": "the largest event time in it, ISO 8601"},
    "freshness_ms": {**_NUMBER, "description": "how long ago it was committed"},
    "staleness_ms": {**_NUMBER, "description": "it reflects all that was in its topics so long ago"},
    "behind_records": {**_NUMBER, "description": "records of its topics that it does not reflect"},
}
_OF_VIEW: Final = {"version": _INTEGER, "versions": _VERSIONS}
_VIEW: Final = _shape(
    {"name": _STRING, "kind": {"type": "string", "enum": ["stream", "table", "view"]}, "pipeline": _STRING},
    {
        "state": _STRING,
        "version": _NUMBER,
        **_REFLECTED,
        "rows": _NUMBER,
        "rows_per_second": {"type": ["number", "null"]},
        "replica": {"type": ["object", "null"]},
        "key": _list(_STRING),
        "columns": _list(_shape({"name": _STRING, "type": _STRING})),
        "sql": _STRING,
    },
)
_ONE: Final = _shape(
    {"row": {"type": ["object", "null"], "description": "null where there is none"}, **_REFLECTED}, _OF_VIEW
)
_ROWS: Final = _shape({"rows": _list(_ROW), **_REFLECTED}, _OF_VIEW)
_READY: Final = _shape(
    {"status": _STRING, "live": _INTEGER, "failing": _INTEGER, "replicas": _INTEGER, "lost": _INTEGER}
)
_ANSWERS: Final = {
    ("get", "/v1/views"): _shape({"views": _list(_VIEW), "health": _READY}),
    ("get", "/v1/views/{view}"): _VIEW,
    ("get", "/v1/views/{view}/rows/{key}"): _ONE,
    ("get", "/v1/views/{view}/rows"): _ROWS,
    ("post", "/v1/views/{view}/rows"): _ROWS,
    ("post", "/v1/query"): _ROWS,
    ("post", "/v1/cuts"): _shape({"cut": _STRING, "versions": _VERSIONS, "seconds": _INTEGER}),
    ("post", "/v1/streams/{stream}"): _shape({"inserted": _INTEGER, "position": _STRING}),
    ("get", "/v1/lineage"): _shape({"nodes": _list(_shape({"id": _STRING, "name": _STRING}))}),
    ("get", "/health"): _shape({"status": _STRING}),
    ("get", "/ready"): _READY,
    ("get", "/healthcheck"): _shape({"isHealthy": {"type": "boolean"}}),
    ("get", "/info"): _shape({"KsqlServerInfo": _OBJECT}),
    ("get", "/v1/metadata"): _shape({"version": _STRING, "clusterId": _OBJECT}),
    ("get", "/v1/metadata/id"): _shape({"id": _STRING, "scope": _OBJECT}),
    ("get", "/clusterStatus"): _shape({"clusterStatus": _OBJECT}),
    ("get", "/is_valid_property/{name}"): {"type": "boolean"},
    ("post", "/query"): _list(_OBJECT),
    ("post", "/ksql"): _list(_shape({"@type": _STRING, "statementText": _STRING})),
}
"""What the bodies of answers hold, in JSON."""
_OTHER_FORMS: Final = {
    **dict.fromkeys(
        (
            ("get", "/v1/views/{view}/rows"),
            ("post", "/v1/views/{view}/rows"),
            ("get", "/v1/views/{view}/rows/{key}"),
            ("post", "/v1/query"),
        ),
        "application/vnd.apache.arrow.stream",
    ),
    ("get", "/v1/views/{view}/changes"): "text/event-stream",
    ("get", "/v1/views/{view}/data-docs"): "text/html",
    ("get", "/metrics"): "text/plain",
    ("post", "/query-stream"): "application/vnd.ksqlapi.delimited.v1",
    ("post", "/inserts-stream"): "application/vnd.ksqlapi.delimited.v1",
}
"""A further form of an answer, or the one of a route that is not above."""
_PROPERTIES: Final = {"type": "object", "additionalProperties": True}
_BODIES: Final = {
    ("post", "/v1/streams/{stream}"): _shape({"rows": _list(_ROW)}),
    ("post", "/v1/views/{view}/rows"): _shape(
        {"keys": _list({"description": "a value, or an array of one for each column"})}
    ),
    ("post", "/query"): _shape({"ksql": _STRING}, {"streamsProperties": _PROPERTIES}),
    ("post", "/query-stream"): _shape({"sql": _STRING}, {"properties": _PROPERTIES}),
    ("post", "/ksql"): _shape({"ksql": _STRING}, {"streamsProperties": _PROPERTIES}),
    ("post", "/close-query"): _shape({"queryId": _STRING}),
}
"""What bodies of requests hold, but for those that their routes describe."""
_DURATION: Final = {"type": "string", "pattern": "^[0-9]+ *(ms|s|min)$"}
_PARAMETERS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "columns": (_STRING, "the columns of the answer, with commas between"),
    "at_least": (_STRING, "a version, or the position that an insert answered with, which the answer reflects"),
    "max_staleness": (_DURATION, "how far the answer may be behind its topics: 500ms, 2s, 1min"),
    "wait_ms": (_INTEGER, "how long to wait for at_least and max_staleness"),
    "cut": (_STRING, "a pinned cut, as POST /v1/cuts answers"),
    "key": (_list(_STRING), "a key, or its first columns with commas between; several times for several"),
    "from": (_STRING, "the smallest key"),
    "to": (_STRING, "the largest key"),
    "limit": (_INTEGER, "the most rows, or events"),
    **{
        f"window_{end}_{side}": (_INTEGER, f"the {extreme} {end} of a window, in milliseconds since 1970")
        for end in ("start", "end")
        for side, extreme in (("from", "smallest"), ("to", "largest"))
    },
    "form": ({"type": "string", "enum": ["upserts", "weights"]}, "how a change is said"),
    "where": (_STRING, "a condition over the view's columns"),
    "snapshot": ({"type": "boolean"}, "false: without the rows that are there"),
    "as_of": (_INTEGER, "the version after which the changes begin"),
    "up_to": (_INTEGER, "the version after which they end"),
}
"""{parameter of a query string: its schema, what it means}."""
_STATUSES: Final = {
    "400": "the request or its SQL",
    "401": "the token",
    "403": "the token's scope, or a page of others",
    "404": "no such view, column or row",
    "408": "it took longer than it may",
    "410": "it is not kept any more",
    "413": "it is more than it may be",
    "415": "a write that is not JSON",
    "422": "an idempotency key that was used for other rows",
    "429": "come again after Retry-After",
    "500": "what is stored is damaged",
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
            _complete(operation, (method, path))
    return found


def _complete(operation: dict[str, Any], route: tuple[str, str]) -> None:
    if route[1] not in _OPEN:
        operation["security"] = [{}, {"token": []}]  # a server on loopback may have none
    responses = operation.setdefault("responses", {})
    error = {"$ref": "#/components/schemas/Error"}
    for status, why in _STATUSES.items():
        responses[status] = {"description": why, "content": {"application/json": {"schema": error}}}
    _complete_answer(responses, route)
    if route == ("get", "/v1/views/{view}/rows/{key}"):
        responses["404"]["content"]["application/json"]["schema"] = {"anyOf": [error, _ONE]}
    if route in (("get", "/ready"), ("get", "/healthcheck")):
        responses["503"]["content"]["application/json"]["schema"] = {"anyOf": [error, _ANSWERS[route]]}
    if route in _BODIES:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _BODIES[route]}}}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query" and parameter["name"] in _PARAMETERS:
            parameter["schema"], parameter["description"] = _PARAMETERS[parameter["name"]]
    if route == ("post", "/v1/streams/{stream}"):
        key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 200}}
        operation["parameters"] = [*(each for each in operation.get("parameters", ()) if each["in"] != "header"), key]


def _complete_answer(responses: dict[str, Any], route: tuple[str, str]) -> None:
    content = responses.setdefault("200", {"description": "the answer"}).setdefault("content", {})
    if route in _ANSWERS:
        content.setdefault("application/json", {})["schema"] = _ANSWERS[route]
    else:
        content.pop("application/json", None)
    if route in _OTHER_FORMS:
        content.setdefault(_OTHER_FORMS[route], {}).setdefault("schema", _STRING)


class DirectRoute(APIRoute):
    """A route whose endpoint gets the request and the parameters of its path, texts as they are."""

    def __init__(self, path: str, endpoint: Callable[..., Awaitable[Response]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def called(request: Request) -> Response:
            return await endpoint(request, **request.path_params)

        self.app = request_response(called)


def add_routes(app: FastAPI, router: APIRouter) -> None:
    """Add a router's routes to the application, each as it is: nothing is matched twice."""
    app.router.routes.extend(router.routes)


log = logging.getLogger("strandline.server")


def answered(metrics: Metrics, route: str, status: int, seconds: float, size: int) -> None:
    """Count and log one request that was answered with so many bytes."""
    metrics.answered(route, status, seconds, size)
    if log.isEnabledFor(logging.INFO):
        log.info("request", extra={"route": route, "status": status, "ms": round(seconds * 1000, 2), "bytes": size})


class Measured:
    """Measures each request. Not starlette's own base class, which puts a task between client and route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status, size = 500, 0

        async def noted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except UnicodeError as error:
            # What a client sends is bytes; where it is not text, the libraries below say so in this way.
            await failure(RequestRefused(f"the request is not UTF-8: {error}"))(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            answered(scope["app"].state.server.metrics, route, status, time.perf_counter() - begun, size)
