"""The rows a query needs, read at one version of each table. A view whose pipeline has not run yet has no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from jobs.model.relation import Relation
    from state_store.delta.statistics import Predicate
    from state_store.layout import Lake


def version_of(relation: Relation, lake: Lake) -> int | None:
    """The newest version of a relation's table; None while there is no table."""
    head = reader.head(lake.table(relation.name))
    return head.version if head else None


def rows(relation: Relation, columns: Sequence[str], lake: Lake, predicate: Predicate | None = None) -> pa.Table:
    """The newest version's rows that meet the predicate, with these columns (see `state_store.delta.reader.scan`)."""
    version = version_of(relation, lake)
    if version is None:
        return nothing(relation, columns)
    return reader.read_rows(lake.table(relation.name), version, _at_least_one(relation, columns), predicate)


def batches(relation: Relation, columns: Sequence[str], lake: Lake) -> Iterator[pa.Table]:
    """The rows as tables of one record batch each, in no particular order; at least one, which may be empty."""
    import pyarrow as pa

    yield nothing(relation, columns)
    version = version_of(relation, lake)
    if version is not None:
        for record_batch in reader.scan(lake.table(relation.name), version, _at_least_one(relation, columns)):
            yield pa.Table.from_batches([record_batch])


def nothing(relation: Relation, columns: Sequence[str]) -> pa.Table:
    """A table without rows, of the declared types."""
    import pyarrow as pa

    fields = [(name, relation.type_of(name).arrow()) for name in _at_least_one(relation, columns)]
    # Not `empty_table()`: that one imports pandas first, a quarter of a second.
    return pa.Table.from_batches([], pa.schema(fields))


def _at_least_one(relation: Relation, columns: Sequence[str]) -> list[str]:
    """The columns, or the first of the relation: a query over none (`COUNT(*)`) still counts rows."""
    return list(columns) or [relation.columns[0][0]]
