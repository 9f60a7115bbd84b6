"""`GET /v1/lineage`: from which topics each view comes, and who reads it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.catalog.lineage import lineage
from strandline.jobs.serve.format import to_json
from strandline.jobs.server.http.requests import reader_of, server_of
from strandline.state_store.delta import log
from strandline.state_store.leases import living

if TYPE_CHECKING:
    from strandline.jobs.catalog.lineage import Node
    from strandline.jobs.server.state.server import Server

router = APIRouter(tags=["views"])

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
