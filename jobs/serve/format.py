"""The text forms of values and rows: JSON for scripts, a table for people.

JSON: numbers are numbers, DECIMAL with every digit it has; TIMESTAMP and DATE are ISO text (UTC, no zone), TIME is
`HH:MM:SS.mmm`, BYTES base64; ARRAY, MAP and STRUCT are arrays and objects. A DOUBLE without a JSON number is the text
`NaN`, `Infinity` or `-Infinity`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import unicodedata
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
