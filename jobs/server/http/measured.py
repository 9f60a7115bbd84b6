"""Every request measured and logged: its route, its status, how long it took, and the bytes of its answer."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.server.http.answers import failure

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from strandline.jobs.server.state.metrics import Metrics

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
