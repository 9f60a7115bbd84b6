"""ksqlDB's spelling of names, types and schemas, for clients that were written for it.

ksqlDB folds names to upper case, we to lower: its clients get, and send, upper. A name that was quoted stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi.routing import APIRoute
from starlette.responses import Response

from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.relation import WINDOW_BOUNDS
from strandline.jobs.model.types import BaseType
from strandline.jobs.server.http.answers import failure
from strandline.jobs.server.http.requests import server_of
from strandline.jobs.sql.size import too_deep
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from starlette.requests import Request

    from strandline.jobs.model.types import SqlType


_TYPES: Final = {BaseType.INT: "INTEGER", BaseType.VARCHAR: "STRING"}


OFFSET_RESETS: Final = ("ksql.streams.auto.offset.reset", "auto.offset.reset")
"""The properties of a push query by which it begins with the rows that are there."""
MAX_STALENESS: Final = "strandline.max_staleness"
PROPERTIES: Final = (*OFFSET_RESETS, MAX_STALENESS)
"""Those of queries; others are taken and mean nothing, as they may to ksqlDB."""


def shown_name(name: str) -> str:
    """As ksqlDB shows it: one that was not quoted in upper case."""
    return name.upper() if name == name.lower() else name


def given_name(name: str) -> str:
    """As the parser folds it; a name in backquotes stays."""
    return name[1:-1] if name.startswith("`") and name.endswith("`") and len(name) > 2 else name.lower()


def shown_type(sql_type: SqlType) -> str:
    """A type as ksqlDB writes it."""
    match sql_type.base:
        case BaseType.ARRAY | BaseType.MAP:
            return f"{sql_type.base}<{', '.join(map(shown_type, sql_type.args))}>"
        case BaseType.STRUCT:
            fields = (f"`{shown_name(name)}` {shown_type(inner)}" for name, inner in sql_type.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return _TYPES.get(sql_type.base, str(sql_type))


def schema(names: Sequence[str], types: Sequence[SqlType], key: Collection[str] = ()) -> str:
    """The columns of an answer in one text.

    Args:
        key: those of the table's key; the bounds of its window belong to it.
    """
    marked = {*key, *WINDOW_BOUNDS} if key else ()
    columns = (
        f"`{shown_name(name)}` {shown_type(sql_type)}{' KEY' if name in marked else ''}"
        for name, sql_type in zip(names, types, strict=True)
    )
    return ", ".join(columns)


def field_of(name: str, sql_type: SqlType, *, key: bool = False) -> dict[str, Any]:
    """A column as ksqlDB's clients read it."""
    found: dict[str, Any] = {"name": shown_name(name), "schema": _schema(sql_type)}
    return found | {"type": "KEY"} if key else found


def _schema(sql_type: SqlType) -> dict[str, Any]:
    """A type as ksqlDB's clients read it: its word, the fields of a STRUCT, the elements of an ARRAY or MAP."""
    base = sql_type.base
    fields = [field_of(name, inner) for name, inner in sql_type.fields] if base is BaseType.STRUCT else None
    member = _schema(sql_type.args[-1]) if sql_type.args else None
    word = str(base) if base in (BaseType.ARRAY, BaseType.MAP, BaseType.STRUCT, BaseType.DECIMAL) else None
    made = {"type": word or shown_type(sql_type), "fields": fields, "memberSchema": member}
    if base is BaseType.DECIMAL:
        made["parameters"] = {"precision": sql_type.precision, "scale": sql_type.scale}
    return made


# Failures of ksqlDB's routes in ksqlDB's shape, for clients that were written for it.
#
#     {"@type": "statement_error", "error_code": 40001, "message": …, "statementText": …, "entities": []}
#     {"@type": "generic_error", "error_code": 40000, "message": …}
#
# Beside these stand the members that the other routes have (`code`, `action`, `where`, `hint`).

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
