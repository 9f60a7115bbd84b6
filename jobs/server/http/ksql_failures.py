"""Failures of ksqlDB's routes in ksqlDB's shape, for clients that were written for it.

    {"@type": "statement_error", "error_code": 40001, "message": …, "statementText": …, "entities": []}
    {"@type": "generic_error", "error_code": 40000, "message": …}

Beside these stand the members that the other routes have (`code`, `action`, `where`, `hint`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi.routing import APIRoute
from starlette.responses import Response

from strandline.jobs.model.errors import SqlError
from strandline.jobs.server.http.failures import failure
from strandline.jobs.server.http.requests import server_of
from strandline.jobs.sql.size import too_deep
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.requests import Request

_BAD_STATEMENT: Final = 40001
"""Of ksqlDB's codes the one for whatever is wrong with a statement, also an unknown name; each has the status 400."""


class KsqlRoute(APIRoute):
    """A route that fails in ksqlDB's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except StrandlineError as error:
                return ksql_failure(server_of(request).catalogued.catalog.name_map.localized_error(error))
            except RecursionError:
                return ksql_failure(too_deep(1, 1))

        return handled


def ksql_failure(error: StrandlineError, statement: str = "") -> Response:
    """The answer to a request of a ksqlDB client that failed with this error.

    Args:
        statement: the text that failed, where it is one of several.
    """
    plain = failure(error)
    body = orjson.loads(plain.body)
    if isinstance(error, SqlError):
        plain.status_code = _BAD_STATEMENT // 100
        about = {"@type": "statement_error", "error_code": _BAD_STATEMENT, "statementText": statement, "entities": []}
    else:
        about = {"@type": "generic_error", "error_code": plain.status_code * 100}
    headers = {name: value for name, value in plain.headers.items() if name not in ("content-length", "content-type")}
    return Response(orjson.dumps({**about, **body}), plain.status_code, headers, "application/json")
