"""The way of a request to its endpoint: measured and logged, and without FastAPI where there are thousands a second.

Of every request are known its route, its status, how long it took, and the bytes of its answer.

FastAPI 0.165 matches the routes of an included router twice, opens three exit stacks for a request and solves
dependencies of which there are none. Here a route stands in the application itself, and starlette calls its endpoint.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.routing import request_response

from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.server.http.answers import failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import APIRouter, FastAPI
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from strandline.jobs.server.state.metrics import Metrics


class DirectRoute(APIRoute):
    """A route whose endpoint gets the request and the parameters of its path, texts as they are."""

    def __init__(self, path: str, endpoint: Callable[..., Awaitable[Response]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def called(request: Request) -> Response:
            return await endpoint(request, **request.path_params)

        self.app = request_response(called)


def add_routes(app: FastAPI, router: APIRouter) -> None:
    """Add a router's routes to the application, each as it is: nothing is matched twice."""
    app.router.routes.extend(router.routes)


log = logging.getLogger("strandline.server")


def answered(metrics: Metrics, route: str, status: int, seconds: float, size: int) -> None:
    """Count and log one request that was answered with so many bytes."""
    metrics.answered(route, status, seconds, size)
    if log.isEnabledFor(logging.INFO):
        log.info("request", extra={"route": route, "status": status, "ms": round(seconds * 1000, 2), "bytes": size})


class Measured:
    """Measures each request. Not starlette's own base class, which puts a task between client and route."""

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
            answered(scope["app"].state.server.metrics, route, status, time.perf_counter() - begun, size)
