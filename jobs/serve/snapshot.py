"""The rows a query needs, read at the versions of its cut. A table that is not there has no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from jobs.model.relation import Relation
    from jobs.serve.cut import Cut
    from jobs.serve.limits import Spent
    from state_store.delta.statistics import Predicate
    from state_store.layout import Lake


class Snapshot:
    """The tables of one query, each at one version.

    Args:
        spent: told of every batch that is read.
    """

    def __init__(self, lake: Lake, cut: Cut, spent: Spent) -> None:
        self._lake = lake
        self._cut = cut
        self._spent = spent

    def rows(self, relation: Relation, columns: Sequence[str], predicate: Predicate | None = None) -> pa.Table:
        """The rows that meet the predicate, with these columns (see `state_store.delta.reader.scan`)."""
        import pyarrow as pa

        empty = nothing(relation, columns)
        found = list(self._batches(relation, columns, predicate))
        return pa.Table.from_batches(found) if found else empty

    def pieces(
        self, relation: Relation, columns: Sequence[str], predicate: Predicate | None = None
    ) -> Iterator[pa.Table]:
        """The same rows, one record batch a table, in no particular order; at least one, which may be empty."""
        import pyarrow as pa

        yield nothing(relation, columns)
        for record_batch in self._batches(relation, columns, predicate):
            yield pa.Table.from_batches([record_batch])

    def _batches(
        self, relation: Relation, columns: Sequence[str], predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        version = self._cut.version(relation.name)
        if version is None:
            return iter(())
        wanted = _at_least_one(relation, columns)
        return self._spent.reading(reader.scan(self._lake.table(relation.name), version, wanted, predicate))


def nothing(relation: Relation, columns: Sequence[str]) -> pa.Table:
    """A table without rows, of the declared types."""
    import pyarrow as pa

    fields = [(name, relation.type_of(name).arrow()) for name in _at_least_one(relation, columns)]
    # Not `empty_table()`: that one imports pandas first, a quarter of a second.
    return pa.Table.from_batches([], pa.schema(fields))


def _at_least_one(relation: Relation, columns: Sequence[str]) -> list[str]:
    """The columns, or the first of the relation: a query over none (`COUNT(*)`) still counts rows."""
    return list(columns) or [relation.columns[0][0]]
