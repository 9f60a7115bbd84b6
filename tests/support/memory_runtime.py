"""The runtime of a refresh on DuckDB: a rule's relations are common table expressions over tables in memory.

No JVM and no files: an epoch takes milliseconds. What a rule must give is checked as it is stored: a key is settled
once, `__old` is the stored row, and the types are those of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from strandline.jobs.engines.engine import Dialect, engine_of, listed
from strandline.jobs.ivm.refresh.runtime import Runtime
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.model.stage_columns import key_names, key_path, storage_of, visible_columns
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import SqlType
from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.tablespec import EXISTS, FILE, OLD, POSITION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.ivm.rules.delta_join import Side
    from strandline.jobs.model.stage import Input, Stage


# Tables in DuckDB's memory that keep every version: a row is there from one epoch to another.

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


_SETTLED = "settled"


class MemoryRuntime(Runtime[str]):
    """One stage over tables in memory, for one epoch. Rows that are not computed yet are the text of a SELECT.

    Args:
        table: the stage's own.
        side: (`delta`, `old` or `new`; input) -> the SELECT of its rows.
        since: the epoch that the stage's rows reflect.
    """

    dialect: Dialect = "duckdb"

    def __init__(self, stage: Stage, table: MemoryTable, side: Callable[[Side, Input], str], since: int) -> None:
        self._stage = stage
        self._table = table
        self._side = side
        self._since = since
        self._kept: list[str] = []

    def run(self, text: str, *, stored: bool = True) -> str:
        parts = list(self._kept)
        for name, side, each in relations(self._stage, text, engine_of(self.dialect)):
            parts.append(f"{name} AS ({self._side(side, each)})")
        if storage_of(self._stage) == "keyed":
            none = "" if stored else " AND FALSE"
            placed = self._table.at(self._since, None, f"NULL::VARCHAR AS {FILE}", f"rowid AS {POSITION}")
            parts.append(f"self_old AS ({placed}{none})")
        return f"WITH {', '.join(parts)} SELECT * FROM ({text})" if parts else text

    def keep(self, name: str, settled: str) -> None:
        self._kept.append(f"{quoted(name)} AS (SELECT * FROM ({settled}) WHERE {EXISTS})")

    def number(self, text: str) -> int:
        [(found,)] = self._table.db.execute(self.run(text, stored=False)).fetchall()
        return int(found)

    def append(self, rows: str, record: CommitRecord) -> Head | None:
        table, epoch = self._table, record.epoch
        names = ", ".join(quoted(name) for name, _ in visible_columns(self._stage))
        placed = f"SELECT {names}, {epoch}, {ALWAYS} FROM ({rows})"
        [(count,)] = table.db.execute(f"INSERT INTO {table.table} ({names}, {FROM}, {TO}) {placed}").fetchall()
        return self._moved(record) if count else None

    def settle(self, settled: str, record: CommitRecord) -> Head | None:
        """Replace the rows of the settled keys; a row that stays as it was is left alone.

        Raises:
            AssertionError: a key is settled twice, `__old` is not the stored row, a type differs: the rule is wrong.
        """
        table, epoch = self._table, record.epoch
        [(count,)] = table.db.execute(f"CREATE OR REPLACE TEMP TABLE {_SETTLED} AS {settled}").fetchall()
        self._check_types()
        if not count:
            return None
        self._check_keys()
        differs = " OR ".join(f"{quoted(name)} IS DISTINCT FROM ({OLD}).{quoted(name)}" for name in table.names)
        retracted = f"{OLD} IS NOT NULL AND (NOT {EXISTS} OR {differs})"
        inserted = f"{EXISTS} AND ({OLD} IS NULL OR {differs})"
        [(ended,)] = table.db.execute(
            f"UPDATE {table.table} AS o SET {TO} = {epoch} FROM (FROM {_SETTLED} WHERE {retracted}) AS s"
            f" WHERE o.{TO} = {ALWAYS} AND {self._same_key('o', 's')}"
        ).fetchall()
        names = ", ".join(map(quoted, table.names))
        placed = f"SELECT {names}, {epoch}, {ALWAYS} FROM {_SETTLED} WHERE {inserted}"
        [(begun,)] = table.db.execute(f"INSERT INTO {table.table} {placed}").fetchall()
        return self._moved(record) if ended or begun else None

    def _moved(self, record: CommitRecord) -> Head:
        self._table.moved = record.epoch
        return Head(record.epoch, record)

    def _check_types(self) -> None:
        table = self._table
        if table.types_checked:
            return
        given, declared = (
            {name: sql_type for name, sql_type, *_ in table.db.execute(f"DESCRIBE {relation}").fetchall()}
            for relation in (_SETTLED, table.table)
        )
        wrong = {name: (given[name], declared[name]) for name in table.names if given[name] != declared[name]}
        assert not wrong, f"{table.table}: the rule's types are not the stored ones: {wrong}"
        table.types_checked = True

    def _check_keys(self) -> None:
        table = self._table
        same = " AND ".join(f"(s.{OLD}).{quoted(n)} IS NOT DISTINCT FROM o.{quoted(n)}" for n in table.names)
        twice, wrong = table.db.execute(
            f"SELECT count(*) FROM {_SETTLED} a JOIN {_SETTLED} b ON {self._same_key('a', 'b')} AND a.rowid <> b.rowid"
            f" UNION ALL SELECT count(*) FROM {_SETTLED} s LEFT JOIN"
            f" (SELECT *, TRUE AS here FROM {table.table} WHERE {TO} = {ALWAYS}) o"
            f" ON {self._same_key('s', 'o')} WHERE (s.{OLD} IS NOT NULL) <> COALESCE(o.here, FALSE)"
            f" OR (o.here AND NOT ({same}))"
        ).fetchall()
        assert twice == (0,), f"{table.table}: a key is settled twice"
        assert wrong == (0,), f"{table.table}: {OLD} is not the stored row"

    def _same_key(self, left: str, right: str) -> str:
        paths = [stored_path(self._stage, name) for name in key_names(self._stage)]
        return " AND ".join(f"{left}.{each} IS NOT DISTINCT FROM {right}.{each}" for each in paths) or "TRUE"


def stored_path(stage: Stage, name: str) -> str:
    """The path of a key column in the stored row, as text for DuckDB."""
    return ".".join(map(quoted, key_path(stage, name)))
