"""The rows a query needs, read at the versions of its cut. A table that is not there has no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.serve.past import not_kept
from strandline.state_store.delta import reader
from strandline.state_store.errors import VersionGone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.model.relation import Relation
    from strandline.jobs.serve.cut import Cut
    from strandline.jobs.serve.limits import Spent
    from strandline.jobs.serve.past import Past
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import Lake


class Snapshot:
    """The tables of one query, each at one version.

    Args:
        spent: told of every batch that is read.
        past: the names that stand for tables as they were.
    """

    def __init__(self, lake: Lake, cut: Cut, spent: Spent, past: Mapping[str, Past] | None = None) -> None:
        self._lake = lake
        self._past = past or {}
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
        wanted = _at_least_one(relation, columns)
        past = self._past.get(relation.name)
        if past is not None:
            return self._spent.reading(self._as_it_was(past, wanted, predicate))
        version = self._cut.version(relation.name)
        if version is None:
            return iter(())
        return self._spent.reading(reader.scan(self._lake.table(relation.name), version, wanted, predicate))

    def _as_it_was(self, past: Past, columns: Sequence[str], predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
        if past.first is not None:
            yield from past.changes(self._lake, columns)
            return
        path = self._lake.table(past.table)
        try:
            yield from reader.scan(path, past.version, list(columns), predicate)
        except VersionGone:
            not_kept(path, past.table, past.version)


def nothing(relation: Relation, columns: Sequence[str]) -> pa.Table:
    """A table without rows, of the declared types."""
    import pyarrow as pa

    fields = [(name, relation.type_of(name).arrow()) for name in _at_least_one(relation, columns)]
    # Not `empty_table()`: that one imports pandas first, a quarter of a second.
    return pa.Table.from_batches([], pa.schema(fields))


def _at_least_one(relation: Relation, columns: Sequence[str]) -> list[str]:
    """The columns, or the first of the relation: a query over none (`COUNT(*)`) still counts rows."""
    return list(columns) or [relation.columns[0][0]]
