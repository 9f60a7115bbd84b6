"""`POST /v1/query`: a SELECT, all its tables at one consistent cut, within limits, read only; or an EXPLAIN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel
from starlette.responses import Response

from jobs.model.serving_errors import RequestRefused
from jobs.serve.at_least import Least
from jobs.server.http.answers import ARROW, About, age_ms, instant, joined_rows, wants_arrow
from jobs.server.http.direct import DirectRoute
from jobs.server.http.requests import json_of, most_seconds, server_of, stored_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.catalog.catalog import Catalog
    from jobs.server.access.tokens import Token
    from jobs.server.queries.worker import Answered
    from jobs.server.state.by_key import Keyed

router = APIRouter(tags=["query"], route_class=DirectRoute)


class QueryBody(BaseModel):
    """The body, for the description of the API."""

    sql: Annotated[str, Body(examples=["SELECT town, SUM(visits) AS visits FROM by_town GROUP BY town"])]
    at_least: Annotated[
        dict[str, int | str] | None,
        Body(description="{table: version or position}: what the answer must reflect", examples=[{"by_town": 12}]),
    ] = None
    wait_ms: Annotated[int, Body(description="how long to wait for `at_least`")] = 5_000


@router.post(
    "/v1/query",
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": QueryBody.model_json_schema()}}}},
)
async def query(request: Request) -> Response:
    """The answer of a SELECT: `{"sql": "…"}`. Each table that it names needs the scope `read`. `EXPLAIN …` answers with
    the plan by which a view, or the SELECT as if it were one, is maintained: a row `{"plan": line}` for each line.

    With `at_least` the answer waits until its cut reflects that of each table named: a version, or the position that an
    insert answered with; 503 with `Retry-After` when it does not within `wait_ms`."""
    server = server_of(request)
    token = server.token_of(request.headers.get("authorization"))
    body = await json_of(request, *QueryBody.model_fields)
    text = body.get("sql")
    if not isinstance(text, str):
        raise RequestRefused("'sql' is a text")
    least = _at_least(body.get("at_least"), token, server.catalogued.catalog)
    arrow = wants_arrow(request.headers.get("accept"))
    if not arrow:
        keyed = await server.by_key.find(text, token, at_least=least)
        if keyed is not None:
            return joined_rows(", ".join(keyed.lines()).encode(), *_about(keyed))

    def ask() -> Answered:
        return server.queries.ask(text, token, form="arrow" if arrow else "objects", at_least=least)

    found = await server.until(least, ask, most_seconds(body))
    server.note(found.versions)
    about, headers = _about(found)
    if arrow:
        return Response(found.body, 200, {**about.headers(), **headers}, ARROW)
    return joined_rows(found.body, about, headers)


def _about(found: Answered | Keyed) -> tuple[About, dict[str, str]]:
    """What an answer reflects, and its versions as a header."""
    about = About(None, instant(found.event_time), age_ms(found.committed), found.versions)
    # Headers are Latin-1, and names any text.
    versions = ",".join(f"{quote(name, safe='')}={version}" for name, version in found.versions.items())
    return about, {"Strandline-Versions": versions}


def _at_least(given: Any, token: Token, catalog: Catalog) -> Mapping[str, Least]:
    """What the body's `at_least` says. Whoever waits for a table learns its version, so it needs the scope `read`."""
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(each, int | str) for each in given.values()):
        raise RequestRefused("'at_least' is an object: a version or a position for each table")
    return {stored_name(token, "read", name, catalog): Least.read(str(each)) for name, each in given.items()}
