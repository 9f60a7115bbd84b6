"""The results of statements, before they are written out: messages, documents, rows, live rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


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
