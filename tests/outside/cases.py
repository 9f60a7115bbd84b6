"""What a case of another project's suite is: tables, what happens to them step after step, and what its views show.

Data and results are the suite's; the SQL is written anew in our dialect. Where the suite's table has no key, a first
column numbers its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Row = tuple[Any, ...]
Step = Mapping[str, Sequence[Row]]
"""Rows of tables, by the table's name: each replaces the row of its key, the first column. A row of the key alone is a
deletion. Rows of a stream are events."""


@dataclass(frozen=True)
class View:
    """A view of a case.

    Attributes:
        select: its SELECT.
        shows: its rows after some of the steps, by the step's number from 0.
    """

    select: str
    shows: Mapping[int, Sequence[Row]]


@dataclass(frozen=True)
class Case:
    """A case of a suite.

    Attributes:
        origin: the suite's file, below the folder that the suite is in.
        sources: our CREATE statements of its tables.
        steps: what happens; results are stated at the end of a step.
        views: its views by the names that the suite gives them; a view may read those before it.
    """

    origin: str
    sources: str
    steps: Sequence[Step]
    views: Mapping[str, View]


def shown(select: str, *rows: Row, after: int = 0) -> View:
    """A view whose rows are stated once, after the step of that number."""
    return View(select, {after: rows})


def numbered(*rows: Row, first: int = 1) -> list[Row]:
    """Rows of a table without a key, with their numbers."""
    return [(number, *row) for number, row in enumerate(rows, first)]


def moment(text: str) -> datetime:
    """A point in time, in UTC, from ISO text."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
