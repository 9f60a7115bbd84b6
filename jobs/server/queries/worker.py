"""The process that answers queries: one at a time, until its pipe is closed.

A single call of a function cannot be interrupted: LPAD to 2 GB ran for 112 s and took 4 GB in DuckDB 2.0, whatever its
memory limit. So a query runs where it can be killed, and under a limit of the operating system.
"""

from __future__ import annotations

import io
import resource
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from jobs.catalog.catalog import Catalog
from jobs.functions.python.register import Library
from jobs.model.serving_errors import Forbidden, RequestRefused
from jobs.serve.format import json_line
from jobs.serve.pull import answer
from jobs.serve.values import python_rows
from jobs.sql.statements import parse
from jobs.sql.syntax import Select
from state_store.errors import StrandlineError
from state_store.layout import Lake

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from jobs.model.settings import Settings
    from jobs.serve.limits import Limits
    from jobs.serve.pull import Answer
    from jobs.server.access.tokens import Token

_BESIDE_BYTES = 3 << 30
"""What the process has beside a query's own memory: its libraries, and the answer in two forms."""


@dataclass(frozen=True)
class Asked:
    """One query, as it is sent to the process. `token` is whose it is."""

    text: str
    limits: Limits
    token: Token
    arrow: bool


@dataclass(frozen=True)
class Answered:
    """One answer, as it comes back: the rows as JSON lines joined by commas, or as an Arrow stream."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    body: bytes
    versions: dict[str, int]
    committed: int | None
    event_time: int | None


def serve(pipe: Connection, settings: Settings, memory_bytes: int | None) -> None:
    """Answer queries until the other end is closed; what is sent back is `Answered` or the error."""
    # Ctrl-C in a terminal goes to all its processes: the server ends this one when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if memory_bytes is not None:
        most = memory_bytes * 2 + _BESIDE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_answered(asked, settings))
        except StrandlineError as error:
            pipe.send((type(error), error.message, error.where, error.hint))


def _answered(asked: Asked, settings: Settings) -> Answered:
    lake = Lake(settings.lake)
    catalog = Catalog(lake)
    statement = _select(asked.text)
    _check_allowed(statement, asked.token)
    functions = Library(catalog.functions.values(), settings.functions.modules)
    found = answer(statement, catalog, lake, functions, asked.limits)
    body = _arrow(found) if asked.arrow else _json(found)
    types = tuple(str(sql_type) for sql_type in found.types)
    return Answered(found.names, types, body, found.cut.versions, found.cut.committed, found.cut.event_time)


def _select(text: str) -> Select:
    statements = parse(text)
    if len(statements) != 1 or not isinstance(statements[0], Select) or statements[0].emit is not None:
        raise RequestRefused(
            "the text is not one SELECT that ends",
            hint="changes are at GET /v1/views/{view}/changes, inserts at POST /v1/streams/{stream}",
        )
    return statements[0]


def _check_allowed(statement: Select, token: Token) -> None:
    """Every name in FROM counts, also one that stands for a subquery: names are cheap to scope."""
    named = {table.name for table in statement.query.find_all(exp.Table)}
    subqueries = {cte.alias for cte in statement.query.find_all(exp.CTE)}
    refused = sorted(name for name in named - subqueries if not token.allows("read", name))
    if refused:
        raise Forbidden(
            f"the token does not allow to read '{refused[0]}'", hint=f"it needs the scope read:{refused[0]}"
        )


def _json(found: Answer) -> bytes:
    rows = python_rows(found.table, found.types)
    return ", ".join(json_line(found.names, row) for row in rows).encode()


def _arrow(found: Answer) -> bytes:
    import pyarrow as pa

    sink = io.BytesIO()
    table = found.table.rename_columns(list(found.names))
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
