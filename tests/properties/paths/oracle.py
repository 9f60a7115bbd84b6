"""What a view must hold: DuckDB over its SQL as the user wrote it, over plain tables of the rows as they stand.

What can fail is the second oracle's alone (`evaluate`): it says on which rows an expression fails, and what it gives on
the others, since `/` and CAST mean other things to DuckDB. DuckDB joins first, then the rows that fail are taken out,
then DuckDB does the rest; a view of which nothing can fail is DuckDB's text for text. Neither shares code with the
project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from tests.properties.paths.evaluate import Fails, value_of
from tests.properties.paths.expressions import Column, Expression, can_fail, columns_of, is_number, terms_of, text
from tests.properties.paths.history import Event, standing
from tests.properties.paths.values import Rows, arrow_type, rows_of
from tests.properties.paths.views import Block, Query, Relation, SetOperation, Subquery, ViewOf

_NUMBER: Final = "__row"
_SCHEMA: Final = "plain"


@dataclass(frozen=True)
class Expected:
    """What a view must be.

    Attributes:
        values: its rows without those that fail, or with NULL where they do, as the view's policy has it.
        failing: the joined rows on which an expression fails, in all blocks.
    """

    values: tuple[tuple[Any, ...], ...]
    failing: int

    @property
    def rows(self) -> Rows:
        return rows_of(self.values)


class Oracle:
    """Plain tables of some relations, and views over them, in a schema of their own.

    Args:
        events: all that have come so far.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, relations: Sequence[Relation], events: Sequence[Event]) -> None:
        self._db = db
        self._tables = 0
        self._db.execute("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        self._db.execute(f"CREATE SCHEMA {_SCHEMA}; USE {_SCHEMA}")
        for relation in relations:
            schema = pa.schema([(name, arrow_type(kind)) for name, kind in relation.columns])
            self._store(relation.name, pa.Table.from_pylist(standing(relation, events), schema))

    def close(self) -> None:
        """Forget the tables."""
        self._db.execute(f"USE main; DROP SCHEMA {_SCHEMA} CASCADE")

    def expected(self, view: ViewOf) -> Expected:
        """The rows of a view."""
        failing: list[int] = []
        table = self._result(view.query, nulls=False, failing=failing)
        if view.errors == "null":
            table = self._result(view.query, nulls=True, failing=[])
        found = self._db.sql(f"SELECT * FROM {table}").to_arrow_table()
        return Expected(tuple(zip(*(column.to_pylist() for column in found.columns), strict=True)), sum(failing))

    def _result(self, query: Query, *, nulls: bool, failing: list[int]) -> str:
        """The name of a table with the rows of a query, in its types."""
        if isinstance(query, SetOperation):
            sides = [self._result(each, nulls=nulls, failing=failing) for each in (query.left, query.right)]
            sql = f" {query.operator} ".join(f"SELECT * FROM {each}" for each in sides)
        elif query.can_fail:
            sql = self._of_block(query, nulls=nulls, failing=failing)
        else:
            sql = query.sql
        shown = ", ".join(
            f"CAST({name} AS {kind}) AS {name}" if is_number(kind) else name for name, kind in query.types
        )
        return self._made(f"SELECT {shown} FROM ({sql})")

    def _of_block(self, block: Block, *, nulls: bool, failing: list[int]) -> str:
        """The text of a block over a table of its joined rows, without those that fail."""
        columns = [column for each in block.inputs for column in each.columns]
        body = self._made(
            f"SELECT row_number() OVER () AS {_NUMBER}, {_sound_condition(block)} AS __first,"
            f" {', '.join(f'{each.sql} AS {_place(each)}' for each in columns)}"
            f" {self._source(block, nulls=nulls, failing=failing)}"
        )
        computed = list(dict.fromkeys(each for each in block.row_expressions() if can_fail(each)))
        kept = _Kept(block, computed, nulls)
        for row in self._rows(body, block, computed):
            kept.take(*row)
        failing.append(kept.failing)
        values = f"values_of_{body}"
        self._store(values, kept.table())
        places = {each: f"__v{place}" for place, each in enumerate(computed)}

        def shown(expression: Expression) -> str | None:
            return _place(expression) if isinstance(expression, Column) else places.get(expression)

        joined = f"FROM {body} JOIN {values} USING ({_NUMBER})"
        return f"SELECT {block.selected(shown)} {joined}{block.grouped(shown)}"

    def _source(self, block: Block, *, nulls: bool, failing: list[int]) -> str:
        """The FROM clause, in which a table stands for each query in brackets."""
        parts = []
        for each in block.inputs:
            of = each.of.name if isinstance(each.of, Relation) else self._result(each.of, nulls=nulls, failing=failing)
            on = f" ON {text(each.on)}" if each.on is not None else ""
            parts.append(f"{each.join} {of} AS {each.alias}{on}")
        return f"FROM {' '.join(parts)}"

    def _rows(
        self, body: str, block: Block, computed: Iterable[Expression]
    ) -> Iterator[tuple[int, Any, dict[Any, Any]]]:
        """Each joined row: its number, what the sound conditions say, and the columns that the second oracle reads."""
        read = [*computed, *([block.where] if block.where is not None else [])]
        columns = sorted(set().union(*map(columns_of, read)), key=_place)
        names = ", ".join([_NUMBER, "__first", *map(_place, columns)])
        found = self._db.sql(f"SELECT {names} FROM {body} ORDER BY 1").to_arrow_table()
        for number, first, *values in zip(*(column.to_pylist() for column in found.columns), strict=True):
            yield number, first, dict(zip(columns, values, strict=True))

    def _made(self, sql: str) -> str:
        self._tables += 1
        name = f"made_{self._tables}"
        self._db.execute(f"CREATE TABLE {name} AS {sql}")
        return name

    def _store(self, name: str, rows: pa.Table) -> None:
        self._db.register("given", rows)
        self._db.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        self._db.unregister("given")


@contextmanager
def oracle(db: duckdb.DuckDBPyConnection, relations: Sequence[Relation], events: Sequence[Event]) -> Iterator[Oracle]:
    """An oracle for as long as the body runs."""
    made = Oracle(db, relations, events)
    try:
        yield made
    finally:
        made.close()


class _Kept:
    """The rows of a block that stay, with the values of what can fail, and the number of those that do not."""

    def __init__(self, block: Block, computed: Sequence[Expression], nulls: bool) -> None:
        self.failing = 0
        self._unsure = [each for each in terms_of(block.where) if can_fail(each)]
        self._computed = computed
        self._nulls = nulls
        self._rows: list[list[Any]] = []

    def take(self, number: int, first: bool | None, row: dict[Any, Any]) -> None:
        """Take a joined row, or leave it out: a term of WHERE that is not TRUE decides, and no later one is asked."""
        if first is not True:
            return
        try:
            if all(value_of(each, row, nulls=self._nulls) is True for each in self._unsure):
                values = [value_of(each, row, nulls=self._nulls) for each in self._computed]
                self._rows.append([number, *values])
        except Fails:
            self.failing += 1

    def table(self) -> pa.Table:
        """Them as a table."""
        names = [_NUMBER, *(f"__v{place}" for place in range(len(self._computed)))]
        types = [pa.int64(), *(arrow_type(each.type) for each in self._computed)]
        columns = [pa.array([row[place] for row in self._rows], kind) for place, kind in enumerate(types)]
        return pa.table(columns, names=names)


def _place(column: Column) -> str:
    return f"{column.alias}__{column.name}"


def _sound_condition(block: Block) -> str:
    """The terms of WHERE that cannot fail: they decide first, wherever they stand (docs/sql.md)."""
    found = [block.first.sql if isinstance(block.first, Subquery) else text(block.first)] if block.first else []
    found += [text(each) for each in terms_of(block.where) if not can_fail(each)]
    return " AND ".join(f"({each})" for each in found) or "TRUE"
