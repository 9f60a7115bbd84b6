"""`GET /v1/views/{view}/changes`: the rows of a view, then every change, as server-sent events."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from strandline.jobs.catalog.stored_names import stored_statement
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.watch import staleness
from strandline.jobs.server.http.answers import lag_headers
from strandline.jobs.server.http.requests import columns_of, named, number, parameters, pinned_in, seconds, server_of
from strandline.jobs.server.state.events import Place
from strandline.jobs.server.state.hub import SubscriptionRequest
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select

router = APIRouter(tags=["changes"])


@router.get(
    "/v1/views/{view}/changes",
    responses={200: {"content": {"text/event-stream": {}}}},
    openapi_extra=parameters(
        "form", "where", "columns", "snapshot", "as_of", "up_to", "limit", "cut", "max_staleness", "wait_ms"
    ),
)
async def changes(request: Request, view: str) -> Response:
    """`row` events of the present version, then `change` events and one `progress` a version, which says how far it is
    behind its topics, and says it again while nothing comes. `form` is `upserts` or
    `weights`; `where` and `columns` are pushed down; `snapshot=false` leaves out the rows; `as_of` is the version after
    which the changes begin, `cut` a pinned cut that the rows are of; `up_to` and `limit` end it. `max_staleness` is met
    before the first event, for `wait_ms` at most, and by an `error` event as soon as it is not met any more. An event's
    id, sent back as `Last-Event-ID`, goes on there."""
    stored = named(request, "read", view)
    server = server_of(request)
    relation = server.catalogued.relation(stored)
    catalog = server.catalogued.catalog
    given = request.query_params
    form = given.get("form", "upserts")
    if form not in ("upserts", "weights"):
        raise RequestRefused("'form' is upserts or weights")
    if given.get("snapshot", "true") not in ("true", "false"):
        raise RequestRefused("'snapshot' is true or false")
    stale = staleness(given.get("max_staleness"))
    lag = await server.meet(relation, stale, seconds(request))
    resumed = request.headers.get("last-event-id")
    snapshot = given.get("snapshot", "true") != "false"
    statement = await asyncio.to_thread(_statement, view, columns_of(request), given.get("where"))
    wish = SubscriptionRequest(
        statement=stored_statement(statement, catalog.name_map),
        form="weights" if form == "weights" else "upserts",
        place=Place.read(resumed) if resumed else await _first_place(request, stored, snapshot=snapshot),
        snapshot=snapshot,
        up_to=number(request, "up_to"),
        limit=number(request, "limit"),
        max_staleness=stale,
        allowed=lambda: named(request, "read", view),
    )
    await server.hub.prepare(wish, catalog)
    events = server.hub.subscribe(wish, catalog, server.library())
    # Proxies that gather an answer before they pass it on would hold events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **lag_headers(lag)}
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


async def _first_place(request: Request, stored: str, *, snapshot: bool) -> Place | None:
    """Where a subscriber begins that has had nothing yet; None: at the present version."""
    as_of, pinned = number(request, "as_of"), pinned_in(request.query_params.get("cut"))
    if pinned is None:
        return None if as_of is None else Place(as_of)
    if as_of is not None:
        raise RequestRefused("'cut' says where it begins: leave 'as_of' out")
    found = await asyncio.to_thread(pinned.at, stored, server_of(request).lake)
    if found is None:
        return Place(-1)
    return Place(found.version, 0 if snapshot else None, snapshot)


def _statement(view: str, columns: tuple[str, ...], where: str | None) -> Select:
    """The push query of a request. Its text is parsed as a whole: nothing but one SELECT over the view passes."""
    shown = ", ".join(f"`{name}`" for name in columns) if columns else "*"
    if "`" in view or any("`" in name for name in columns):
        raise RequestRefused("a name has no backquotes")
    condition = f" WHERE {where}" if where else ""
    parsed = parse(f"SELECT {shown} FROM `{view}`{condition} EMIT CHANGES;")
    if len(parsed) != 1 or not isinstance(parsed[0], Select):
        raise RequestRefused("'where' is one condition over the view's columns")
    return parsed[0]
