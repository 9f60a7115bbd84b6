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
    """

    names: tuple[str, ...]
    rows: Iterable[Sequence[object]]


@dataclass(frozen=True)
class Tombstone:
    """The deletion of a key: `row` keeps the columns of the key, the others are None."""

    row: tuple[object, ...]


@dataclass(frozen=True)
class LiveRows:
    """The rows of a push query as they arrive, perhaps without end: each must be written at once."""

    names: tuple[str, ...]
    rows: Iterator[tuple[object, ...] | Tombstone]


Result = Message | Document | Rows | LiveRows
