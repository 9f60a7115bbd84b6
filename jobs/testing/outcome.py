"""The outcome of a step: tables as they are against what a test expects of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.stage_tables import letters_of, stage_tables
from strandline.jobs.serve.values import python_rows
from strandline.jobs.testing.compare import RowsDiffer, net, row_text, rows_differ
from strandline.state_store.delta import log, reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.testing.compare import Values
    from strandline.jobs.testing.typed import ExpectedRows, TypedExpected


@dataclass(frozen=True)
class Fault:
    """What is wrong with one table.

    Attributes:
        what: `rows`, `inserted`, `retracted` or `dead_letters`.
    """

    table: str
    what: str
    difference: RowsDiffer

    def lines(self) -> Iterator[str]:
        """The fault for people: a line for each row."""
        yield f"{self.what} of {self.table}:"
        yield from (f"  missing     {row_text(row)}" for row in self.difference.missing)
        yield from (f"  unexpected  {row_text(row)}" for row in self.difference.unexpected)

    def as_json(self) -> dict[str, Any]:
        """The fault as values of JSON."""
        missing, unexpected = (
            [row_text(row) for row in rows] for rows in (self.difference.missing, self.difference.unexpected)
        )
        return {"table": self.table, "what": self.what, "missing": missing, "unexpected": unexpected}


def versions_of(settings: Settings, expected: Sequence[TypedExpected]) -> dict[str, int | None]:
    """The newest version of each table; None where there is none yet."""
    lake = LakeLayout(settings.lake)
    return {each.table: log.newest_version(lake.table(each.table)) for each in expected}


def check(settings: Settings, expected: Sequence[TypedExpected], before: Mapping[str, int | None]) -> list[Fault]:
    """Compare tables with what is expected of them; empty when all is as expected.

    Args:
        before: the version of each table before the step.

    Raises:
        CorruptState, ForeignWrite, VersionGone: a table cannot be read.
    """
    lake = LakeLayout(settings.lake)
    found: list[Fault] = []
    for each in expected:
        if each.rows is not None:
            found += _fault(each, "rows", each.rows, _rows(lake, each))
        if each.inserted is not None or each.retracted is not None:
            inserted, retracted = net(_changes(lake, each, before[each.table]))
            if each.inserted is not None:
                found += _fault(each, "inserted", each.inserted, inserted)
            if each.retracted is not None:
                found += _fault(each, "retracted", each.retracted, retracted)
        if each.dead_letters is not None:
            found += _fault(each, "dead_letters", each.dead_letters, _dead_letters(lake, each.table))
    return found


def _fault(each: TypedExpected, what: str, wanted: ExpectedRows, actual: Sequence[Values]) -> list[Fault]:
    seen = [{column: row.get(column) for column in wanted.columns or row} for row in actual]
    difference = rows_differ(wanted.rows, seen)
    return [Fault(each.table, what, difference)] if difference else []


def _rows(lake: LakeLayout, each: TypedExpected) -> list[Values]:
    path = lake.table(each.table)
    return [] if log.newest_version(path) is None else _values(reader.read_rows(path, None, list(each.types)), each)


def _changes(lake: LakeLayout, each: TypedExpected, after: int | None) -> list[tuple[Values, int]]:
    path = lake.table(each.table)
    if log.newest_version(path) is None:
        return []
    changes = reader.read_changes(path, after)
    weights = changes.column(WEIGHT).to_pylist()
    return list(zip(_values(changes.select(list(each.types)), each), weights, strict=True))


def _values(rows: pa.Table, each: TypedExpected) -> list[Values]:
    return [dict(zip(each.types, row, strict=True)) for row in python_rows(rows, list(each.types.values()))]


def _dead_letters(lake: LakeLayout, table: str) -> list[Values]:
    """The rows on which an expression of the view fails, and their reasons as the member `reason`."""
    read = (
        reader.read_rows(lake.table(each), None, ["reason", "row"])
        for each in letters_of(lake, stage_tables(lake, table))
    )
    rows = [row for letters in read for row in letters.to_pylist()]
    return [{"reason": row["reason"], **json.loads(row["row"], parse_float=Decimal)} for row in rows]
