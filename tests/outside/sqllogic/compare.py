"""Comparison of our rows with the lines of an answer, by the file's rules.

The file has texts, we have values: a text is read as what stands in our column. Numbers are equal whatever their scale;
a DOUBLE to nine digits, or to the places that the file shows. Where the file's line cannot be cut into cells, the texts
of whole lines are compared.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from tests.outside.sqllogic.script import Query

Cells = list[str | None]

HASH: Final = re.compile(r"\d+ values hashing to [0-9a-f]{32}")
_PATTERN: Final = re.compile(r"<(!?)REGEX>:(.*)", re.DOTALL)
_DAY_AND_TIME: Final = re.compile(r"(?<=\d\d\d\d-\d\d-\d\d) (?=\d\d:\d\d)")
_UTC: Final = re.compile(r"(:\d\d(?:\.\d+)?)\+00(?::00)?\b")
"""The zone of a time that stands inside of an array or struct."""
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_RELATIVE: Final = 1e-9
# Files state floats of 32 bits with as many digits as those have.
_RELATIVE_OF_FLOATS: Final = 2e-6


def rows_of(query: Query, columns: int) -> list[Cells] | None:
    """The rows that a query's lines state; None: they cannot be cut into that many cells."""
    assert query.lines is not None
    lines = query.lines
    cut: list[Cells]
    if query.form == "barred":
        cut = [[cell.strip() or None for cell in line.split("|")] for line in lines]
    elif query.form == "tabbed":
        cut = [list(line.split("\t")) for line in lines]
        if any(len(row) != columns for row in cut) and all(len(row) == 1 for row in cut) and columns:
            values = [row[0] for row in cut]
            cut = [values[at : at + columns] for at in range(0, len(values), columns)]
    else:
        cut = [[line.strip()] if columns == 1 else list(_DAY_AND_TIME.sub("T", line).split()) for line in lines]
    found = [[None if cell == "NULL" else "" if cell == "(empty)" else cell for cell in row] for row in cut]
    return found if all(len(row) == columns for row in found) else None


def problem(query: Query, rows: Sequence[Sequence[Any]], columns: int) -> str:
    """How our rows differ from the file's as multisets; empty: they do not."""
    assert query.lines is not None
    if len(rows) != len(query.lines) and not (query.form == "tabbed" and len(query.lines) == len(rows) * columns):
        return f"{len(rows)} rows, not {len(query.lines)}: {shown(rows)}"
    stated = rows_of(query, columns)
    if stated is None:
        theirs = sorted(" ".join(line.split()) for line in query.lines)
        ours = (sorted(_line(row, spell) for row in rows) for spell in (_text, _braced, _as_row))
        return "" if any(_lines_alike(each, theirs) for each in ours) else f"{shown(rows)}"
    return unmatched(stated, rows)


def unmatched(stated: Sequence[Cells], rows: Sequence[Sequence[Any]]) -> str:
    """How rows differ from stated ones as multisets; empty: they do not."""
    if len(stated) != len(rows):
        return f"{len(rows)} rows, not {len(stated)}: {shown(rows)}"
    left = list(stated)
    for row in rows:
        at = next((place for place, each in enumerate(left) if _same_row(each, row)), None)
        if at is None:
            return f"{_line(row)!r} is not stated; left {left[:3]}"
        left.pop(at)
    return ""


def same_but_spelled(query: Query, rows: Sequence[Sequence[Any]]) -> bool:
    """True if the rows are equal but for the spelling of times, NaN, infinity and nested values inside of texts."""
    stated = rows_of(query, len(rows[0])) if rows else None
    if stated is None or not any(isinstance(value, str | dt.time) for row in rows for value in row):
        return False
    spelled = [[None if cell is None else _spelled(cell) for cell in row] for row in stated]
    ours = [[_spelled(str(v)) if isinstance(v, str | dt.date | dt.time) else v for v in row] for row in rows]
    return not unmatched(spelled, ours)


def _spelled(text: str) -> str:
    """A text in one spelling: times with their milliseconds, other words without brackets and quotes, in lower case."""
    moment, time = _moment(text), _time(text)
    if moment is not None:
        return moment.isoformat(timespec="milliseconds")
    if time is not None:
        return time.isoformat(timespec="milliseconds")
    plain = re.sub(r"^Struct(?=\{)", "", text)
    if plain[:1] in ("[", "{", "("):
        return re.sub(r"[\[\]{}()\s'\"]", "", plain).replace("=", ":").lower()
    return {"infinity": "inf", "-infinity": "-inf"}.get(text.lower(), text.lower() if text.lower() == "nan" else text)


def out_of_order(stated: Sequence[Cells], rows: Sequence[Sequence[Any]], places: Sequence[int]) -> bool:
    """True if the rows come in another order, as far as the columns at these places tell."""
    if all(_same_row(each, row) for each, row in zip(stated, rows, strict=True)):
        return False
    return not all(_same(each[at], row[at]) for each, row in zip(stated, rows, strict=True) for at in places)


def shown(rows: Sequence[Sequence[Any]]) -> str:
    """The first rows, as text."""
    return "; ".join(_line(row) for row in rows[:4]) + ("; …" if len(rows) > 4 else "")


def _same_row(stated: Cells, row: Sequence[Any]) -> bool:
    return all(_same(cell, value) for cell, value in zip(stated, row, strict=True))


def _same(stated: str | None, value: Any) -> bool:
    if stated is None or value is None:
        return stated is None and value in (None, "", "NULL")
    pattern = _PATTERN.fullmatch(stated)
    if pattern:
        return (re.fullmatch(pattern[2], _text(value), re.DOTALL) is not None) != bool(pattern[1])
    if isinstance(value, dt.date | dt.time):
        return _same_time(stated, value)
    match value:
        case bool():
            return stated.lower() in (("true", "t", "1") if value else ("false", "f", "0"))
        case int() | Decimal():
            return _same_number(stated, Decimal(value))
        case float():
            return _same_double(stated, value)
        case str():
            value = _without_nul(value)
            return stated == value or " ".join(stated.split()) == " ".join(value.split())
        case bytes():
            return _bytes(stated) == value or stated == value.decode(errors="replace")
        case _:
            return _same_nested(stated, value)


def _same_nested(stated: str, value: Any) -> bool:
    items = _items(stated) if isinstance(value, list) else None
    if items is not None:
        return len(items) == len(value) and all(map(_same, items, value))
    return _plain(stated) in [
        _plain(_without_nul(spell(value))) for spell in (_text, _braced, _as_row, _as_named_row, _quoted)
    ]


def _without_nul(text: str) -> str:
    """A text as files write it, which spell the character 0."""
    return text.replace("\0", "\\0")


def _same_time(stated: str, value: dt.date | dt.time) -> bool:
    match value:
        case dt.datetime():
            return _moment(stated) == value.replace(tzinfo=None)
        case dt.date():
            return _moment(stated) == dt.datetime.combine(value, dt.time())
        case _:
            return _time(stated) == value


def _same_number(stated: str, value: Decimal) -> bool:
    found = _number(stated)
    if found is None:
        return False
    if not value.is_finite() or not found.is_finite():
        return str(found) == str(value)
    if found == value:
        return True
    # A sum or a mean that the file has as a DOUBLE.
    return "." in stated and _close(float(found), float(value), _RELATIVE, stated)


def _same_double(stated: str, value: float) -> bool:
    found = _number(stated)
    if found is None:
        return False
    if math.isnan(value) or found.is_nan():
        return math.isnan(value) and found.is_nan()
    return float(found) == value or _close(float(found), value, _RELATIVE_OF_FLOATS, stated)


def _close(found: float, value: float, relative: float, stated: str) -> bool:
    if math.isclose(found, value, rel_tol=relative, abs_tol=1e-12):
        return True
    places = len(stated.partition(".")[2]) if "." in stated and "e" not in stated.lower() else 0
    return places >= 3 and math.isfinite(value) and abs(found - value) <= 0.5000001 * 10**-places


def _number(text: str) -> Decimal | None:
    try:
        return Decimal({"true": "1", "false": "0"}.get(text.lower(), text.strip()))
    except InvalidOperation:
        return None


def _moment(text: str) -> dt.datetime | None:
    plain = re.sub(r"(?:Z|[+-]00(?::?00)?)$", "", text.strip())
    try:
        return dt.datetime.fromisoformat(re.sub(r"\.(\d{1,6})\d*$", lambda found: "." + found[1].ljust(6, "0"), plain))
    except ValueError:
        return None


def _time(text: str) -> dt.time | None:
    try:
        return dt.time.fromisoformat(text.strip())
    except ValueError:
        return None


def _items(text: str) -> list[str | None] | None:
    """The items of an array as PostgreSQL writes it, `{a,NULL,"b c"}`; None where it is none, or one of arrays."""
    if not (text.startswith("{") and text.endswith("}")) or "{" in text[1:] or ": " in text:
        return None
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,]+)', text[1:-1])
    return [
        re.sub(r"\\(.)", r"\1", quoted) if not plain else None if plain == "NULL" else plain for quoted, plain in found
    ]


def _bytes(text: str) -> bytes | None:
    if re.fullmatch(r"\\x(?:[0-9a-fA-F]{2})*", text) and "\\x" not in text[2:]:
        return bytes.fromhex(text[2:])
    try:
        return re.sub(rb"\\x([0-9a-fA-F]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode("latin-1"))
    except UnicodeEncodeError:
        return None


def _line(row: Sequence[Any], spell: Callable[[Any], str] | None = None) -> str:
    return " ".join(" ".join((spell or _text)(value).split()) if value != "" else "(empty)" for value in row)


def _lines_alike(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    return len(ours) == len(theirs) and sorted(map(_plain, ours)) == sorted(map(_plain, theirs))


def _plain(text: str) -> str:
    """A text without quotes and white space, its numbers in one spelling."""
    text = re.sub(r"\b(t|f)\b", lambda found: {"t": "true", "f": "false"}[found[0]], text)
    text = _UTC.sub(r"\1", text)
    if "{" in text:
        text = text.replace("=", ":")  # a MAP, which Python cannot tell from a STRUCT
    text = _NUMBER.sub(lambda found: f"{float(found[0]):.9g}", text)
    return re.sub(r"""[\s'"]""", "", text).lower()


def _text(value: Any) -> str:
    """A value as DuckDB writes it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(" ")
        case list() | tuple():
            return f"[{', '.join(_text(each) for each in value)}]"
        case dict():
            return "{" + ", ".join(f"{_text(name)}: {_text(each)}" for name, each in value.items()) + "}"
        case bytes():
            return "".join(chr(each) if 32 <= each < 127 else f"\\x{each:02X}" for each in value)
        case _:
            return str(value)


def _as_row(value: Any) -> str:
    """A value as DuckDB writes it, structs without the names of their fields, as those of ROW (…) are."""
    match value:
        case list() | tuple():
            return f"[{', '.join(_as_row(each) for each in value)}]"
        case dict():
            return f"({', '.join(_as_row(each) for each in value.values())})"
        case _:
            return _text(value)


def _as_named_row(value: Any) -> str:
    """The same, where structs inside have names for their fields."""
    match value:
        case list() | tuple():
            return f"[{', '.join(_as_named_row(each) for each in value)}]"
        case dict() if list(value) == [f"f{place}" for place in range(1, len(value) + 1)]:
            return f"({', '.join(_as_named_row(each) for each in value.values())})"
        case dict():
            return "{" + ", ".join(f"{_text(name)}: {_as_named_row(each)}" for name, each in value.items()) + "}"
        case _:
            return _text(value)


def _braced(value: Any) -> str:
    """A value as PostgreSQL writes it."""
    match value:
        case list() | tuple():
            return "{" + ",".join(_braced(each) for each in value) + "}"
        case dict():
            return "(" + ",".join("" if each is None else _braced(each) for each in value.values()) + ")"
        case _:
            return _text(value)


def _quoted(value: Any) -> str:
    """A value as PostgreSQL writes it, with signs of quotation where a text needs them."""
    match value:
        case list() | tuple():
            return "{" + ",".join(_in_quotes(_quoted(each), '\\"') for each in value) + "}"
        case dict():
            parts = ("" if each is None else _in_quotes(_quoted(each), '""') for each in value.values())
            return f"({','.join(parts)})"
        case _:
            return _text(value)


def _in_quotes(text: str, quote: str) -> str:
    if text and not re.search(r"""[\s,(){}"\\]""", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', quote) + '"'
