"""The rows of leaves, read at the versions of one cut, and no more of them than a selection of values asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.delta import reader
from strandline.state_store.tablespec import STATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.jobs.model.relation import Relation
    from strandline.jobs.serve.cut import Cut
    from strandline.jobs.serve.limits import Spent
    from strandline.state_store.layout import Lake

MOST_VALUES: Final = 10_000
"""Of one column. To compare each row with a longer list costs more than to compute with the rows that it leaves out."""

Selection = dict[str, frozenset[Any]]
"""{column: the values it may have}; none: all rows."""


class CutReader:
    """The tables of one cut.

    Args:
        spent: told of every batch that is read.
    """

    def __init__(self, lake: Lake, cut: Cut, spent: Spent) -> None:
        self._lake = lake
        self._cut = cut
        self._spent = spent

    def rows(self, relation: Relation, columns: Sequence[str], selection: Selection) -> pa.Table:
        """At least the rows that the selection allows, with these columns; hidden ones among them are plain ones here.

        Raises as `state_store.delta.reader.scan`; TimeLimit, TooLarge: more is read than may be.
        """
        schema = pa.schema([(name, relation.type_of(name).arrow()) for name in columns])
        version = self._cut.version(relation.name)
        if version is None or any(not values for values in selection.values()):
            return pa.Table.from_batches([], schema)
        shown = {name for name, _ in relation.columns}
        stored = [name for name in columns if name in shown]
        stored += [STATE] if len(stored) < len(columns) else []
        short = {name: values for name, values in selection.items() if len(values) <= MOST_VALUES}
        batches = reader.scan(self._lake.table(relation.name), version, stored, short or None)
        plain = [self._plain(batch, schema, shown) for batch in self._spent.reading(iter(batches))]
        return pa.Table.from_batches(plain, schema)

    def _plain(self, batch: pa.RecordBatch, schema: pa.Schema, shown: set[str]) -> pa.RecordBatch:
        arrays = [
            batch.column(field.name) if field.name in shown else pc.struct_field(batch.column(STATE), field.name)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
        )


def values_of(tables: Iterable[tuple[pa.Table, str]]) -> frozenset[Any]:
    """The values of columns of tables, each once, without NULL."""
    found: set[Any] = set()
    for table, column in tables:
        found.update(pc.unique(table.column(column)).to_pylist())
    return frozenset(found - {None})


def selection_of(selections: Sequence[Selection]) -> Selection:
    """One selection that allows every row that one of these does."""
    first = selections[0]
    if all(each == first for each in selections):
        return first
    if all(len(each) == 1 and each.keys() == first.keys() for each in selections):
        return {name: frozenset[Any]().union(*(each[name] for each in selections)) for name in first}
    return {}
