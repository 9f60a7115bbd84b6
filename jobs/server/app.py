"""The application: its routes, and what happens around every request.

request ──foreign page or host?──> 403 (`access.origins`)
   └─one key?──> answered here (`routes.point`)          both ways: measured, logged
        └─> FastAPI ──> route ──> answer                 a typed error anywhere ──> its status, and its text as JSON
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from strandline.jobs.serve.errors import Forbidden
from strandline.jobs.server.access.origins import Origins
from strandline.jobs.server.http.answers import failure
from strandline.jobs.server.http.description import described
from strandline.jobs.server.http.direct import add_routes
from strandline.jobs.server.http.measured import Measured
from strandline.jobs.server.http.requests import allowed, refuse_others, server_of
from strandline.jobs.server.postgres.listener import postgres
from strandline.jobs.server.routes import (
    changes,
    data_docs,
    ksql,
    ksql_statements,
    lineage,
    operating,
    page,
    query,
    rows,
    streams,
    views,
)
from strandline.jobs.server.routes.rows import PointLookups
from strandline.jobs.server.state.server import running
from strandline.jobs.sql.size import too_deep
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.server.access.options import ServerOptions

# Routes are tried one after the other: look-ups first.
ROUTERS = (
    rows.router,
    page.router,
    views.router,
    query.router,
    streams.router,
    changes.router,
    lineage.router,
    data_docs.router,
    ksql.router,
    ksql_statements.router,
    operating.router,
)


class _Application(FastAPI):
    """FastAPI's application, with the look-ups of one key in front of it. The description of its API has both."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origins: Origins | None = getattr(self.state, "origins", None)
        if scope["type"] in ("http", "websocket") and origins is not None:
            try:
                origins.check(scope)
            except Forbidden as error:
                if scope["type"] == "websocket":  # closed before it is accepted: 403
                    await send({"type": "websocket.close", "code": 1008, "reason": ""})
                else:
                    await failure(error)(scope, receive, send)
                return
        points: PointLookups | None = getattr(self.state, "points", None)
        if scope["type"] == "http" and points is not None and await points.answer(scope, send):
            return
        await super().__call__(scope, receive, send)


def application(settings: Settings, options: ServerOptions) -> FastAPI:
    """The application; what it needs is opened when it starts, and closed when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(settings, options) as server, postgres(server):
            app.state.server, app.state.points = server, PointLookups(server)
            app.state.origins = Origins(options.host, options.allowed_hosts)
            yield

    app = _Application(title="Strandline", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    for router in ROUTERS:
        add_routes(app, router)

    @app.get("/v1/openapi.json", include_in_schema=False)
    async def description(request: Request) -> dict[str, Any]:
        allowed(request, "read", "openapi")
        return described(app)

    refuse_others(app)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, StrandlineError)
        return failure(server_of(request).catalogued.catalog.name_map.localized_error(error))

    async def nested(request: Request, error: Exception) -> Response:
        del request, error
        return failure(too_deep(1, 1))

    app.add_exception_handler(StrandlineError, refused)
    app.add_exception_handler(RecursionError, nested)
    app.add_middleware(Measured)
    return app
