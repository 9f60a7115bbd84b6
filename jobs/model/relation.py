"""A relation: a table of the lake as a stage reads it, and the columns that rows have beside the declared ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from strandline.jobs.model import types as t
from strandline.jobs.model.types import SqlType


@dataclass(frozen=True)
class Relation:
    """A table of the lake as a stage reads it.

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
    def row_identity(self) -> tuple[str, ...]:
        """Columns that identify a row; a keyed relation without any has at most one row."""
        return self.key if self.storage == "keyed" else self.identity

    def type_of(self, column: str) -> SqlType:
        return dict((*self.columns, *self.hidden))[column]


# Columns beside those that a statement declares: an event's place and time, the bounds of windows, and the columns of
# dead letters. The store's own columns are in `state_store.tablespec`.

HEADERS = t.array(t.struct(("key", t.VARCHAR), ("value", t.BYTES)))
"""The type of all headers of a record."""

# Every row of a stream also has these. `_stream_time` is the running maximum of `_timestamp` in offset order within
# the partition, so that "late" is a function of the row; `(_stream_time, _partition, _offset)` is a total order of a
# stream's events that agrees with the offsets of each partition.
META_COLUMNS: tuple[tuple[str, SqlType], ...] = (
    ("_partition", t.INT),
    ("_offset", t.BIGINT),
    ("_timestamp", t.TIMESTAMP),
    ("_stream_time", t.TIMESTAMP),
    ("_headers", HEADERS),
)
DEAD_LETTER_COLUMNS: tuple[tuple[str, SqlType], ...] = (
    ("_topic", t.VARCHAR),
    ("_partition", t.INT),
    ("_offset", t.BIGINT),
    ("_timestamp", t.TIMESTAMP),
    ("_key", t.BYTES),
    ("_value", t.BYTES),
    ("_headers", HEADERS),
    ("reason", t.VARCHAR),
)
"""A record that could not be decoded: where it lies in its topic, its raw bytes, and why."""

FAILED_ROW_COLUMNS: tuple[tuple[str, SqlType], ...] = (("reason", t.VARCHAR), ("row", t.VARCHAR))
"""A row on which an expression of a view fails: which expressions can, and the row as JSON."""

EVENT_ORDER = ("_stream_time", "_partition", "_offset")

PSEUDO_COLUMNS: dict[str, tuple[str, SqlType]] = {
    "rowtime": ("_timestamp", t.BIGINT),
    "rowpartition": ("_partition", t.INT),
    "rowoffset": ("_offset", t.BIGINT),
}
"""ROWTIME is milliseconds since the epoch, as in ksqlDB."""

PARTITIONS_EACH = 65_536
"""Partitions for each of several queries that feed one stream, or branches of a UNION ALL: the n-th has those from
n × 65,536 on, so that events have unique places in one order. Topics have fewer partitions by far."""

ITEM = "__item"
"""The number of an item, from 1, in a row that was repeated for the items of arrays (INT)."""

TOMBSTONE = "_tombstone"
"""In the event log of a keyed source: the event deletes its key."""

COPY = "__copy"
"""The key of a row of a bag, hidden: the offset of the event that brought it (BIGINT)."""
ROW_HASH = "__row"
"""In a bag and its event log: the hash of the row's values (VARCHAR), by which what takes a row away finds it."""
BAG: tuple[tuple[str, SqlType], ...] = ((COPY, t.BIGINT), (ROW_HASH, t.VARCHAR))
"""The columns that a bag keeps beside the place of the event."""

ITSELF = "__itself"
"""The relation by which the branches of WITH RECURSIVE read the rows of the round before: it is no table."""
LEVEL = "__level"
"""In that relation: the number of the round that a row came in, from 0 (INT)."""

WINDOW_START, WINDOW_END = "windowstart", "windowend"
WINDOW_BOUNDS = (WINDOW_START, WINDOW_END)
"""Of a group by windows: BIGINT, milliseconds since the Unix epoch; the end is not part of the window."""

PLACE: tuple[tuple[str, SqlType], ...] = tuple(
    (name, dict(META_COLUMNS)[name]) for name in (*EVENT_ORDER, "_timestamp")
)
"""The columns that a keyed source keeps of the newest event: its place in the order of events, and its time."""
