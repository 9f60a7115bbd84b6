"""`/v1/views`: what can be read, and where it stands; `/v1/lineage`: from which topics each view comes, and who reads
it; `/v1/views/{view}/data-docs`: the page on what the expectations of a view came to.

A browser that follows a link sends no token, so here it is told to ask for one: as the password, whatever the user.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.catalog.lineage import lineage
from strandline.jobs.catalog.stored_names import shown_text
from strandline.jobs.expect.expectations import POLICY, read_docs
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.serve.consistent_snapshot import age_ms, instant
from strandline.jobs.serve.errors import Unauthenticated
from strandline.jobs.serve.results import to_json
from strandline.jobs.server.http.answers import failure
from strandline.jobs.server.http.operating import readiness
from strandline.jobs.server.http.requests import named, reader_of, server_of
from strandline.jobs.server.state.server import Server
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
