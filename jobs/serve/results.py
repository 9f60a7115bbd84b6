"""The results of statements: messages, documents, rows and live rows, and their text for scripts and for people.

JSON: numbers are numbers, DECIMAL with every digit it has; TIMESTAMP and DATE are ISO text (UTC, no zone), TIME is
`HH:MM:SS.mmm`, BYTES base64; ARRAY, MAP and STRUCT are arrays and objects. A DOUBLE without a JSON number is the text
`NaN`, `Infinity` or `-Infinity`.

The text of an Arrow table is made column by column, so that a column of plain values never becomes Python objects:

objects   {"town": "Rome", "n": 3}      the text of `RowText`, in a sixth of its time
arrays    ["Rome", 3]                   that of `to_json`
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.types import BaseType, SqlType
from strandline.state_store.python_values import python_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa


@dataclass(frozen=True)
class Message:
    """A sentence for the user, not data."""

    text: str


@dataclass(frozen=True)
class Document:
    """One thing described: `data` for scripts (one JSON object), `text` for people."""

    data: dict[str, Any]
    text: str


@dataclass(frozen=True)
class Rows:
    """The rows of an answer.

    Attributes:
        names: one name for each value of a row.
        rows: values as Arrow's `to_pylist(maps_as_pydicts="lossy")` returns them, and `datetime.time` for TIME.
        note: a sentence for people beside them.
    """

    names: tuple[str, ...]
    rows: Iterable[Sequence[object]]
    note: str = ""


@dataclass(frozen=True)
class Tombstone:
    """The deletion of a key: `row` keeps the columns of the key, the others are None."""

    row: tuple[object, ...]


@dataclass(frozen=True)
class Weighted:
    """A change of rows that no key tells apart: one row equal to `row` more (1) or less (-1)."""

    row: tuple[object, ...]
    weight: int


@dataclass(frozen=True)
class LiveRows:
    """The changes of a push query as they arrive, perhaps without end: each must be written at once.

    Attributes:
        rows: a bare row is an event of a stream, or the row of its key from now on.
        marked: the rows are `Weighted`, or their columns leave no place where a tombstone shows: whoever prints them
            marks each.
    """

    names: tuple[str, ...]
    rows: Iterator[tuple[object, ...] | Tombstone | Weighted]
    marked: bool = False


Result = Message | Document | Rows | LiveRows


# One encoder: `json.dumps` makes one for each call with an option.
_TO_JSON: Final = json.JSONEncoder(ensure_ascii=False).encode


def to_json(value: object) -> str:
    """One value as JSON text.

    Args:
        value: as Arrow's `to_pylist(maps_as_pydicts="lossy")` returns it: MAP and STRUCT are dicts.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _double(value)
        case Decimal():
            return f"{value:f}"
        case list():
            return f"[{', '.join(to_json(item) for item in value)}]"
        case dict():
            return _object((_map_key(key), item) for key, item in value.items())
        case _:
            return _TO_JSON(_text(value))


def json_line(names: Sequence[str], row: Sequence[object]) -> str:
    """One row as a JSON object on one line."""
    return _object(zip(names, row, strict=True))


def cell(value: object) -> str:
    """One value as text for people: without quotes, control characters escaped."""
    if isinstance(value, str | bytes | dt.date | dt.time):
        text = _text(value)
    else:
        text = "null" if value is None else to_json(value)
    return "".join(_visible(char) for char in text)


class TextTable:
    """A table of rows under a header, as ksqlDB's shell prints it.

        +------------+------------------+
        |package_id  |current_location  |
        +------------+------------------+
        |1           |Rome              |

    Widths are fixed when the header is written, so that rows can be printed as they arrive; a longer cell wraps.
    """

    def __init__(self, names: Sequence[str], widths: Sequence[int]) -> None:
        self._names = [cell(name) for name in names]
        self._widths = list(widths)
        self.rule = "".join(f"+{'-' * width}" for width in self._widths) + "+"

    @classmethod
    def fitting(cls, names: Sequence[str], rows: Iterable[Sequence[str]]) -> TextTable:
        """A table as wide as its rows need; `rows` are cells."""
        widths = [display_width(cell(name)) for name in names]
        for row in rows:
            widths = [max(width, display_width(text)) for width, text in zip(widths, row, strict=True)]
        return cls(names, [width + _PADDING for width in widths])

    @classmethod
    def within(cls, names: Sequence[str], columns: int) -> TextTable:
        """A table for rows that are not known yet, in a terminal of so many columns."""
        share = (columns - 1) // max(len(names), 1) - 1
        widths = (max(min(share, _WIDEST), _NARROWEST, display_width(cell(name)) + _PADDING) for name in names)
        return cls(names, list(widths))

    def header(self) -> str:
        return "\n".join((self.rule, self.line(self._names), self.rule))

    def line(self, row: Sequence[str]) -> str:
        """One row of cells; several lines when a cell is longer than its column."""
        pieces = [_wrap(text, width) for text, width in zip(row, self._widths, strict=True)]
        height = max((len(piece) for piece in pieces), default=1)
        lines = []
        for number in range(height):
            texts = (piece[number] if number < len(piece) else "" for piece in pieces)
            lines.append(f"|{'|'.join(map(_pad, texts, self._widths))}|")
        return "\n".join(lines)


_PADDING = 2
# A column narrower than a timestamp's date is hard to read; one wider than 60 leaves its neighbours no room.
_NARROWEST, _WIDEST = 12, 60
# Format characters that scripts and emoji need; others (reordering, invisible) could make one row look like another.
_JOINERS = "\u200c\u200d"


def display_width(text: str) -> int:
    """The number of terminal columns of a text: two for an East Asian wide character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _wrap(text: str, width: int) -> list[str]:
    pieces, current, used = [], "", 0
    for char in text:
        size = _char_width(char)
        if used + size > width:
            pieces.append(current)
            current, used = "", 0
        current += char
        used += size
    return [*pieces, current]


def _object(members: Iterable[tuple[str, object]]) -> str:
    inside = ", ".join(f"{_TO_JSON(name)}: {to_json(value)}" for name, value in members)
    return f"{{{inside}}}"


def _map_key(key: object) -> str:
    return _text(key) if isinstance(key, str | bytes | dt.date | dt.time) else to_json(key)


def _double(value: float) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return repr(value)


def _text(value: object) -> str:
    match value:
        case str():
            return value
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case dt.datetime():
            fine = "microseconds" if value.microsecond % 1000 else "milliseconds"
            return value.replace(tzinfo=None).isoformat(timespec=fine)
        case dt.time():
            fine = "microseconds" if value.microsecond % 1000 else "milliseconds"
            return value.isoformat(timespec=fine)
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)


def _visible(char: str) -> str:
    """The character, escaped if a terminal might act on it or hide it: rows may hold anybody's text."""
    hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs") and char not in _JOINERS
    return char.encode("unicode_escape").decode("ascii") if hidden else char


_MIDNIGHT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def python_rows(table: pa.Table, types: Sequence[SqlType]) -> list[tuple[object, ...]]:
    """The rows of `table` as tuples, MAP as dict and TIME as time of day.

    Args:
        types: the type of each column.
    """
    columns = [_values(table.column(place), sql_type) for place, sql_type in enumerate(types)]
    return list(zip(*columns, strict=True))


def _values(column: pa.ChunkedArray, sql_type: SqlType) -> list[Any]:
    values = python_values(column)
    return [shown(value, sql_type) for value in values] if _has_time(sql_type) else values


def _has_time(sql_type: SqlType) -> bool:
    inner = (*sql_type.args, *(field for _, field in sql_type.fields))
    return sql_type.base is BaseType.TIME or any(_has_time(each) for each in inner)


def shown(value: Any, sql_type: SqlType) -> Any:
    """A value with its MAPs as dicts and its TIMEs as times of day: those are stored as milliseconds, and only the type
    tells them apart."""
    if value is None:
        return None
    match sql_type.base:
        case BaseType.TIME:
            return (_MIDNIGHT + dt.timedelta(milliseconds=value)).time()
        case BaseType.ARRAY:
            return [shown(item, sql_type.args[0]) for item in value]
        case BaseType.MAP:
            pairs = value.items() if isinstance(value, dict) else value
            return {shown(key, sql_type.args[0]): shown(item, sql_type.args[1]) for key, item in pairs}
        case BaseType.STRUCT:
            return {name: shown(value[name], inner) for name, inner in sql_type.fields}
        case _:
            return value


# Rows as JSON text, for many rows of the same columns: how a column is written is chosen once.
#
# The text is that of `json_line` over `shown`, in a third of the time.


class RowText:
    """The writer of some columns.

    Args:
        columns: those that are wanted, in their order: each by its name in a row, or by its place.
        names: what they are called in the text, where that is not their name in a row.
    """

    def __init__(self, columns: Iterable[tuple[str | int, SqlType]], names: Sequence[str] | None = None) -> None:
        wanted = list(columns)
        shown = names or [str(name) for name, _ in wanted]
        self._members = [
            (name, f"{to_json(called)}: ", writer_of(sql_type))
            for (name, sql_type), called in zip(wanted, shown, strict=True)
        ]

    def of(self, row: Any) -> str:
        """One row, a mapping or a sequence, whose MAPs are lists of pairs, as a JSON object on one line."""
        members = [label + ("null" if row[name] is None else write(row[name])) for name, label, write in self._members]
        return f"{{{', '.join(members)}}}"


def writer_of(sql_type: SqlType) -> Callable[[Any], str]:
    """What writes a value that is not NULL, with its MAPs as lists of pairs, as JSON text."""
    match sql_type.base:
        case BaseType.INT | BaseType.BIGINT:
            return str
        case BaseType.VARCHAR:
            return encode_basestring
        case BaseType.BOOLEAN | BaseType.DOUBLE | BaseType.DECIMAL:
            return to_json
        case _:
            return lambda value: to_json(shown(value, sql_type))


_ESCAPED: Final = r'["\\\x00-\x1f]'
"""What a text in JSON cannot have as it is."""
_NULL: Final = "null"


def object_texts(table: pa.Table, types: Sequence[SqlType], names: Sequence[str]) -> Iterator[bytes]:
    """The rows as JSON objects on one line each.

    Args:
        types, names: one for each column.
    """
    labels = [f"{', ' if place else ''}{to_json(name)}: " for place, name in enumerate(names)]
    return _texts(table, types, labels, "{}")


def array_texts(table: pa.Table, types: Sequence[SqlType]) -> Iterator[bytes]:
    """The rows as JSON arrays on one line each; `types` has one for each column."""
    return _texts(table, types, [", " if place else "" for place in range(len(types))], "[]")


def _texts(table: pa.Table, types: Sequence[SqlType], labels: Sequence[str], brackets: str) -> Iterator[bytes]:
    import pyarrow.compute as pc

    for batch in table.to_batches():
        parts: list[pa.Array | str] = [brackets[0]]
        for label, column, sql_type in zip(labels, batch.columns, types, strict=True):
            parts += [label, _column(column, sql_type)]
        rows = pc.binary_join_element_wise(*parts, brackets[1], "")
        yield from rows.cast("binary").to_pylist()


def _column(column: pa.Array, sql_type: SqlType) -> pa.Array:
    """The text of each value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match sql_type.base:
        case BaseType.INT | BaseType.BIGINT | BaseType.BOOLEAN:
            return pc.fill_null(column.cast(pa.string()), _NULL)
        case BaseType.VARCHAR if not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
            return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), _NULL)
        case _:
            write = writer_of(sql_type)
            values = python_values(column, None)
            return pa.array([_NULL if value is None else write(value) for value in values], pa.string())
