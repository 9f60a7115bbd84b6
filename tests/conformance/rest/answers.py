"""Answers in ksqlDB's REST shape: reading them, and the first difference between two.

[{"header": {"schema": …}}, {"row": {"columns": […]}}, …, {"finalMessage": …}]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any

# Sums of doubles depend on the order of adding.
_RELATIVE = 1e-9

Row = tuple[tuple[Any, ...], bool]
"""Its columns, and whether its key was deleted."""


@dataclass(frozen=True)
class RestAnswer:
    """An answer: the columns as text, the rows, and what stands at its end."""

    schema: str
    rows: tuple[Row, ...]
    end: str | None

    @classmethod
    def read(cls, parts: Iterable[dict[str, Any]]) -> RestAnswer:
        """The answer that an array of parts is."""
        schema, rows, end = "", [], None
        for part in parts:
            if "header" in part:
                schema = str(part["header"]["schema"])
            elif "row" in part:
                row = part["row"]
                rows.append((tuple(map(_plain, row["columns"])), bool(row.get("tombstone"))))
            else:
                end = str(part.get("finalMessage", part))
        return cls(schema, tuple(rows), end)


def pulled(wanted: RestAnswer, got: RestAnswer, *, limited: bool) -> str | None:
    """The first difference between the answers of a pull query; None without one. Rows have no order; which of them a
    LIMIT lets through is free."""
    if wanted.schema != got.schema:
        return f"columns {got.schema}, expected {wanted.schema}"
    if limited and len(wanted.rows) == len(got.rows):
        return _ends(wanted, got)
    if not _alike(sorted(wanted.rows, key=_text), sorted(got.rows, key=_text)):
        return f"rows {got.rows}, expected {wanted.rows}"
    return _ends(wanted, got)


def pushed(wanted: RestAnswer, got: RestAnswer) -> str | None:
    """The first difference between the answers of a push query; None without one. ksqlDB sends an unchanged row again,
    a change feed does not: equal neighbours count once, and a limit that counts them is not reached."""
    if wanted.schema != got.schema:
        return f"columns {got.schema}, expected {wanted.schema}"
    once = _once(wanted.rows)
    if not _alike(once, _once(got.rows)):
        return f"rows {got.rows}, expected {once}"
    return _ends(wanted, got) if len(once) == len(wanted.rows) else None


def _ends(wanted: RestAnswer, got: RestAnswer) -> str | None:
    return None if wanted.end == got.end else f"ends with {got.end}, expected {wanted.end}"


def _once(rows: Sequence[Row]) -> list[Row]:
    return [next(group) for _, group in groupby(rows, key=_text)]


def _plain(value: Any) -> Any:
    """The value with the names of its fields folded: ours are in lower case."""
    match value:
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {name.lower(): _plain(item) for name, item in value.items()}
        case _:
            return value


def _text(row: Row) -> str:
    return repr((row[1], [float(each) if isinstance(each, int | float | Decimal) else each for each in row[0]]))


def _alike(one: Any, other: Any) -> bool:
    match one, other:
        case (list() | tuple(), list() | tuple()):
            return len(one) == len(other) and all(map(_alike, one, other))
        case (dict(), dict()):
            return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
        case (bool(), _) | (_, bool()):
            return one is other
        case (int() | float() | Decimal(), int() | float() | Decimal()):
            return one == other or math.isclose(one, other, rel_tol=_RELATIVE)
        case _:
            return bool(one == other)
