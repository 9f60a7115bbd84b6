"""Messages to a client, as bytes. Rows are `jobs.server.pg_values.rows`'s, which writes them by the thousand."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.server.pg_values.wire_types import WireColumn

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
