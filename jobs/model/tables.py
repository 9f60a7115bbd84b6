"""The tables of a lake: the names of those that a definition owns, and a relation, which is one as a stage reads it.

No other module puts the name of such a table together.

| definition | event log | rows | dead letters |
| --- | --- | --- | --- |
| stream `s` declared with columns | `s` | the same | `s__dead_letters` |
| table `t` declared with columns | `t__log` | `t` | `t__dead_letters` |
| view `v` | | `v` | `v__dead_letters` |
| query `s__insert_1` into a stream | | those of `s` | `s__insert_1__dead_letters` |

A view or query may have inner stages `v__stage_1`, …; a stage that several views share is `shared__<digest>`. While
another definition is to take a view's place, its rows are made ready in `v__standby`.

The columns that rows have beside the declared ones are here, too; and whether names differ only in case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Definition, InsertQuery, Source
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


_SHARED = "shared__"
# After the name of a definition: the tables that belong to it.
BELOW = re.compile(r"__log|((__insert_[0-9]+)?(__stage_[0-9]+)?|__standby)(__dead_letters)?")
_PARTED = re.compile(rf"(.+?)({BELOW.pattern})", re.DOTALL)
_MADE = re.compile(r"__(log|dead_letters|standby|stage_[0-9]+|insert_[0-9]+)\Z")
_STAGE = re.compile(r"__stage_([0-9]+)(__dead_letters)?")
_INNER = re.compile(r"__stage_[0-9]+\Z")
_INSERT_QUERY = re.compile(r"(.+)__insert_([0-9]+)", re.DOTALL)


def event_log(source: Source) -> str:
    """Name of the event log of a source; a stream is its own."""
    return source.name if source.kind == "stream" else log_below(source.name)


def log_below(table: str) -> str:
    """Name of the event log below a keyed source (`CREATE TABLE … (… PRIMARY KEY)`)."""
    return f"{table}__log"


def dead_letters(name: str) -> str:
    """Name of the dead letters of a source, a view, a query into a stream, or an inner stage: records that do not
    decode, rows on which an expression fails."""
    return f"{name}__dead_letters"


def beside_dead_letters(table: str) -> str | None:
    """Name of what the rows of a table of dead letters failed in; None for any other table."""
    name = table.removesuffix(dead_letters(""))
    return name if name != table else None


def inner_stage(view: str, number: int) -> str:
    """Name of an inner stage of a view, or of a query into a stream; the first is number 1."""
    return f"{view}__stage_{number}"


def is_inner_stage(table: str) -> bool:
    """True for the table of an inner stage, of one view or shared: a definition reads it, and no user."""
    return is_shared(table) or _INNER.search(table) is not None


def stage_number(view: str, table: str) -> int | None:
    """Number of the view's inner stage that a table, or its dead letters, belongs to; None for any other table."""
    found = _STAGE.fullmatch(table, len(view)) if table.startswith(view) else None
    return int(found[1]) if found else None


def standby(view: str) -> str:
    """Name of the table in which a view's next definition is computed."""
    return f"{view}__standby"


def owned_by(name: str, names: Iterable[str]) -> list[str]:
    """Select the tables of the definition `name`, of whatever kind it is, in the order to delete them.

    The rows go before the event log that they reflect, and that before its dead letters: after a kill in between, rows
    that were left behind would seem to be ahead of a log that begins again.
    """
    owned = [each for each in names if each.startswith(name) and BELOW.fullmatch(each, len(name))]
    first = (name, log_below(name), dead_letters(name))
    return sorted(owned, key=lambda each: (first.index(each) if each in first else len(first), each))


def insert_query(stream: str, number: int) -> str:
    """Name of a query into a stream; the first is number 1, or later where a view's own branches come first."""
    return f"{stream}__insert_{number}"


def fed_stream(name: str) -> tuple[str, int] | None:
    """Stream and number in the name of a query into a stream; None for any other name."""
    found = _INSERT_QUERY.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def input_of(entry: str) -> str:
    """Table in an entry of a version vector; entries of queries into a stream are `query/table`."""
    query, slash, table = entry.partition("/")
    return table if slash and fed_stream(query) else entry


def parted(table: str) -> tuple[str, str]:
    """Split the name of a table into its definition and the suffix."""
    found = _PARTED.fullmatch(table)
    return (found[1], found[2]) if found else (table, "")


def definition_of(table: str) -> str:
    """Definition of a table that a query can name: a relation, an event log, dead letters."""
    return table.removesuffix("__dead_letters").removesuffix("__log")


def shared_stage(digest: str) -> str:
    """Name of a stage that several views read; `digest` identifies its content."""
    return f"{_SHARED}{digest}"


def is_shared(table: str) -> bool:
    """True for the table of a stage that several views read."""
    return table.startswith(_SHARED)


def is_made(name: str) -> bool:
    """True for names that only Strandline makes: columns and relations inside rules, shared stages, all tables of a
    definition. No definition may have one: it would own, or be, a table of another."""
    return name.startswith("_") or is_shared(name) or _MADE.search(name) is not None


def own_tables(definition: Definition) -> tuple[str, ...]:
    """Tables that belong to a definition alone, without inner stages, in the order in which they are made. A query into
    a stream has none: its rows are the stream's."""
    if isinstance(definition, InsertQuery):
        return ()
    below = (event_log(definition),) if isinstance(definition, Source) else ()
    return tuple(dict.fromkeys((*below, definition.name, dead_letters(definition.name))))


# Names that differ only in case: Spark, Delta and DuckDB take them for one.
#
# A quoted name keeps its case, so that `"Id"` and `id` are two columns to the parser. A table with both cannot be
# read: Delta refuses it when it is written, or the wrong column is read.


def alike(name: str, others: Iterable[str]) -> str | None:
    """Find the first of the others that is the same name but for case; None if there is none."""
    return next((other for other in others if other.lower() == name.lower()), None)


def differ_only_in_case(what: str, one: str, other: str) -> str:
    """Message for two such names of `what` ("columns")."""
    return f"the {what} '{one}' and '{other}' differ only in case: Spark and Delta take them for one"
