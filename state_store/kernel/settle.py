"""The changes that a settled relation makes, in DuckDB: the rows to store, the places of those that go, the digest.

A settled relation has one row per touched key: the stored columns of the new row, `__exists` (false: the key is
deleted, and the other columns hold only the key) and `__old`, the row stored before as a struct with its place (NULL:
the key was absent). Only rows that differ from what is stored leave the engine, in batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from strandline.state_store.columns import EXISTS, FILE, OLD, POSITION
from strandline.state_store.errors import CorruptState
from strandline.state_store.kernel.rows import quoted
from strandline.state_store.kernel.streamed import streamed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

    from strandline.state_store.kernel.rows import PlacedRows
    from strandline.state_store.kernel.tally import Tally
    from strandline.state_store.tablespec import TableSpec

_SETTLED: Final = "__settled"
_SAME: Final = "__same"
_HERE: Final = f"COALESCE({EXISTS}, FALSE)"


class Settled:
    """A settled relation, computed once and kept in the connection.

    Args:
        text: a SELECT that gives it.
        schema: the stored columns.

    Raises:
        duckdb.Error: the text fails, as a text or over the rows.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, text: str, spec: TableSpec, schema: pa.Schema) -> None:
        self._connection = connection
        self._spec = spec
        self._schema = schema
        self._unchanged = f"{_HERE} AND {self._equal(schema.names)}"
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_SETTLED} AS {text}")

    def count_old_rows(self, tally: Tally, stored: PlacedRows) -> None:
        """Count the stored rows that go, or are replaced.

        Args:
            stored: the rows before, as the text read them.

        Raises:
            CorruptState: a stored row is replaced twice, or its place is not known; the rule is wrong.
        """
        listed = ", ".join(
            f"({OLD}).{quoted(name)} AS {quoted(name)}" for name in (*self._schema.names, FILE, POSITION)
        )
        same = f"{_HERE} AND {self._equal(self._spec.visible)} AS {_SAME}"
        gone = f"{OLD} IS NOT NULL AND NOT ({self._unchanged})"
        unseen = 0
        for batch in streamed(self._connection, f"SELECT {listed}, {same} FROM {_SETTLED} WHERE {gone}"):
            for name, positions in stored.positions(batch[FILE], batch[POSITION]).items():
                tally.retracted.setdefault(name, BitMap64()).update(positions)
            tally.retract(conformed(batch, self._schema), self._spec.visible, stored.files, batch[FILE])
            unseen += pc.sum(batch[_SAME].cast(pa.int64())).as_py() or 0
        if sum(map(len, tally.retracted.values())) != tally.deleted:
            raise CorruptState(
                f"rows of '{self._spec.name}' cannot be told apart: a key was settled twice, or a row has no place"
            )
        # Only what is kept beside them changes.
        tally.inserted -= unseen
        tally.deleted -= unseen

    def new_rows(self, tally: Tally) -> Iterator[pa.Table]:
        """The rows to store, in batches, counted on the way."""
        listed = ", ".join(map(quoted, self._schema.names))
        new = f"{_HERE} AND ({OLD} IS NULL OR NOT ({self._unchanged}))"
        for batch in streamed(self._connection, f"SELECT {listed} FROM {_SETTLED} WHERE {new}"):
            rows = pa.Table.from_batches([conformed(batch, self._schema)])
            tally.insert(rows, self._spec.visible)
            yield rows

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
