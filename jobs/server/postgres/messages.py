"""Messages of a client: their frames, and the values inside them; and errors as it knows them.

    ┌ kind ┬ length ──────┬ payload ┐
    │ 1 B  │ 4 B, itself  │         │     the messages before authentication have no kind
    └──────┴──────────────┴─────────┘

Described in PostgreSQL's documentation, "Frontend/Backend Protocol" → "Message Formats".

One mapping leads from typed errors to SQLSTATEs. The hint goes into the field HINT, the code (`sql.unknown_name`) and
the action into DETAIL, line and column into POSITION, which editors and psql point at.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.errors import (
    FunctionFailed,
    InvalidQuery,
    NotSupported,
    SourceUnavailable,
    SqlError,
    SqlSyntaxError,
    TypeMismatch,
    UnknownName,
)
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.serve import errors as serving
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState
from strandline.state_store import errors as store

if TYPE_CHECKING:
    from asyncio import StreamReader
    from collections.abc import Mapping, Sequence

    from strandline.jobs.server.postgres.wire_types import WireColumn


_LENGTH: Final = struct.Struct("!i")
_SHORT: Final = struct.Struct("!h")
_UNSIGNED: Final = struct.Struct("!I")
_MOST_STARTUP_BYTES: Final = 10_000
"""PostgreSQL's own limit of a startup packet."""


class Payload:
    """The payload of one message, read from its beginning to its end.

    Every method raises Refusal when the message ends before the value does, or a text is not UTF-8.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._place = 0

    @property
    def ended(self) -> bool:
        """True if nothing is left of it."""
        return self._place >= len(self._body)

    def raw(self, size: int) -> bytes:
        """So many bytes."""
        end = self._place + size
        if size < 0 or end > len(self._body):
            raise malformed("a message ends in the middle of a value")
        found = self._body[self._place : end]
        self._place = end
        return found

    def text(self) -> str:
        """A text that ends with a zero byte."""
        end = self._body.find(b"\0", self._place)
        if end < 0:
            raise malformed("a text in a message does not end")
        found = self.raw(end - self._place)
        self._place += 1
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            raise Refusal(SqlState.NOT_UTF8, "a text in a message is not UTF-8") from error

    def short(self) -> int:
        """A signed number of two bytes."""
        return int(_SHORT.unpack(self.raw(2))[0])

    def number(self) -> int:
        """A signed number of four bytes."""
        return int(_LENGTH.unpack(self.raw(4))[0])

    def unsigned(self) -> int:
        """A number of four bytes without a sign: an oid."""
        return int(_UNSIGNED.unpack(self.raw(4))[0])

    def value(self) -> bytes | None:
        """Bytes after their number; −1 stands for NULL."""
        size = self.number()
        return None if size == -1 else self.raw(size)

    def shorts(self) -> list[int]:
        """Numbers of two bytes each, after their count."""
        return [self.short() for _ in range(self.short())]


async def read_startup(reader: StreamReader) -> Payload:
    """The first message of a connection, or the one after a request for encryption.

    Raises:
        EOFError: the client has gone.
        Refusal: it is no message of this protocol.
    """
    return Payload(await _body(reader, _MOST_STARTUP_BYTES))


async def read_message(reader: StreamReader, most_bytes: int) -> tuple[bytes, Payload]:
    """The next message: its kind and its payload.

    Raises:
        EOFError: the client has gone.
        Refusal: it is longer than a message may be.
    """
    kind = await reader.readexactly(1)
    return kind, Payload(await _body(reader, most_bytes))


async def _body(reader: StreamReader, most_bytes: int) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if not _LENGTH.size <= length <= most_bytes:
        raise malformed(f"a message of {length:,} bytes is not taken", f"the longest has {most_bytes:,}")
    return await reader.readexactly(length - _LENGTH.size)


def malformed(message: str, hint: str | None = None) -> Refusal:
    """The error of a message that cannot be read: what follows it cannot be read either."""
    return Refusal(SqlState.PROTOCOL, message, hint=hint, fatal=True)


# Messages to a client, as bytes. Rows are `jobs.server.postgres.rows`'s, which writes them by the thousand.

ENCRYPTED: Final = b"S"
"""The answer to a request for TLS that is granted; it is no message."""
NOT_ENCRYPTED: Final = b"N"


def message(kind: bytes, body: bytes = b"") -> bytes:
    """One message: its kind, the length of all but the kind, the body."""
    return kind + struct.pack("!i", len(body) + 4) + body


AUTHENTICATED: Final = message(b"R", struct.pack("!i", 0))
ASK_PASSWORD: Final = message(b"R", struct.pack("!i", 3))
"""AuthenticationCleartextPassword: the server keeps a hash of a token alone, so it has to be sent the token itself."""
PARSE_COMPLETE: Final = message(b"1")
BIND_COMPLETE: Final = message(b"2")
CLOSE_COMPLETE: Final = message(b"3")
EMPTY_QUERY: Final = message(b"I")
NO_DATA: Final = message(b"n")
PORTAL_SUSPENDED: Final = message(b"s")


def parameter_status(name: str, value: str) -> bytes:
    """A setting and its value, told unasked."""
    return message(b"S", _text(name) + _text(value))


def backend_key(process: int, secret: bytes) -> bytes:
    """What a client sends in another connection to have a query cancelled."""
    return message(b"K", struct.pack("!i", process) + secret)


def only_version_3_0(options: Sequence[str]) -> bytes:
    """The newest minor version that is spoken, and the options of the startup that are not known."""
    return message(b"v", struct.pack("!ii", 3 << 16, len(options)) + b"".join(map(_text, options)))


def ready(status: bytes) -> bytes:
    """The next query may come. `status`: I outside of a transaction, T inside one, E inside one that has failed."""
    return message(b"Z", status)


def complete(tag: str) -> bytes:
    """The end of a statement, and what it did: `SELECT 12`."""
    return message(b"C", _text(tag))


def error(fields: Mapping[str, str]) -> bytes:
    """An error, its fields by their letters."""
    return message(b"E", _fields(fields))


def warning(state: str, text: str) -> bytes:
    """A warning beside the answer."""
    return message(b"N", _fields({"S": "WARNING", "V": "WARNING", "C": state, "M": text}))


def parameters(oids: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return message(b"t", struct.pack(f"!h{len(oids)}I", len(oids), *oids))


def row_description(columns: Sequence[WireColumn], formats: Sequence[int]) -> bytes:
    """The columns of the rows that follow; no table of PostgreSQL's is behind them."""
    fields = [
        _text(column.name) + struct.pack("!ihIhih", 0, 0, column.oid, column.size, column.modifier, form)
        for column, form in zip(columns, formats, strict=True)
    ]
    return message(b"T", struct.pack("!h", len(fields)) + b"".join(fields))


def _fields(fields: Mapping[str, str]) -> bytes:
    return b"".join(letter.encode() + _text(value) for letter, value in fields.items()) + b"\0"


def _text(value: str) -> bytes:
    # A zero byte ends a text, so none can be inside of one.
    return value.replace("\0", "").encode("utf-8", "replace") + b"\0"


_STATES: Final[dict[type[store.StrandlineError], SqlState]] = {
    serving.Unauthenticated: SqlState.WRONG_PASSWORD,
    serving.Forbidden: SqlState.FORBIDDEN,
    serving.TimeLimit: SqlState.CANCELLED,
    serving.Cancelled: SqlState.CANCELLED,
    serving.TooLarge: SqlState.TOO_LARGE,
    serving.Busy: SqlState.TOO_MANY_CONNECTIONS,
    serving.NotYet: SqlState.NOT_READY,
    serving.TooStale: SqlState.NOT_READY,
    serving.SnapshotExpired: SqlState.SNAPSHOT_TOO_OLD,
    serving.VersionNotKept: SqlState.SNAPSHOT_TOO_OLD,
    serving.NoConsistentSnapshot: SqlState.NOT_READY,
    serving.KeyRequired: SqlState.NOT_SUPPORTED,
    serving.RequestRefused: SqlState.NOT_SUPPORTED,
    SqlSyntaxError: SqlState.SYNTAX,
    UnknownName: SqlState.UNKNOWN_TABLE,
    TypeMismatch: SqlState.TYPE_MISMATCH,
    NotSupported: SqlState.NOT_SUPPORTED,
    InvalidQuery: SqlState.INVALID_QUERY,
    SqlError: SqlState.INVALID_QUERY,
    FunctionFailed: SqlState.INVALID_QUERY,
    SourceUnavailable: SqlState.NOT_READY,
    store.TableMissing: SqlState.UNKNOWN_TABLE,
    store.CorruptState: SqlState.CORRUPT,
    store.StrandlineError: SqlState.INTERNAL,
}


_UNKNOWN: Final = {
    "column": SqlState.UNKNOWN_COLUMN,
    "column of all branches": SqlState.UNKNOWN_COLUMN,
    "function": SqlState.UNKNOWN_FUNCTION,
    "window function": SqlState.UNKNOWN_FUNCTION,
    "type": SqlState.UNKNOWN_PARAMETER,  # PostgreSQL's word for any other object
}
_OF_ROWS: Final = {
    RowFault.BAD_TEXT: SqlState.BAD_TEXT,
    RowFault.BAD_TIME: SqlState.BAD_TIME,
    RowFault.DIVISION_BY_ZERO: SqlState.DIVISION_BY_ZERO,
    RowFault.NO_PATTERN: SqlState.NO_PATTERN,
    RowFault.SEVERAL_ROWS: SqlState.SEVERAL_ROWS,
    RowFault.NO_FRAME: SqlState.NO_FRAME,
    RowFault.TOO_LARGE: SqlState.TOO_LARGE,
    RowFault.TIME_OUT_OF_RANGE: SqlState.TIME_OUT_OF_RANGE,
    RowFault.BAD_ARGUMENT: SqlState.INVALID_VALUE,
    RowFault.OUT_OF_RANGE: SqlState.OUT_OF_RANGE,
    RowFault.UNKNOWN: SqlState.BAD_DATA,
}


def state_of(error: store.StrandlineError) -> SqlState:
    """The SQLSTATE of an error: that of its class, or of the nearest one above."""
    if isinstance(error, Refusal):
        return error.state
    if isinstance(error, serving.RowNotAnswered):
        return _OF_ROWS[error.fault]
    if isinstance(error, UnknownName):
        return _UNKNOWN.get(error.what, SqlState.UNKNOWN_TABLE)
    return next(_STATES[each] for each in type(error).__mro__ if each in _STATES)


def fields_of(error: store.StrandlineError, text: str, begin: int) -> dict[str, str]:
    """The fields of an ErrorResponse, by their letters.

    Args:
        text: that of the statement it is about.
        begin: where the statement begins in the text that the client sent, characters from 0.
    """
    fatal = isinstance(error, Refusal) and error.fatal
    severity = "FATAL" if fatal else "ERROR"
    fields = {"S": severity, "V": severity, "C": state_of(error), "M": error.message}
    if isinstance(error, Refusal) and error.routine is not None:
        fields["R"] = error.routine
    if not isinstance(error, Refusal):
        fields["D"] = f"code {error.code}, action {error.action}"
    if error.hint is not None:
        fields["H"] = error.hint
    if isinstance(error, SqlError) and error.line is not None:
        fields["P"] = str(begin + place_of(text, error.line, error.column or 1) + 1)
    elif isinstance(error, Refusal) and error.position is not None:
        fields["P"] = str(begin + error.position)
    return fields


def place_of(text: str, line: int, column: int) -> int:
    """The place in a text, characters from 0, of a line and a column from 1; its end when it has fewer."""
    lines = text.split("\n")
    before = sum(len(each) + 1 for each in lines[: line - 1])
    return min(before + column - 1, max(len(text) - 1, 0))


def line_and_column(text: str, place: int) -> tuple[int, int]:
    """The line and column, from 1, of a place in a text, from 0."""
    before = text[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
