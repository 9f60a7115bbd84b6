"""The routes of views: what can be read, where it stands, from where it comes, and its changes.

    /v1/views, /v1/views/{view}        what can be read, and where it stands
    /v1/lineage                        from which topics each view comes, and who reads it
    /v1/views/{view}/data-docs         the page on what the expectations of a view came to
    /v1/views/{view}/changes           the rows of a view, then every change, as server-sent events

A browser that follows a link sends no token, so here it is told to ask for one: as the password, whatever the user.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from strandline.jobs.catalog.lineage import lineage
from strandline.jobs.catalog.stored_names import shown_text, stored_statement
from strandline.jobs.expect.expectations import POLICY, read_docs
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.serve.consistent_snapshot import age_ms, instant
from strandline.jobs.serve.errors import RequestRefused, Unauthenticated
from strandline.jobs.serve.results import to_json
from strandline.jobs.serve.watch import staleness
from strandline.jobs.server.http.answers import failure, lag_headers
from strandline.jobs.server.http.operating import readiness
from strandline.jobs.server.http.requests import (
    columns_of,
    named,
    number,
    parameters,
    pinned_in,
    reader_of,
    seconds,
    server_of,
)
from strandline.jobs.server.state.events import Place
from strandline.jobs.server.state.hub import SubscriptionRequest
from strandline.jobs.server.state.server import Server
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone
from strandline.state_store.leases import living
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.lineage import Node
    from strandline.state_store.paths import LakePath


# The pace of a table: how many rows it has, and how many of them changed in each of the last seconds.
#
# Read from the records of the newest commits, so it costs the same at any size of the table.

WINDOW_SECONDS: Final = 10
"""Long enough to hold several epochs of a second each, short enough that a view that has stopped is seen to stand."""
_LAG: Final = ("staleness_ms", "behind_records")
MOST_COMMITS: Final = 20
"""Each is a file to read. A table that commits more than twice a second has the rate of so many."""


@dataclass(frozen=True)
class TablePace:
    """How a table moves.

    Attributes:
        rows: visible rows at its head.
        rows_per_second: rows inserted and deleted per second, over the last `WINDOW_SECONDS`; a row that changed counts
            twice.
    """

    rows: int
    rows_per_second: float


def pace(table: LakePath, now_ms: int) -> TablePace | None:
    """The pace of a table; None where it is not there or its commits cannot be read.

    Args:
        now_ms: milliseconds since the epoch.
    """
    newest = log.newest_version(table)
    if newest is None:
        return None
    try:
        return TablePace(reader.record_at(table, newest).rows, _rate(table, newest, now_ms))
    except StoreError:
        return None  # what is broken is told by whoever reads the rows; a figure beside others is not the place


def _rate(table: LakePath, newest: int, now_ms: int) -> float:
    changed, since = 0, now_ms - WINDOW_SECONDS * 1000
    for version in range(newest, -1, -1):
        try:
            commit = log.read_commit(table, version)
        except VersionGone:
            break
        if commit.timestamp <= since:
            break
        if newest - version == MOST_COMMITS:
            since = commit.timestamp
            break
        # Compaction repeats the record of the epoch before it, and changes no row.
        if commit.record is not None and commit.changes_rows:
            changed += commit.record.inserted + commit.record.deleted
    return round(changed * 1000 / max(now_ms - since, 1), 1)


router = APIRouter(tags=["views"])


@router.get("/v1/views")
async def views(request: Request) -> Response:
    """The streams, tables and views that the token allows to read."""
    server = server_of(request)
    token = reader_of(request)
    scopes = server.catalogued.catalog.name_map.scopes_of
    found = [each for each in server.catalogued.views() if token.allows("read", *scopes(each.name))]
    return await asyncio.to_thread(_listed, server, found)


@router.get("/v1/views/{view}")
async def view(request: Request, view: str) -> Response:
    """One of them, with its columns and its SQL."""
    stored = named(request, "read", view)
    server = server_of(request)
    found = server.catalogued.definition(stored)
    return await asyncio.to_thread(_described, server, found)


def _listed(server: Server, found: list[Source | View]) -> Response:
    body = {"views": [_standing(server, each) for each in found], "health": readiness(server)}
    return Response(to_json(body), media_type="application/json")


def _described(server: Server, found: Source | View) -> Response:
    relation = server.catalogued.relation(found.name)
    columns = [{"name": name, "type": str(sql_type)} for name, sql_type in relation.columns]
    body = {**_standing(server, found), "key": list(relation.key), "columns": columns}
    body["sql"] = shown_text(found.sql, server.catalogued.catalog)
    return Response(to_json(body), media_type="application/json")


def _standing(server: Server, definition: Source | View) -> dict[str, Any]:
    name = server.catalogued.catalog.name_map.of(definition.name)
    if isinstance(definition, View) and definition.partial:
        about = dict.fromkeys(("version", "event_time", "freshness_ms", *_LAG, "rows", "rows_per_second", "replica"))
        return {"name": name, "kind": "view", "pipeline": definition.pipeline, "state": "partial", **about}
    standing = server.standing(server.catalogued.relation(definition.name))
    replica = server.replicas.find(definition.name)
    lag = server.topics.lag(standing.offsets) if standing else None
    moving = pace(server.lake.table(definition.name), log.now_ms())
    return {
        "name": name,
        "kind": "view" if isinstance(definition, View) else definition.kind,
        "pipeline": definition.pipeline,
        "version": standing.version if standing else None,
        "event_time": instant(standing.event_time) if standing else None,
        "freshness_ms": age_ms(standing.committed) if standing else None,
        "staleness_ms": lag.ms if lag else None,
        "behind_records": lag.records if lag else None,
        "rows": moving.rows if moving else None,
        "rows_per_second": moving.rows_per_second if moving else None,
        "replica": {"phase": replica.phase, "version": replica.version} if replica else None,
    }


_EXAMPLE = {
    "nodes": [
        {"id": "topic/visits", "name": "visits", "role": "topic", "definition": "visits", "pipeline": "shop"},
        {"id": "visits", "name": "visits", "role": "event log", "definition": "visits", "pipeline": "shop"},
    ],
    "edges": [["topic/visits", "visits"]],
    "readers": {"visits": ["replica-7c1d"]},
}


@router.get("/v1/lineage", responses={200: {"content": {"application/json": {"example": _EXAMPLE}}}})
async def graph(request: Request) -> Response:
    """Topics, event logs, tables and views that the token allows to read, the ways between them, and by table the
    readers that hold a lease."""
    token = reader_of(request)
    server = server_of(request)
    catalog = server.catalogued.catalog
    found = lineage(catalog.definitions(), lambda name: token.allows("read", *catalog.name_map.scopes_of(name)))
    readers = await asyncio.to_thread(_readers, server, found.nodes)
    readers = {catalog.name_map.of(name): each for name, each in readers.items()}
    found = found.localized(catalog.name_map)
    body = {
        "nodes": [asdict(node) for node in found.nodes],
        "edges": [list(edge) for edge in found.edges],
        "readers": readers,
    }
    return Response(to_json(body), media_type="application/json")


def _readers(server: Server, nodes: tuple[Node, ...]) -> dict[str, list[str]]:
    now = log.now_ms()
    listed = {
        node.id: [lease.reader for lease in living(server.lake.table(node.id), now)]
        for node in nodes
        if node.role != "topic"
    }
    return {name: sorted(readers) for name, readers in listed.items() if readers}


_HEADERS: Final = {
    # It shows values of rows: nothing in it may run, and it belongs in nobody's cache.
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@router.get("/v1/views/{view}/data-docs")
async def data_docs(request: Request, view: str) -> Response:
    """The page, as HTML; 404 while the expectations of the view were never validated."""
    try:
        view = named(request, "read", view)
    except Unauthenticated as error:
        answer = failure(error)
        answer.headers["WWW-Authenticate"] = 'Basic realm="a token of Strandline, as the password", charset="UTF-8"'
        return answer
    server = server_of(request)
    server.catalogued.definition(view)
    page = await asyncio.to_thread(read_docs, server.lake, view)
    if page is None:
        hint = "they are validated by Dagster, after each drain"
        raise UnknownName(sentence("the expectations of '{}' were not validated yet", Name(view)), hint=hint)
    return Response(page, headers=_HEADERS, media_type="text/html")


changes_router = APIRouter(tags=["changes"])


@changes_router.get(
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
    statement = await asyncio.to_thread(_changes_statement, view, columns_of(request), given.get("where"))
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


def _changes_statement(view: str, columns: tuple[str, ...], where: str | None) -> Select:
    """The push query of a request. Its text is parsed as a whole: nothing but one SELECT over the view passes."""
    shown = ", ".join(f"`{name}`" for name in columns) if columns else "*"
    if "`" in view or any("`" in name for name in columns):
        raise RequestRefused("a name has no backquotes")
    condition = f" WHERE {where}" if where else ""
    parsed = parse(f"SELECT {shown} FROM `{view}`{condition} EMIT CHANGES;")
    if len(parsed) != 1 or not isinstance(parsed[0], Select):
        raise RequestRefused("'where' is one condition over the view's columns")
    return parsed[0]
