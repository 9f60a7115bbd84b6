"""`/health`, `/ready` and `/metrics`: what operators and their tools ask."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from jobs.serve.format import to_json
from jobs.server.http.requests import allowed, server_of

router = APIRouter(tags=["operating"])


@router.get("/health")
async def health() -> Response:
    """200 as long as the process answers. Open to all: it says nothing else."""
    return Response('{"status": "up"}', media_type="application/json")


@router.get("/ready")
async def ready(request: Request) -> Response:
    """200 when every replica that was begun answers; 503 while one is being restored. Open to all: counts only."""
    phases = [replica.phase for replica in server_of(request).replicas.all() if not replica.absent]
    live = phases.count("live")
    body = to_json({"status": "ready" if live == len(phases) else "restoring", "live": live, "replicas": len(phases)})
    return Response(body, 200 if live == len(phases) else 503, media_type="application/json")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """What the server measures, in Prometheus' text form. Needs the scope `operate`."""
    allowed(request, "operate", "metrics")
    return Response(generate_latest(server_of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)
