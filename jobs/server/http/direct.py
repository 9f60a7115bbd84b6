"""Routes without FastAPI's way to an endpoint, for requests of which there are thousands a second.

FastAPI 0.165 matches the routes of an included router twice, opens three exit stacks for a request and solves
dependencies of which there are none. Here a route stands in the application itself, and starlette calls its endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.routing import request_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import APIRouter, FastAPI
    from starlette.requests import Request
    from starlette.responses import Response


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
