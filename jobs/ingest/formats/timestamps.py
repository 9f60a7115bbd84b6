"""WITH (TIMESTAMP='column', TIMESTAMP_FORMAT='pattern'): the event time of a record from one of its columns.

Patterns are those of Java's DateTimeFormatter, restricted to the letters in common use in ksqlDB:

    yyyy uuuu  year      MM M  month    dd d  day      DDD  day of the year    EEE EEEE  day of the week
    MMM MMMM   its name  HH H  hour     hh h  1 to 12  a    AM, PM             mm m  ss s  minute, second
    S … SSSSSS fraction of a second     X XX XXX x xx xxx Z ZZ ZZZ  offset     z VV  zone (UTC, GMT only)
    'text' '' and characters other than letters stand for themselves
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from strandline.jobs.ingest.formats.coerce import Misfit, coerce, microseconds
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import OptionRefused

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")
_LETTERS = {
    **dict.fromkeys(("yyyy", "uuuu", "y", "u"), "%Y"),
    **dict.fromkeys(("yy", "uu"), "%y"),
    **dict.fromkeys(("MM", "M"), "%m"),
    "MMM": "%b",
    "MMMM": "%B",
    **dict.fromkeys(("dd", "d"), "%d"),
    "DDD": "%j",
    **dict.fromkeys(("E", "EE", "EEE"), "%a"),
    "EEEE": "%A",
    **dict.fromkeys(("HH", "H"), "%H"),
    **dict.fromkeys(("hh", "h"), "%I"),
    "a": "%p",
    **dict.fromkeys(("mm", "m"), "%M"),
    **dict.fromkeys(("ss", "s"), "%S"),
    **dict.fromkeys(("S", "SS", "SSS", "SSSS", "SSSSS", "SSSSSS"), "%f"),
    **dict.fromkeys(("X", "XX", "XXX", "x", "xx", "xxx", "Z", "ZZ", "ZZZ"), "%z"),
    **dict.fromkeys(("z", "VV"), "%Z"),
}


def check_timestamp_format(pattern: str) -> str:
    """The pattern in the notation of Python's `strptime`.

    Raises:
        OptionRefused: it has a letter that is not in the table above.
    """
    parts: list[str] = []
    position = 0
    for piece in _PIECE.finditer(pattern):
        if piece.start() != position:
            break
        position = piece.end()
        text, letter, other = piece.group(1), piece.group(2), piece.group(3)
        if letter is None:
            literal = other if text is None else text.replace("''", "'") or "'"
            parts.append(literal.replace("%", "%%"))
        elif piece.group(0) in _LETTERS:
            parts.append(_LETTERS[piece.group(0)])
        else:
            raise OptionRefused(
                f"TIMESTAMP_FORMAT '{pattern}': '{piece.group(0)}' is not supported",
                hint="yyyy MM dd HH mm ss SSS XXX and quoted text are; see docs/sql.md",
            )
    if position != len(pattern):
        raise OptionRefused(f"TIMESTAMP_FORMAT '{pattern}': a quote is not closed")
    return "".join(parts)


def reader(pattern: str | None) -> Callable[[str], int]:
    """A function from the column's text to microseconds since the epoch; it raises Misfit. No pattern: ISO 8601."""
    if pattern is None:
        return lambda text: int(coerce(text, t.TIMESTAMP))
    notation = check_timestamp_format(pattern)

    # Neighbouring events often share their second.
    @lru_cache(maxsize=1024)
    def read(text: str) -> int:
        try:
            return microseconds(datetime.strptime(text, notation))  # noqa: DTZ007  (no zone means UTC)
        except (ValueError, OverflowError):
            raise Misfit(f"{text[:40]!r} is not a time in the format '{pattern}'") from None

    return read
