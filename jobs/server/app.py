"""The application: its routes, and what happens around every request.

request ──measured, logged──> route ──> answer      a typed error anywhere ──> its status, and its text as JSON
"""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from jobs.model.serving_errors import RequestRefused
from jobs.server.http.direct import add_routes
from jobs.server.http.failures import failure
from jobs.server.http.requests import allowed
from jobs.server.routes import changes, ksql, lineage, operating, page, query, rows, streams, views
from jobs.server.state.server import running
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from jobs.model.settings import Settings
    from jobs.server.access.options import ServerOptions

log = logging.getLogger("strandline.server")

# Routes are tried one after the other: look-ups first.
ROUTERS = (
    rows.router,
    page.router,
    views.router,
    query.router,
    streams.router,
    changes.router,
    lineage.router,
    ksql.router,
    operating.router,
)


def application(settings: Settings, options: ServerOptions) -> FastAPI:
    """The application; what it needs is opened when it starts, and closed when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(settings, options) as server:
            app.state.server = server
            yield

    app = FastAPI(title="Strandline", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    for router in ROUTERS:
        add_routes(app, router)

    @app.get("/v1/openapi.json", include_in_schema=False)
    async def description(request: Request) -> dict[str, Any]:
        allowed(request, "read", "openapi")
        return app.openapi()

    async def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, StrandlineError)
        return failure(error)

    app.add_exception_handler(StrandlineError, refused)
    app.add_middleware(_Measured)
    return app


class _Measured:
    """Measures and logs each request. Not starlette's own base class, which puts a task between client and route."""

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
            seconds = time.perf_counter() - begun
            metrics = scope["app"].state.server.metrics
            metrics.seconds.labels(route, str(status)).observe(seconds)
            metrics.sent.labels(route).inc(size)
            log.info("request", extra={"route": route, "status": status, "ms": round(seconds * 1000, 2), "bytes": size})
