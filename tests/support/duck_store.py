"""Relations in DuckDB that remember: a row is there from one epoch to another, so every version can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from jobs.model.relation import Relation
from jobs.model.types import SqlType
from state_store.columns import STATE

FROM = "__from"
TO = "__to"

# An epoch that never comes: the `__to` of a row that is there now.
ALWAYS = 2**62


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Store:
    """One table: its stored columns (`__state` last, if there is one), and the epochs of each row.

    Args:
        schema: the schema of DuckDB that holds the lake's tables.
        columns: the stored columns.
    """

    def __init__(
        self, db: duckdb.DuckDBPyConnection, schema: str, name: str, columns: Sequence[tuple[str, SqlType]]
    ) -> None:
        self.db = db
        self.columns = tuple(columns)
        self.table = f"{quoted(schema)}.{quoted(name)}"
        self.moved = 0
        """The epoch in which a row last came or went."""
        kept = ", ".join(f"{quoted(column)} {kind.duckdb()}" for column, kind in columns)
        db.execute(f"CREATE TABLE {self.table} ({kept}, {FROM} BIGINT, {TO} BIGINT)")

    def feed(self, rows: Sequence[Mapping[str, Any]], epoch: int) -> None:
        """Add rows; columns left out are NULL."""
        unknown = {name for row in rows for name in row} - {name for name, _ in self.columns}
        assert not unknown, f"{self.table} has no column {sorted(unknown)}"
        if rows:
            fed = pa.Table.from_pylist([dict(row) for row in rows], _schema(self.columns))
            self.db.register("__fed", fed)
            placed = f"SELECT *, {epoch} AS {FROM}, {ALWAYS} AS {TO} FROM __fed"
            self.db.execute(f"INSERT INTO {self.table} BY NAME {placed}")
            self.moved = epoch

    def at(self, epoch: int, relation: Relation | None = None, *more: str) -> str:
        """SELECT of the rows that were there after that epoch; of `relation` the columns, else the stored ones."""
        return f"SELECT {self._list(relation, more)} FROM {self.table} WHERE {alive(epoch)}"

    def delta(self, since: int, now: int, relation: Relation) -> str:
        """SELECT of what changed after `since` up to `now`, with `__weight`; a row that came back as it was is none."""
        names = self._list(relation)
        came = f"{FROM} > {since} AND {alive(now)}"
        if relation.storage == "append":
            return f"SELECT {names}, 1::BIGINT AS __weight FROM {self.table} WHERE {came}"
        went = f"{alive(since)} AND {TO} <= {now}"
        weighed = f"SELECT {names}, CASE WHEN {came} THEN 1 ELSE -1 END::BIGINT AS __weight FROM {self.table}"
        return (
            f"SELECT * EXCLUDE (__weight), SUM(__weight)::BIGINT AS __weight"
            f" FROM ({weighed} WHERE ({came}) OR ({went})) GROUP BY ALL HAVING SUM(__weight) <> 0"
        )

    def _list(self, relation: Relation | None, more: Sequence[str] = ()) -> str:
        if relation is None:
            return ", ".join([*(quoted(name) for name, _ in self.columns), *more])
        hidden = [f"{STATE}.{quoted(name)} AS {quoted(name)}" for name, _ in relation.hidden]
        return ", ".join([*(quoted(name) for name, _ in relation.columns), *hidden, *more])


def alive(epoch: int) -> str:
    """The condition that a row is there after that epoch."""
    return f"({FROM} <= {epoch} AND {TO} > {epoch})"


def _schema(columns: Sequence[tuple[str, SqlType]]) -> pa.Schema:
    return pa.schema([(name, kind.arrow()) for name, kind in columns])
