"""The parameters that a route takes in its query string: declared with the route, so that the description of the API
has them, and every other is refused. What is ignored in silence looks as if it had been done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute

from strandline.jobs.model.errors import UnknownName
from strandline.jobs.serve.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Receive, Scope, Send

WAITING: Final = ("at_least", "max_staleness", "wait_ms", "cut")
"""What an answer must reflect, how far it may be behind, how long to wait for that, and the cut that it reads."""
WINDOWS: Final = ("window_start_from", "window_start_to", "window_end_from", "window_end_to")
"""The bounds of windows, in milliseconds."""


def parameters(*names: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes these parameters."""
    return {"parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]}


def refuse_others(app: FastAPI) -> None:
    """Have each route of an application refuse the parameters that it does not declare."""
    for route in app.router.routes:
        if isinstance(route, APIRoute) and not isinstance(route.app, _Declared):
            declared = (route.openapi_extra or {}).get("parameters", ())
            route.app = _Declared(route.app, tuple(each["name"] for each in declared))


@dataclass(frozen=True)
class _Declared:
    """A route's application behind a check that it takes every parameter of a request."""

    app: ASGIApp
    known: tuple[str, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"]:
            given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            check_known("parameter", (name for name, _ in given), self.known)
        await self.app(scope, receive, send)


def check_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Check that every name is known.

    Args:
        what: a name of these is, as errors say it.

    Raises:
        RequestRefused: one is not; the nearest are proposed.
    """
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        error = UnknownName.among(what, unknown, known)
        hint = error.hint or f"it takes no {what}"
        listed = f" ({', '.join(known)})" if known and "did you mean" in hint else ""
        raise RequestRefused(error.message, hint=hint + listed)
