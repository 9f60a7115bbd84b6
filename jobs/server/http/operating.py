"""`/health`, `/ready` and `/metrics`: what operators and their tools ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from strandline.jobs.serve.results import to_json
from strandline.jobs.server.http.requests import allowed, server_of

if TYPE_CHECKING:
    from strandline.jobs.server.state.server import Server

READY: Final = "ready"

router = APIRouter(tags=["operating"])


@router.get("/health")
async def health() -> Response:
    """200 as long as the process answers. Open to all: it says nothing else."""
    return Response('{"status": "up"}', media_type="application/json")


@router.get("/ready")
async def ready(request: Request) -> Response:
    """200 when every table is there and every replica that was begun answers; 503 while one is being restored or fails,
    and after a table was lost. Open to all: counts only."""
    found = await asyncio.to_thread(readiness, server_of(request))
    return Response(to_json(found), 200 if found["status"] == READY else 503, media_type="application/json")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """What the server measures, in Prometheus' text form. Needs the scope `operate`."""
    allowed(request, "operate", "metrics")
    return Response(generate_latest(server_of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)


def readiness(server: Server) -> dict[str, str | int]:
    """What `/ready` says: whether tables and replicas are as they should be, and how many are not."""
    phases = [replica.phase for replica in server.replicas.all() if not replica.absent]
    live, lost = phases.count("live"), len(server.lost())
    failing = phases.count("failed") + phases.count("late")
    status = READY if live == len(phases) else "replicas fail" if failing else "restoring"
    status = "tables are lost" if lost else status
    return {"status": status, "live": live, "failing": failing, "replicas": len(phases), "lost": lost}
