r"""The parameters of a statement: bytes as a client sends them, and the SQL that stands for them.

    oid 23, binary, 00 00 00 05  ──read──> '5'  ──sql──> 5
    oid 17, text, '\x00ff'       ──read──> '\x00ff'  ──sql──> TO_BYTES('00ff', 'hex')

A value becomes a literal of its type and never a piece of text, so nothing in it can change what the statement means.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.server.postgres.rows import EPOCH_DAYS, EPOCH_MICROSECONDS, NUMERIC_BASE_DIGITS
from strandline.jobs.server.postgres.wire_types import NUMERIC, TEXT_FORMAT, UNSPECIFIED, Refusal, SqlState, element_oid

if TYPE_CHECKING:
    from collections.abc import Callable


# Arrays as PostgreSQL writes them: `{1,NULL,"a b"}`.

_ELEMENT: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+?))\s*(?:,|$)', re.S)


def array_elements(text: str) -> list[str | None]:
    """The elements of an array of one dimension.

    Raises:
        Refusal: it is none.
    """
    inside = text.strip()
    if not (inside.startswith("{") and inside.endswith("}")):
        raise _none(text)
    inside = inside[1:-1]
    found: list[str | None] = []
    place = 0
    while place < len(inside):
        element = _ELEMENT.match(inside, place)
        if element is None:
            raise _none(text)
        quoted, plain = element.groups()
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.S))
        else:
            found.append(None if plain.upper() == "NULL" else plain)
        place = element.end()
    return found


def _none(text: str) -> Refusal:
    return Refusal(SqlState.BAD_TEXT, f"the parameter '{text[:40]}' is no array of one dimension")


Plain = str | None | list[str | None]
"""A value as PostgreSQL's text, None for NULL; an array as a list of those."""

_UNIX: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_RANGES: Final = {BaseType.INT: 1 << 31, BaseType.BIGINT: 1 << 63}
_TRUE: Final = frozenset(("t", "true", "y", "yes", "on", "1"))
_FALSE: Final = frozenset(("f", "false", "n", "no", "off", "0"))
_ZONE: Final = re.compile(r"([+-]\d\d)$")
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T]00:00(?::00(?:\.0+)?)?)?(?: ?(?:[+-]\d\d(?::\d\d)?|Z))?")
"""pgJDBC writes a zone behind a date, others midnight: a date has neither."""
_AFTER_A_TIME: Final = re.compile(r"([+-]\d\d(:\d\d)?|Z)$")
_NOT_A_NUMBER: Final = 0xC000


@dataclass(frozen=True)
class Parameter:
    """One parameter as it was bound.

    Attributes:
        oid: of its type; 0 where the client leaves that to the server.
        form: text (0) or binary (1).
        value: None for NULL.
    """

    oid: int
    form: int
    value: bytes | None

    def told(self, oid: int) -> Parameter:
        """The parameter with the oid that the server has told the client, where the client gave none."""
        return self if self.oid != UNSPECIFIED else replace(self, oid=oid)

    def read(self) -> Plain:
        """The value.

        Raises:
            Refusal: the bytes are none of that type.
        """
        if self.value is None:
            return None
        if self.form == TEXT_FORMAT:
            text = _utf8(self.value)
            return text if element_oid(self.oid) is None else array_elements(text)
        if element_oid(self.oid) is not None:
            return _array(self.value)
        return _binary(self.oid, self.value)


def sql_of_value(value: Plain, sql_type: SqlType) -> str:
    """The value as a literal of the language.

    Raises:
        Refusal: it is no value of the type.
    """
    if isinstance(value, list):
        element = sql_type.args[0] if sql_type.args else t.VARCHAR
        return f"ARRAY[{', '.join(sql_of_value(each, element) for each in value)}]"
    if value is None:
        return "NULL" if sql_type.base is BaseType.NULL else f"CAST(NULL AS {sql_type})"
    try:
        return _WRITERS.get(sql_type.base, _quoted)(value)
    except (ValueError, InvalidOperation, OverflowError) as error:
        shown = value if len(value) <= 40 else f"{value[:40]}…"
        raise Refusal(SqlState.BAD_TEXT, f"the parameter '{shown}' is no {sql_type.base}") from error


def _whole(base: BaseType) -> Callable[[str], str]:
    def write(text: str) -> str:
        number = int(text)
        if not -_RANGES[base] <= number < _RANGES[base]:
            raise OverflowError
        return _signed(str(number))

    return write


def _signed(number: str) -> str:
    # `a -$1` must not become `a --5`, which begins a comment.
    return f"({number})" if number.startswith("-") else number


def _boolean(text: str) -> str:
    word = text.strip().lower()
    if word in _TRUE:
        return "TRUE"
    if word in _FALSE:
        return "FALSE"
    raise ValueError(text)


def _decimal(text: str) -> str:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return _signed(f"{number:f}")


def _double(text: str) -> str:
    return f"CAST('{float(text)!r}' AS DOUBLE)"


def _bytes(text: str) -> str:
    if not text.startswith("\\x"):
        raise ValueError(text)
    return f"TO_BYTES('{bytes.fromhex(text[2:]).hex()}', 'hex')"


def _date(text: str) -> str:
    found = _DATE.fullmatch(text)
    return f"CAST('{dt.date.fromisoformat(found[1] if found else text).isoformat()}' AS DATE)"


def _time(text: str) -> str:
    # As PostgreSQL reads a TIME: the zone is not looked at.
    return f"CAST('{dt.time.fromisoformat(_AFTER_A_TIME.sub('', text)).isoformat()}' AS TIME)"


def _timestamp(text: str) -> str:
    found = dt.datetime.fromisoformat(_ZONE.sub(r"\1:00", text))
    instant = found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)
    return f"CAST('{instant.replace(tzinfo=None).isoformat(timespec='microseconds')}' AS TIMESTAMP)"


def _quoted(text: str) -> str:
    if "\0" in text:
        raise ValueError(text)
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


_WRITERS: Final[dict[BaseType, Callable[[str], str]]] = {
    BaseType.BOOLEAN: _boolean,
    BaseType.INT: _whole(BaseType.INT),
    BaseType.BIGINT: _whole(BaseType.BIGINT),
    BaseType.DECIMAL: _decimal,
    BaseType.DOUBLE: _double,
    BaseType.BYTES: _bytes,
    BaseType.DATE: _date,
    BaseType.TIME: _time,
    BaseType.TIMESTAMP: _timestamp,
}


def _binary(oid: int, value: bytes) -> str:
    try:
        return _READERS.get(oid, _utf8)(value)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        message = f"the bytes of a parameter are no value of the type with the oid {oid}"
        raise Refusal(SqlState.BAD_BINARY, message) from error


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Refusal(SqlState.NOT_UTF8, "a parameter is not UTF-8") from error


def _number(form: str) -> Callable[[bytes], str]:
    return lambda value: str(struct.unpack(form, value)[0])


def _instant(value: bytes) -> str:
    (microseconds,) = struct.unpack("!q", value)
    return (_UNIX + dt.timedelta(microseconds=microseconds + EPOCH_MICROSECONDS)).isoformat()


def _day(value: bytes) -> str:
    (days,) = struct.unpack("!i", value)
    return (_UNIX + dt.timedelta(days=days + EPOCH_DAYS)).date().isoformat()


def _clock(value: bytes) -> str:
    (microseconds,) = struct.unpack("!q", value)
    return (_UNIX + dt.timedelta(microseconds=microseconds)).time().isoformat()


def _numeric(value: bytes) -> str:
    count, weight, mark, scale = struct.unpack("!hhHh", value[:8])
    if mark == _NOT_A_NUMBER:
        return "NaN"
    digits = "".join(f"{each:04}" for each in struct.unpack(f"!{count}h", value[8:])) or "0"
    exponent = NUMERIC_BASE_DIGITS * (weight + 1 - count)
    return f"{Decimal((1 if mark else 0, tuple(map(int, digits)), exponent)):.{scale}f}"


_READERS: Final[dict[int, Callable[[bytes], str]]] = {
    16: lambda value: "t" if value != b"\0" else "f",
    17: lambda value: f"\\x{value.hex()}",
    20: _number("!q"),
    21: _number("!h"),
    23: _number("!i"),
    26: _number("!I"),
    700: _number("!f"),
    701: _number("!d"),
    1082: _day,
    1083: _clock,
    1114: _instant,
    1184: _instant,
    NUMERIC: _numeric,
    2950: lambda value: str(UUID(bytes=value)),
    3802: lambda value: _utf8(value[1:]),
}


def _array(value: bytes) -> list[str | None]:
    try:
        dimensions, _, oid = struct.unpack("!iiI", value[:12])
        if dimensions == 0:
            return []
        if dimensions != 1:
            raise Refusal(SqlState.NOT_SUPPORTED, "an array of more than one dimension is not taken as a parameter")
        (size,) = struct.unpack("!i", value[12:16])
        found: list[str | None] = []
        place = 20
        for _ in range(size):
            (length,) = struct.unpack("!i", value[place : place + 4])
            place += 4
            found.append(None if length < 0 else _binary(oid, value[place : place + length]))
            place += max(length, 0)
    except struct.error as error:
        raise Refusal(SqlState.BAD_BINARY, "the bytes of a parameter are no array") from error
    return found
