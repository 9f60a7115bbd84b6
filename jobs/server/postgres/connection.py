"""The messages of one client, in their order, and what goes back.

Query                                   T, D …, C for each statement, then Z
Parse, Bind, Describe, Execute, Sync    1, 2, t T, D … then C or s; after an error nothing until Sync; then Z
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from strandline.jobs.server.http.requests import STALLED_SECONDS
from strandline.jobs.server.postgres import messages
from strandline.jobs.server.postgres.asking import FewRows
from strandline.jobs.server.postgres.messages import fields_of, malformed, read_message
from strandline.jobs.server.postgres.parameters import Parameter
from strandline.jobs.server.postgres.rows import copied_rows, data_rows, few_rows
from strandline.jobs.server.postgres.session import Portal, told_of
from strandline.jobs.server.postgres.statements import (
    Copy,
    Declare,
    Done,
    Fetch,
    Query,
    SessionStatement,
    ShowSetting,
    statements,
)
from strandline.jobs.server.postgres.wire_types import TEXT_FORMAT, UNSPECIFIED, Refusal, SqlState, columns_of
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import pyarrow as pa

    from strandline.jobs.server.postgres.asking import Result
    from strandline.jobs.server.postgres.messages import Payload
    from strandline.jobs.server.postgres.session import ClientSession, Prepared

_TERMINATE: Final = b"X"
_QUERY: Final = b"Q"
_SYNC: Final = b"S"
_WARNING: Final = "01000"
_SHOW: Final = "SHOW"
_EMPTY: Final = SessionStatement("", 0, Done(""))
_WITH_ROWS: Final = (Query, ShowSetting, Fetch)
"""The statements that may have rows; the others do nothing before they are executed."""


class Connection:
    """One client after it was let in. `serve` is its whole life."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, session: ClientSession, most_bytes: int) -> None:
        self._reader = reader
        self._writer = writer
        self._session = session
        self._most_bytes = most_bytes
        self._skipping = False
        self._about = _EMPTY
        self._handlers: dict[bytes, Callable[[Payload], Awaitable[None]]] = {
            _QUERY: self._query,
            b"P": self._extended(self._parse),
            b"B": self._extended(self._bind),
            b"D": self._extended(self._describe),
            b"E": self._extended(self._execute),
            b"C": self._extended(self._close),
            b"H": self._flush,
            _SYNC: self._sync,
        }

    async def serve(self) -> None:
        """Answer until the client ends it.

        Raises:
            EOFError, OSError: the client has gone.
            Refusal: what it sent cannot be read on; it was told.
        """
        self._writer.write(messages.ready(self._session.status))
        while True:
            await self._taken()
            kind, payload = await read_message(self._reader, self._most_bytes)
            if kind == _TERMINATE:
                return
            if self._skipping and kind != _SYNC:
                continue
            handler = self._handlers.get(kind)
            if handler is None:
                raise malformed(f"a message of the kind {kind!r} is not taken")
            await handler(payload)

    async def _taken(self) -> None:
        """Wait until the client has taken most of what was written.

        Raises:
            TimeoutError: it takes nothing any more.
        """
        async with asyncio.timeout(STALLED_SECONDS):
            await self._writer.drain()

    async def _query(self, payload: Payload) -> None:
        self._about = _EMPTY
        try:
            for self._about in statements(payload.text()) or [_EMPTY]:
                result = await self._session.run(self._about)
                if result.columns is not None and result.copy is None:
                    self._writer.write(messages.row_description(result.columns, [TEXT_FORMAT] * len(result.columns)))
                await self._send(result, ())
        except StrandlineError as error:
            self._report(error)
        self._session.end_of_message()
        self._writer.write(messages.ready(self._session.status))

    def _extended(self, handler: Callable[[Payload], Awaitable[None]]) -> Callable[[Payload], Awaitable[None]]:
        """The handler of a message after whose error nothing counts until Sync."""

        async def handle(payload: Payload) -> None:
            self._about = _EMPTY
            try:
                await handler(payload)
            except StrandlineError as error:
                self._skipping = True
                self._report(error)

        return handle

    async def _parse(self, payload: Payload) -> None:
        name, text = payload.text(), payload.text()
        oids = tuple(payload.unsigned() for _ in range(payload.short()))
        if name and name in self._session.prepared:
            raise Refusal(SqlState.STATEMENT_TAKEN, f"there is a prepared statement '{name}' already")
        found = statements(text)
        if len(found) > 1:
            hint = "send them one by one, or all in one simple query"
            raise Refusal(SqlState.SYNTAX, "a prepared statement is one statement", hint=hint)
        self._session.prepare(name, found[0] if found else _EMPTY, oids)
        self._writer.write(messages.PARSE_COMPLETE)

    async def _bind(self, payload: Payload) -> None:
        name = payload.text()
        prepared = self._prepared(payload.text())
        forms = payload.shorts()
        values = [payload.value() for _ in range(payload.short())]
        forms = _for_each(forms, len(values))
        types = [*prepared.oids, *[UNSPECIFIED] * len(values)]
        parameters = tuple(map(Parameter, types, forms, values))
        if name and name in self._session.portals:
            raise Refusal(SqlState.CURSOR_TAKEN, f"there is a portal '{name}' already")
        size = sum(len(value) for value in values if value is not None)
        portal = Portal(prepared.statement, parameters, tuple(payload.shorts()), size=size, told=prepared.told)
        self._session.bind(name, portal)
        self._writer.write(messages.BIND_COMPLETE)

    async def _describe(self, payload: Payload) -> None:
        kind, name = payload.raw(1), payload.text()
        if kind == b"S":
            prepared = self._prepared(name)
            self._about = prepared.statement
            described = await self._session.describe(self._about, prepared.oids)
            self._writer.write(messages.parameters(described.parameters if described else ()))
            columns = columns_of(described.names, described.types) if described else None
            prepared.told = None if columns is None else told_of(columns)
            formats: Sequence[int] = ()
        else:
            portal = self._portal(name)
            known = portal.result is not None or isinstance(portal.statement.command, _WITH_ROWS)
            result = await self._session.result_of(portal) if known else None
            columns = None if result is None or result.copy is not None else result.columns
            formats = portal.formats
        if columns is None:
            self._writer.write(messages.NO_DATA)
        else:
            self._writer.write(messages.row_description(columns, _for_each(formats, len(columns))))

    async def _execute(self, payload: Payload) -> None:
        portal, most = self._portal(payload.text()), payload.number()
        await self._send(await self._session.result_of(portal), portal.formats, most or None)

    async def _close(self, payload: Payload) -> None:
        kind, name = payload.raw(1), payload.text()
        if kind == b"S":
            self._session.forget(name)
        else:
            self._session.close_portal(name)
        self._writer.write(messages.CLOSE_COMPLETE)

    async def _flush(self, _payload: Payload) -> None:
        """Nothing more than what follows every message: what is written is sent."""

    async def _sync(self, _payload: Payload) -> None:
        self._skipping = False
        self._session.end_of_message()
        self._writer.write(messages.ready(self._session.status))

    async def _send(self, result: Result, formats: Sequence[int], most: int | None = None) -> None:
        for warning in result.warnings:
            self._writer.write(messages.warning(_WARNING, warning))
        tag, left = result.tag, 0
        if result.columns is not None:
            rows = result.take(most if result.copy is None else None)
            with self._session.budget.holding(rows.nbytes):
                for piece in _pieces(rows, result, _for_each(formats, len(result.columns))):
                    self._writer.write(piece)
                    await self._taken()
            tag, left = f"{tag} {rows.num_rows}" if tag != _SHOW else tag, result.left
        for name, value in result.told.items():
            self._writer.write(messages.parameter_status(name, value))
        result.told.clear()
        if left:
            self._writer.write(messages.PORTAL_SUSPENDED)
        else:
            self._writer.write(messages.complete(tag) if tag else messages.EMPTY_QUERY)

    def _report(self, error: StrandlineError) -> None:
        """Tell the client of an error. A fatal one goes on: the connection ends with it."""
        self._session.failed()
        if isinstance(error, Refusal) and error.fatal:
            raise error
        command, text, begin = self._about.command, self._about.text, self._about.begin
        if isinstance(command, Declare | Copy):
            text, begin = command.query, begin + command.begin
        self._writer.write(messages.error(fields_of(error, text, begin)))

    def _prepared(self, name: str) -> Prepared:
        found = self._session.prepared.get(name)
        if found is None:
            raise Refusal(SqlState.UNKNOWN_STATEMENT, f"there is no prepared statement '{name}'")
        return found

    def _portal(self, name: str) -> Portal:
        found = self._session.portals.get(name)
        if found is None:
            raise Refusal(SqlState.UNKNOWN_CURSOR, f"there is no portal '{name}'")
        self._about = found.statement
        return found


def _pieces(rows: pa.Table | FewRows, result: Result, formats: Sequence[int]) -> Iterable[bytes | memoryview]:
    """The rows as messages."""
    assert result.columns is not None
    if result.copy is not None:
        return copied_rows(rows.table() if isinstance(rows, FewRows) else rows, result.columns, result.copy)
    if isinstance(rows, FewRows):
        return (few_rows(rows.rows, result.columns, formats),)
    return data_rows(rows, result.columns, formats)


def _for_each(formats: Sequence[int], count: int) -> list[int]:
    """A format for each value: none given is text, one is that of all.

    Raises:
        Refusal: there are as many as neither, or one is no format.
    """
    found = list(formats) * count if len(formats) == 1 else list(formats) or [TEXT_FORMAT] * count
    if len(found) != count or not {0, 1}.issuperset(found):
        raise Refusal(SqlState.PROTOCOL, f"{len(formats)} formats for {count} values, each text (0) or binary (1)")
    return found
