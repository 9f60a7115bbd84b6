"""Tables in DuckDB's memory that keep every version: a row is there from one epoch to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.engines.listed import listed
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.types import SqlType
from strandline.state_store.tablespec import WEIGHT

FROM = "__from"
TO = "__to"

ALWAYS = 2**62
"""An epoch that never comes: the `__to` of a row that is there now."""

quoted = engine_of("duckdb").name


class MemoryTable:
    """One table: its stored columns (`__state` last, if there is one), and the epochs of each row.

    Args:
        schema: the schema of DuckDB that holds the tables of one lake.
        columns: the stored columns.
    """

    def __init__(
        self, db: duckdb.DuckDBPyConnection, schema: str, name: str, columns: Sequence[tuple[str, SqlType]]
    ) -> None:
        self.db = db
        self.columns = tuple(columns)
        self.table = f"{quoted(schema)}.{quoted(name)}"
        self.moved = 0
        """The epoch in which a row was last inserted or retracted."""
        self.types_checked = False
        """A rule was seen to give the stored types; it gives the same at every epoch."""
        kept = ", ".join(f"{quoted(column)} {sql_type.duckdb()}" for column, sql_type in columns)
        db.execute(f"CREATE OR REPLACE TABLE {self.table} ({kept}, {FROM} BIGINT, {TO} BIGINT)")

    @property
    def names(self) -> list[str]:
        """The names of the stored columns."""
        return [name for name, _ in self.columns]

    def feed(self, rows: Sequence[Mapping[str, Any]], epoch: int) -> None:
        """Insert rows; columns left out are NULL."""
        unknown = {name for row in rows for name in row} - set(self.names)
        assert not unknown, f"{self.table} has no column {sorted(unknown)}"
        if rows:
            fed = pa.Table.from_pylist([dict(row) for row in rows], self._arrow_schema())
            self.db.register("__fed", fed)
            placed = f"SELECT *, {epoch} AS {FROM}, {ALWAYS} AS {TO} FROM __fed"
            self.db.execute(f"INSERT INTO {self.table} BY NAME {placed}")
            self.moved = epoch

    def at(self, epoch: int, relation: Relation | None = None, *more: str) -> str:
        """SELECT of the rows that were there after that epoch; of `relation` the columns, else the stored ones."""
        return f"SELECT {self._list(relation, more)} FROM {self.table} WHERE {alive(epoch)}"

    def ever(self, relation: Relation, *more: str) -> str:
        """SELECT of the rows that were there in some epoch: what events may have looked up."""
        return f"SELECT {self._list(relation, more)} FROM {self.table}"

    def delta(self, since: int, now: int, relation: Relation) -> str:
        """SELECT of the changes after `since` up to `now`, with `__weight`; those that undo each other are left out."""
        names = self._list(relation)
        inserted = f"{FROM} > {since} AND {alive(now)}"
        if relation.storage == "append":
            return f"SELECT {names}, 1::BIGINT AS {WEIGHT} FROM {self.table} WHERE {inserted}"
        retracted = f"{alive(since)} AND {TO} <= {now}"
        weighed = f"SELECT {names}, CASE WHEN {inserted} THEN 1 ELSE -1 END::BIGINT AS {WEIGHT} FROM {self.table}"
        return (
            f"SELECT * EXCLUDE ({WEIGHT}), SUM({WEIGHT})::BIGINT AS {WEIGHT}"
            f" FROM ({weighed} WHERE ({inserted}) OR ({retracted})) GROUP BY ALL HAVING SUM({WEIGHT}) <> 0"
        )

    def _list(self, relation: Relation | None, more: Sequence[str] = ()) -> str:
        if relation is None:
            return ", ".join([*map(quoted, self.names), *more])
        return ", ".join([*listed(relation, engine_of("duckdb")), *more])

    def _arrow_schema(self) -> pa.Schema:
        return pa.schema([(name, sql_type.arrow()) for name, sql_type in self.columns])


def alive(epoch: int) -> str:
    """The condition that a row is there after that epoch."""
    return f"({FROM} <= {epoch} AND {TO} > {epoch})"
