"""`/v1/views`: what can be read, and where it stands."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.catalog.renamed_text import shown_text
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.serve.format import to_json
from strandline.jobs.serve.pace import pace
from strandline.jobs.server.http.answers import age_ms, instant
from strandline.jobs.server.http.requests import named, reader_of, server_of
from strandline.jobs.server.routes.operating import readiness
from strandline.jobs.server.state.server import Server
from strandline.state_store.delta import log

router = APIRouter(tags=["views"])


@router.get("/v1/views")
async def views(request: Request) -> Response:
    """The streams, tables and views that the token allows to read."""
    server = server_of(request)
    token = reader_of(request)
    of = server.catalogued.catalog.name_map.of
    found = [each for each in server.catalogued.views() if token.allows("read", each.name, of(each.name))]
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
        about = dict.fromkeys(("version", "event_time", "freshness_ms", "rows", "rows_per_second", "replica"))
        return {"name": name, "kind": "view", "pipeline": definition.pipeline, "state": "partial", **about}
    standing = server.standing(server.catalogued.relation(definition.name))
    replica = server.replicas.find(definition.name)
    moving = pace(server.lake.table(definition.name), log.now_ms())
    return {
        "name": name,
        "kind": "view" if isinstance(definition, View) else definition.kind,
        "pipeline": definition.pipeline,
        "version": standing.version if standing else None,
        "event_time": instant(standing.event_time) if standing else None,
        "freshness_ms": age_ms(standing.committed) if standing else None,
        "rows": moving.rows if moving else None,
        "rows_per_second": moving.rows_per_second if moving else None,
        "replica": {"phase": replica.phase, "version": replica.version} if replica else None,
    }
