"""`POST /v1/query`: a SELECT, all its tables at one consistent cut, within limits, read only; or an EXPLAIN."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel
from starlette.responses import Response

from strandline.jobs.serve.consistent_snapshot import age_ms, instant
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.results import to_json
from strandline.jobs.serve.terms import Least
from strandline.jobs.serve.watch import staleness
from strandline.jobs.server.http.answers import ARROW, About, joined_rows, wants_arrow
from strandline.jobs.server.http.api import DirectRoute
from strandline.jobs.server.http.requests import json_of, most_seconds, pinned_in, reader_of, server_of, stored_name
from strandline.jobs.sql.size import check_characters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.server.state.access import Token
    from strandline.jobs.server.state.by_key import Keyed
    from strandline.jobs.server.state.server import Server
    from strandline.jobs.server.state.worker import Answered

router = APIRouter(tags=["query"], route_class=DirectRoute)


class QueryBody(BaseModel):
    """The body, for the description of the API."""

    sql: Annotated[str, Body(examples=["SELECT town, SUM(visits) AS visits FROM by_town GROUP BY town"])]
    at_least: Annotated[
        dict[str, int | str] | None,
        Body(description="{table: version or position}: what the answer must reflect", examples=[{"by_town": 12}]),
    ] = None
    wait_ms: Annotated[int, Body(description="how long to wait for `at_least`")] = 5_000
    max_staleness: Annotated[
        str | None, Body(description="how far the answer may be behind its topics; it is waited for", examples=["2s"])
    ] = None
    cut: Annotated[str | None, Body(description="a pinned cut, as POST /v1/cuts answers: what is read")] = None


class CutBody(BaseModel):
    """The body, for the description of the API."""

    tables: Annotated[
        list[str] | None, Body(description="those that the cut has in any case; others that fit are in it too")
    ] = None
    seconds: Annotated[int, Body(description="how long its versions are kept")] = 60


_MOST_CUT_SECONDS: Final = 3600
"""A report may take an hour; what is read for longer is a copy."""


@router.post(
    "/v1/cuts",
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": CutBody.model_json_schema()}}}},
)
async def cuts(request: Request) -> Response:
    """Pins the newest consistent cut: `{"cut": "…", "versions": {…}, "seconds": 60}`. Sent back as `cut` of a query, or
    `?cut=` of rows and changes, all of them read these versions, which are kept so long."""
    server, token = server_of(request), reader_of(request)
    body = await json_of(request, *CutBody.model_fields)
    catalog = server.catalogued.catalog
    tables, seconds = body.get("tables") or [], body.get("seconds", 60)
    if not isinstance(tables, list) or not all(isinstance(each, str) for each in tables):
        raise RequestRefused("'tables' is a list of names")
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= _MOST_CUT_SECONDS:
        raise RequestRefused(f"'seconds' is a whole number up to {_MOST_CUT_SECONDS}")
    first = [server.catalogued.relation(stored_name(token, "read", name, catalog)).name for name in tables]
    found = await asyncio.to_thread(server.cuts.pin, seconds, first)
    named = ((catalog.name_map.scopes_of(name), version) for name, version in found.versions.items())
    versions = {scopes[0]: version for scopes, version in named if token.allows("read", *scopes)}
    return Response(
        to_json({"cut": found.text(), "versions": versions, "seconds": seconds}), media_type="application/json"
    )


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
    check_characters(text)
    least = _at_least(body.get("at_least"), token, server.catalogued.catalog)
    arrow = wants_arrow(request.headers.get("accept"))
    pinned = pinned_in(body.get("cut"))
    allowed = staleness(body.get("max_staleness"))
    if not arrow:
        keyed = await server.by_key.find(text, token, at_least=least, pinned=pinned)
        if keyed is not None and (
            allowed is None or await asyncio.to_thread(server.topics.fresh, keyed.offsets, allowed)
        ):
            return joined_rows(", ".join(keyed.lines()).encode(), *_about(server, keyed))

    def ask() -> Answered:
        found = server.queries.ask(text, token, form="arrow" if arrow else "objects", at_least=least, pinned=pinned)
        if allowed is not None:
            server.topics.check(found.offsets, allowed)
        return found

    found = await server.until(least, ask, most_seconds(body))
    server.note(found.versions)
    about, headers = _about(server, found)
    if arrow:
        return Response(found.body, 200, {**about.headers(), **headers}, ARROW)
    return joined_rows(found.body, about, headers)


def _about(server: Server, found: Answered | Keyed) -> tuple[About, dict[str, str]]:
    """What an answer reflects, and its versions as a header."""
    lag = server.topics.lag(found.offsets)
    about = About(None, instant(found.event_time), age_ms(found.committed), found.versions, lag)
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
