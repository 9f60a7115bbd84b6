"""A relation: a table of the lake as a stage reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from strandline.jobs.model.types import SqlType


@dataclass(frozen=True)
class Relation:
    """A table of the lake as a stage sees it.

    Attributes:
        columns: what can be read by name, in order: the visible columns, and for `append` the meta columns.
        storage: `append`: rows are only added (event logs, streams); all have the meta columns.
            `keyed`: at most one row per key; rows change and go.
        key: of a keyed relation, names among `columns` and `hidden`; may be empty for the one row of a global
            aggregate.
        hidden: columns kept in `__state` that can be read by name as well: key columns that nobody selected, and the
            meta columns of the newest event of a keyed source.
        identity: of an append relation, the columns that tell one row from another; empty when nothing does (the rows
            of one event that was exploded).
    """

    name: str
    columns: tuple[tuple[str, SqlType], ...]
    storage: Literal["append", "keyed"]
    key: tuple[str, ...] = ()
    hidden: tuple[tuple[str, SqlType], ...] = ()
    identity: tuple[str, ...] = ("_partition", "_offset")

    @property
    def told_apart_by(self) -> tuple[str, ...]:
        """The columns that tell one row from another; a keyed relation without any has one row at most."""
        return self.key if self.storage == "keyed" else self.identity

    def type_of(self, column: str) -> SqlType:
        return dict((*self.columns, *self.hidden))[column]
