"""The changes that a settled relation makes, in DuckDB: the rows to store, the places of those that go, the digest.

A settled relation has one row per touched key: the stored columns of the new row, `__exists` (false: the key is
deleted, and the other columns hold only the key) and `__old`, the row stored before as a struct with its place (NULL:
the key was absent). Only rows that differ from what is stored leave the engine, in batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from state_store.columns import EXISTS, FILE, OLD, POSITION, WEIGHT
from state_store.errors import CorruptState
from state_store.hashing.digest import Digest, digest_of_table
from state_store.kernel.rows import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

    from state_store.kernel.rows import PlacedRows
    from state_store.tablespec import TableSpec

_SETTLED: Final = "__settled"
_SAME: Final = "__same"
_HERE: Final = f"COALESCE({EXISTS}, FALSE)"
BATCH_ROWS: Final = 122_880
"""Rows that are taken from DuckDB at a time, and become a row group: DuckDB's own size of one."""
_FEW: Final = 200_000
"""Changes that are kept for whoever reads them next: some tens of MB."""


@dataclass
class Tally:
    """What was counted while rows passed by.

    Attributes:
        inserted, deleted: visible rows inserted and deleted.
        digest: what to add to the table's digest.
        retracted: {data file: positions of the stored rows that go}.
    """

    inserted: int = 0
    deleted: int = 0
    digest: Digest = field(default_factory=Digest)
    retracted: dict[str, BitMap64] = field(default_factory=dict)
    _kept: list[pa.Table] | None = field(default_factory=list)

    def insert(self, rows: pa.Table, visible: Sequence[str]) -> None:
        """Count rows that come."""
        self.inserted += rows.num_rows
        self.digest += digest_of_table(rows.select(visible).to_batches())
        self._keep(rows, 1)

    def retract(self, rows: pa.Table, visible: Sequence[str]) -> None:
        """Count rows that go."""
        self.deleted += rows.num_rows
        self.digest -= digest_of_table(rows.select(visible).to_batches())
        self._keep(rows, -1)

    def changes(self) -> pa.Table | None:
        """All that was counted, stored columns and `__weight`; None when it was too much to be kept."""
        return pa.concat_tables(self._kept) if self._kept else None

    def _keep(self, rows: pa.Table, weight: int) -> None:
        if self._kept is not None and self.inserted + self.deleted <= _FEW:
            marks = pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows)
            self._kept.append(rows.append_column(WEIGHT, marks))
        else:
            self._kept = None


class Settled:
    """A settled relation, computed once and kept in the connection.

    Args:
        text: a SELECT that gives it.
        schema: the stored columns.

    Attributes:
        written: rows to store.
        retracted: stored rows that go.

    Raises:
        duckdb.Error: the text fails, as a text or over the rows.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, text: str, spec: TableSpec, schema: pa.Schema) -> None:
        self._connection = connection
        self._spec = spec
        self._schema = schema
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_SETTLED} AS {text}")
        equal = self._equal(schema.names)
        changed = f"{_HERE} AND ({OLD} IS NULL OR NOT ({equal}))"
        gone = f"{OLD} IS NOT NULL AND NOT ({_HERE} AND {equal})"
        counts = f"SELECT count(*) FILTER (WHERE {changed}), count(*) FILTER (WHERE {gone}) FROM {_SETTLED}"
        [(self.written, self.retracted)] = connection.execute(counts).fetchall()

    def new_rows(self, tally: Tally, stored: PlacedRows) -> Iterator[pa.Table]:
        """The rows to store, in batches, counted on the way; those that go are counted too. To be run to its end.

        Args:
            stored: the rows before, as the text read them.

        Raises:
            CorruptState: a stored row is replaced twice, or its place is not known; the rule is wrong.
        """
        names = self._schema.names
        changed = f"{_HERE} <> ({OLD} IS NOT NULL) OR ({_HERE} AND NOT ({self._equal(names)}))"
        same = f"{_HERE} AND {OLD} IS NOT NULL AND {self._equal(self._spec.visible)}"
        listed = ", ".join(map(quoted, names))
        text = f"SELECT {listed}, {_HERE} AS {EXISTS}, {OLD}, {same} AS {_SAME} FROM {_SETTLED} WHERE {changed}"
        for batch in self._connection.sql(text).to_arrow_reader(BATCH_ROWS):
            new = self._counted(batch, tally, stored)
            if new.num_rows:
                yield new
        if sum(map(len, tally.retracted.values())) != self.retracted:
            raise CorruptState(
                f"rows of '{self._spec.name}' cannot be told apart: a key was settled twice, or a row has no place"
            )

    def _counted(self, batch: pa.RecordBatch, tally: Tally, stored: PlacedRows) -> pa.Table:
        """The new rows of a batch."""
        new = pa.Table.from_batches([conformed(batch.filter(batch[EXISTS]), self._schema)])
        old = pa.RecordBatch.from_struct_array(batch[OLD].drop_null())
        for name, positions in stored.positions(old[FILE], old[POSITION]).items():
            tally.retracted.setdefault(name, BitMap64()).update(positions)
        tally.insert(new, self._spec.visible)
        tally.retract(pa.Table.from_batches([conformed(old, self._schema)]), self._spec.visible)
        # Only what is kept beside them changed.
        unseen = pc.sum(batch[_SAME].cast(pa.int64())).as_py() or 0
        tally.inserted -= unseen
        tally.deleted -= unseen
        return new

    def _equal(self, names: Sequence[str]) -> str:
        """The condition that these columns are as they were."""
        terms = []
        for name in names:
            found = self._schema.field(name).type
            now, before = (_orderable(value, found) for value in (quoted(name), f"({OLD}).{quoted(name)}"))
            terms.append(f"{now} IS NOT DISTINCT FROM {before}")
        return " AND ".join(terms) or "TRUE"


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the stored columns, in order and of the stored types."""
    return rows.select(schema.names).cast(schema)


def _orderable(value: str, found: pa.DataType, depth: int = 0) -> str:
    """The value with its maps, which DuckDB compares in the order they happen to be in, as entries sorted by key."""
    if not _has_map(found):
        return value
    item = f"__e{depth}"
    if pa.types.is_map(found):
        inner = f"struct_pack(k := {item}.key, v := {_orderable(f'{item}.value', found.item_type, depth + 1)})"
        return f"list_sort([{inner} FOR {item} IN map_entries({value})])"
    if pa.types.is_list(found):
        return f"[{_orderable(item, found.value_type, depth + 1)} FOR {item} IN {value}]"
    members = (found.field(place) for place in range(found.num_fields))
    packed = ", ".join(
        f"{quoted(each.name)} := {_orderable(f'({value}).{quoted(each.name)}', each.type, depth)}" for each in members
    )
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END"


def _has_map(found: pa.DataType) -> bool:
    if pa.types.is_list(found):
        return _has_map(found.value_type)
    if pa.types.is_struct(found):
        return any(_has_map(found.field(place).type) for place in range(found.num_fields))
    return bool(pa.types.is_map(found))
