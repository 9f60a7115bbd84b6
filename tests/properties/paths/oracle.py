"""What a view must hold: DuckDB over its SQL as the user wrote it, over plain tables of the rows as they stand.

What can fail is the second oracle's alone (`evaluate`): it says on which rows an expression fails, and what it gives on
the others, since `/` and CAST mean other things to DuckDB. DuckDB joins first, then the rows that fail are taken out,
then DuckDB does the rest; a view of which nothing can fail is DuckDB's text for text. Neither shares code with the
project.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import duckdb
import pyarrow as pa

from tests.properties.paths.evaluate import Fails, value_of
from tests.properties.paths.expressions import (
    Call,
    Column,
    Expression,
    can_fail,
    columns_of,
    is_number,
    is_sure,
    terms_of,
    text,
)
from tests.properties.paths.history import NOW, TIME, Event, standing
from tests.properties.paths.values import Rows, arrow_type, plain, rows_of
from tests.properties.paths.views import (
    BOUNDS,
    CLOCK,
    Aggregate,
    Block,
    From,
    Having,
    Input,
    InWindows,
    Items,
    Lateral,
    Over,
    Query,
    Relation,
    Scalar,
    SetOperation,
    Subquery,
    Value,
    ViewOf,
    Window,
    Written,
    items_text,
)

_NUMBER: Final = "__row"
_SCHEMA: Final = "plain"


@dataclass(frozen=True)
class Expected:
    """What a view must be.

    Attributes:
        values: its rows without those that fail, or with NULL where they do, as the view's policy has it.
        failing: the joined rows on which an expression fails, in all blocks.
        parts: those of each block.
        matters: the rows are others without those that fail than with NULL where they do.
    """

    values: tuple[tuple[Any, ...], ...]
    failing: int
    parts: tuple[int, ...] = ()
    matters: bool = False

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
        self._db.execute("CREATE MACRO count_if(x) AS count(*) FILTER (WHERE x)")  # DuckDB's is NULL where all x are
        for relation in relations:
            assert relation.kind != "view"
            times = [(TIME, pa.int64()), (NOW, pa.int64())] if relation.kind == "stream" else []
            schema = pa.schema([*((name, arrow_type(kind)) for name, kind in relation.columns), *times])
            self._store(relation.name, pa.Table.from_pylist(standing(relation, events), schema))
        if CLOCK in relations:
            now = f"SELECT max({CLOCK.columns[1][0]}) FROM {CLOCK.name}"
            self._db.execute(f"CREATE MACRO now() AS ({now})")
            self._db.execute("CREATE MACRO from_unixtime(x) AS make_timestamptz(x * 1000)")
            self._db.execute(f"CREATE MACRO current_date() AS CAST(({now}) AS DATE)")

    def close(self) -> None:
        """Forget the tables."""
        self._db.execute(f"USE main; DROP SCHEMA {_SCHEMA} CASCADE")

    def expected(self, view: ViewOf) -> Expected:
        """The rows of a view."""
        failing: list[int] = []
        without = self._result(view.meant, nulls=False, failing=failing)
        with_nulls = self._result(view.meant, nulls=True, failing=[]) if any(failing) else without
        table = with_nulls if view.errors == "null" else without
        # For views over it.
        self._db.execute(f"CREATE TABLE {view.name} AS SELECT * FROM {table}")
        values, nulls = self._values(table), self._values(with_nulls)
        matters = rows_of(nulls) != rows_of(self._values(without))
        return Expected(values, sum(failing), tuple(failing), matters)

    def _values(self, table: str) -> tuple[tuple[Any, ...], ...]:
        found = self._db.sql(f"SELECT * FROM {table}").to_arrow_table()
        return tuple(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def _result(self, query: Query, *, nulls: bool, failing: list[int]) -> str:
        """The name of a table with the rows of a query, in its types."""
        if isinstance(query, Having) and (query.can_fail or query.groups.in_words_of_its_own):
            query = query.outer
        if isinstance(query, SetOperation):
            sides = [self._result(each, nulls=nulls, failing=failing) for each in (query.left, query.right)]
            sql = f" {query.operator} ".join(f"SELECT * FROM {each}" for each in sides)
        elif isinstance(query, Block) and (query.can_fail or query.in_words_of_its_own):
            sql = self._of_block(query, nulls=nulls, failing=failing)
        else:
            sql = query.sql
        return self._made(f"SELECT {_in_types(query.types)} FROM ({sql})")

    def _of_block(self, block: Block, *, nulls: bool, failing: list[int]) -> str:
        """The text of a block over a table of its joined rows, without those that fail."""
        columns = [*(column for each in block.inputs for column in each.columns), *_scalars(block)]
        times = f"a.{TIME}, a.{NOW}" if block.window is not None else f"NULL AS {TIME}, NULL AS {NOW}"
        body = self._made(
            f"SELECT row_number() OVER () AS {_NUMBER}, {_sound_condition(block)} AS __first, {times},"
            f" {', '.join(f'{each.sql} AS {_place(each)}' for each in columns)}"
            f" {self._source(block, nulls=nulls, failing=failing)}"
        )
        computed = list(dict.fromkeys(each for each in block.row_expressions() if can_fail(each)))
        if block.window is not None or block.keys_are_there:
            computed += [each for each in block.group or () if each not in computed]
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
        items = tuple((name, _in_words_of_duckdb(value)) for name, value in block.items)
        block = replace(block, items=items)
        if block.window is not None:
            block = replace(block, group=(*(block.group or ()), *BOUNDS))
        return f"SELECT {block.selected(shown)} {joined}{block.grouped(shown)}"

    def _source(self, block: Block, *, nulls: bool, failing: list[int]) -> str:
        """The FROM clause, in which a table stands for each query in brackets."""
        names = {each.alias: self._read(each.of, nulls=nulls, failing=failing) for each in block.inputs}
        if any(each.is_asof for each in block.inputs):
            return self._asof(block, names)
        if any(each.on is not None and can_fail(each.on) for each in block.inputs):
            return self._joined(block, names, nulls=nulls, failing=failing)
        parts = []
        for each in block.inputs:
            if isinstance(each.of, Items):
                columns = ", ".join(name for name, _ in each.of.columns)
                on = " ON TRUE" if each.on is not None else ""
                parts.append(f"{each.join} {names[each.alias]} AS {each.alias} ({columns}){on}")
                continue
            near = f"abs(a.{TIME} - {each.alias}.{TIME}) <= {(each.within or 0) * 1000}" if each.within else "TRUE"
            on = f" ON {text(each.on)} AND {near}" if each.on is not None else ""
            parts.append(f"{each.join} {names[each.alias]} AS {each.alias}{on}")
        return f"FROM {' '.join(parts)}"

    def _read(self, of: From | Block | SetOperation, *, nulls: bool, failing: list[int]) -> str:
        """What stands in FROM for an input."""
        match of:
            case Relation():
                return of.name
            case Items():
                return items_text(of)
            case Lateral():
                return of.sql
            case Written():
                return self._made(f"SELECT {_in_types(of.columns)} FROM {of.sql}")
            case InWindows():
                return self._made(_in_windows(of))
            case Block() | SetOperation():
                return self._result(of, nulls=nulls, failing=failing)

    def _asof(self, block: Block, names: Mapping[str, str]) -> str:
        """The FROM clause of an ASOF JOIN of two inputs: of the rows that match, the nearest, then the first one.

        The second input is a source: its rows are ordered by their key, or as they came.
        """
        left, right = block.inputs
        assert isinstance(right.of, Relation)
        assert right.on is not None
        *_, near = terms_of(right.on)
        assert isinstance(near, Call)
        time = text(near.arguments[1])
        nearest = f"{time} {'DESC' if near.operator in ('>=', '>') else 'ASC'}"
        key = right.of.columns[0][0] if right.of.kind == "table" else "rowid"
        sides = [
            self._made(f"SELECT row_number() OVER (ORDER BY {order}) AS {_NUMBER}, * FROM {names[each.alias]}")
            for each, order in ((left, "1"), (right, key))
        ]
        join = right.join.removeprefix("ASOF ")
        place = f"row_number() OVER (PARTITION BY a.{_NUMBER} ORDER BY {nearest}, b.{_NUMBER})"
        met = self._made(
            f"SELECT a.{_NUMBER} AS n_a, b.{_NUMBER} AS n_b, {place} AS place"
            f" FROM {sides[0]} AS a {join} {sides[1]} AS b ON {text(right.on)}"
        )
        joined = (
            f"LEFT JOIN {side} AS {alias} ON {alias}.{_NUMBER} = {met}.n_{alias}"
            for side, alias in zip(sides, "ab", strict=True)
        )
        return f"FROM (SELECT * FROM {met} WHERE place = 1) AS {met} {' '.join(joined)}"

    def _joined(self, block: Block, names: Mapping[str, str], *, nulls: bool, failing: list[int]) -> str:
        """The FROM clause of a join whose ON can fail: which rows meet, the second oracle says."""
        rows: dict[str, list[dict[Column, Any]]] = {}
        sides: dict[str, str] = {}
        for each in block.inputs:
            side = self._made(f"SELECT row_number() OVER () - 1 AS {_NUMBER}, * FROM {names[each.alias]}")
            listed = ", ".join(column.name for column in each.columns)
            found = self._db.sql(f"SELECT {listed} FROM {side} ORDER BY {_NUMBER}").to_arrow_table()
            values = zip(*(column.to_pylist() for column in found.columns), strict=True)
            rows[each.alias] = [dict(zip(each.columns, row, strict=True)) for row in values]
            sides[each.alias] = side
        first, *others = block.inputs
        met: list[dict[str, int | None]] = [{first.alias: number} for number in range(len(rows[first.alias]))]
        for place, each in enumerate(others, 1):
            met = _Meeting(each, block.inputs[:place], block.where, rows, nulls, failing).of(met)
        aliases = [each.alias for each in block.inputs]
        places = pa.table({f"n_{alias}": pa.array([row[alias] for row in met], pa.int64()) for alias in aliases})
        self._tables += 1
        pairs = f"pairs_{self._tables}"
        self._store(pairs, places)
        met_sides = (
            f" LEFT JOIN {side} AS {alias} ON {alias}.{_NUMBER} = {pairs}.n_{alias}" for alias, side in sides.items()
        )
        return f"FROM {pairs}{''.join(met_sides)}"

    def _rows(
        self, body: str, block: Block, computed: Iterable[Expression]
    ) -> Iterator[tuple[int, Any, tuple[Any, Any], dict[Any, Any]]]:
        """Each joined row: its number, what the sound conditions say, its times, and the columns that the second oracle
        reads.
        """
        read = [*computed, *([block.where] if block.where is not None else [])]
        columns = sorted(set().union(*map(columns_of, read)), key=_place)
        names = ", ".join([_NUMBER, "__first", TIME, NOW, *map(_place, columns)])
        found = self._db.sql(f"SELECT {names} FROM {body} ORDER BY 1").to_arrow_table()
        for number, first, at, now, *values in zip(*(column.to_pylist() for column in found.columns), strict=True):
            yield number, first, (at, now), dict(zip(columns, values, strict=True))

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


class _Meeting:
    """Which rows of a further input meet those that are joined already, where a term of its ON can fail.

    Its terms that cannot fail decide first. A row whose side of an equality fails joins nothing, and is left out by
    itself. A pair on which another term fails,
    of those that meet the rest, fails; nothing is padded for it. Either is counted unless WHERE leaves it out by a term
    that cannot fail.
    """

    def __init__(
        self,
        right: Input,
        before: Sequence[Input],
        where: Expression | None,
        rows: Mapping[str, list[dict[Column, Any]]],
        nulls: bool,
        failing: list[int],
    ) -> None:
        self._right, self._rows, self._nulls, self._failing = right, rows, nulls, failing
        self._before = {each.alias: each.columns for each in before}
        self._own = set(right.columns)
        self._where = [each for each in terms_of(where) if not can_fail(each)]
        terms = terms_of(right.on)
        self._sides = [side for each in terms for side in self._sides_of(each)]
        self._sure = [each for each in terms if not can_fail(each)]
        self._terms = sorted(terms, key=lambda each: can_fail(each) + (can_fail(each) and not self._sides_of(each)))

    def of(self, met: list[dict[str, int | None]]) -> list[dict[str, int | None]]:
        """The rows after the join."""
        alias = self._right.alias
        left = [each for each in met if self._holds_its_side(self._row(each), own=False)]
        right = [n for n, row in enumerate(self._rows[alias]) if self._holds_its_side(row, own=True)]
        made, alone_left, alone_right = [], list(range(len(left))), dict.fromkeys(right)
        for place, each in enumerate(left):
            for number in right:
                pair = self._row(each) | self._rows[alias][number]
                try:
                    holds = all(self._value(term, pair) is True for term in self._terms)
                except Fails:
                    self._note(pair)
                else:
                    if not holds:
                        continue
                    made.append(each | {alias: number})
                alone_left = [other for other in alone_left if other != place]
                alone_right.pop(number, None)
        if self._right.join.startswith(("LEFT", "FULL")):
            made += [left[place] | {alias: None} for place in alone_left]
        if self._right.join.startswith(("RIGHT", "FULL")):
            made += [dict.fromkeys(self._before) | {alias: number} for number in alone_right]
        return made

    def _sides_of(self, term: Expression) -> list[Expression]:
        """The sides of an equality between the inputs."""
        if not isinstance(term, Call) or term.operator != "=":
            return []
        own = [columns_of(each) <= self._own for each in term.arguments]
        other = [not columns_of(each) & self._own for each in term.arguments]
        both = all(columns_of(each) for each in term.arguments)
        return list(term.arguments) if both and any(own) and any(other) else []

    def _holds_its_side(self, row: dict[Column, Any], *, own: bool) -> bool:
        sides = [each for each in self._sides if (columns_of(each) <= self._own) is own]
        decided = [each for each in self._sure if columns_of(each) <= row.keys()]
        if not all(self._value(each, row) is True for each in decided):
            return True  # it meets nothing, and is padded
        try:
            for each in sides:
                self._value(each, row)
        except Fails:
            self._note(row)
            return False
        return True

    def _note(self, row: Mapping[Column, Any]) -> None:
        """Count what fails."""
        decided = [each for each in self._where if columns_of(each) <= row.keys()]
        self._failing.append(int(all(self._value(each, row) is True for each in decided)))

    def _row(self, met: Mapping[str, int | None]) -> dict[Column, Any]:
        made: dict[Column, Any] = {}
        for alias, number in met.items():
            made |= dict.fromkeys(self._before[alias]) if number is None else self._rows[alias][number]
        return made

    def _value(self, expression: Expression, row: Mapping[Column, Any]) -> Any:
        return value_of(expression, row, nulls=self._nulls)


class _Windows:
    """The windows that rows are in: of time, or sessions of the rows that have equal group keys."""

    def __init__(self, window: Window, group: Sequence[Expression]) -> None:
        self._window, self._group = window, group
        self._size, self._step = window.size * 1000, window.step * 1000
        unsaid = 0 if window.final else 24 * 3600
        self._grace = (window.grace if window.grace is not None else unsaid) * 1000
        self._latest: float = -math.inf

    def see(self, now: int) -> None:
        """Take note of the stream's time."""
        self._latest = max(self._latest, now)

    def is_late(self, at: int, now: int) -> bool:
        """True for a row that came too late for each of its windows."""
        if self._window.kind == "SESSION":
            return at + self._size + self._grace < now
        return not self._open(at, now)

    def _open(self, at: int, now: int) -> list[int]:
        """Where the windows begin that a row is in, without those for which it came too late."""
        last = at // self._step * self._step
        starts = range(last, at - self._size, -self._step)
        hops = self._window.kind == "HOPPING"  # none begins before 1970
        return [start for start in starts if start + self._size + self._grace > now and (start >= 0 or not hops)]

    def of(self, rows: Sequence[list[Any]], computed: Sequence[Expression]) -> Iterator[tuple[list[Any], list[int]]]:
        """Each row, which ends with its times, once for each of its windows."""
        if self._window.kind != "SESSION":
            for row in rows:
                for start in self._open(*row[-2:]):
                    if not self._window.final or start + self._size + self._grace <= self._latest:
                        yield row, [start, start + self._size]
            return
        groups: dict[Any, list[list[Any]]] = {}
        places = [computed.index(each) + 1 for each in self._group]
        for row in sorted(rows, key=lambda row: row[-2:]):
            groups.setdefault(tuple(plain(row[place]) for place in places), []).append(row)
        for group in groups.values():
            yield from self._sessions(group)

    def _sessions(self, rows: Sequence[list[Any]]) -> Iterator[tuple[list[Any], list[int]]]:
        session: list[list[Any]] = []
        for row in [*rows, None]:
            if session and (row is None or self._is_another(session[-1], row)):
                first, last = session[0][-2], session[-1][-2]
                if not self._window.final or last + self._size + self._grace < self._latest:
                    yield from ((each, [first, last]) for each in session)
                session = []
            if row is not None:
                session.append(row)

    def _is_another(self, last: list[Any], row: list[Any]) -> bool:
        """True if a session that ends with one row does not take the next one: too far away, or over when it came."""
        return bool(row[-2] - last[-2] > self._size or row[-1] > last[-2] + self._size + self._grace)


class _Kept:
    """The rows of a block that stay, with the values of what can fail, and the number of those that do not."""

    def __init__(self, block: Block, computed: Sequence[Expression], nulls: bool) -> None:
        self.failing = 0
        unsure = [each for each in terms_of(block.where) if can_fail(each)]
        self._unsure = sorted(unsure, key=is_sure, reverse=True)
        self._keys = [computed.index(each) for each in block.group or ()] if block.keys_are_there else []
        self._computed = computed
        self._nulls = nulls
        self._windows = _Windows(block.window, block.group or ()) if block.window is not None else None
        self._rows: list[list[Any]] = []

    def take(self, number: int, first: bool | None, times: tuple[Any, Any], row: dict[Any, Any]) -> None:
        """Take a joined row, or leave it out: a term of WHERE that is not TRUE decides, and no later one is asked."""
        windows = self._windows
        if windows is not None:
            windows.see(times[1])
        if first is not True or (windows is not None and windows.is_late(*times)):
            return
        try:
            if all(value_of(each, row, nulls=self._nulls) is True for each in self._unsure):
                values = [value_of(each, row, nulls=self._nulls) for each in self._computed]
                if any(values[place] is None for place in self._keys):
                    return
                self._rows.append([number, *values, *times])
        except Fails:
            self.failing += 1

    def table(self) -> pa.Table:
        """Them as a table."""
        names = [_NUMBER, *(f"__v{place}" for place in range(len(self._computed)))]
        types = [pa.int64(), *(arrow_type(each.type) for each in self._computed)]
        rows = self._rows
        if self._windows is not None:
            rows = [[*row[:-2], *window] for row, window in self._windows.of(rows, self._computed)]
            names += [_place(each) for each in BOUNDS]
            types += [pa.int64()] * 2
        columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
        return pa.table(columns, names=names)


def _in_types(columns: Iterable[tuple[str, str]]) -> str:
    """The SELECT list of columns; DuckDB's numbers are of other types."""
    return ", ".join(f"CAST({name} AS {kind}) AS {name}" if is_number(kind) else name for name, kind in columns)


def _in_words_of_duckdb(value: Value) -> Value:
    """An aggregate in the words that DuckDB has for it, where rows are numbered in the order of events; a distance in
    RANGE over numbers that do not end there."""
    if isinstance(value, Aggregate) and value.by_order:
        return replace(value, argument=value.computed, filter=None, form=value.by_order.format("{0}", _NUMBER))
    if isinstance(value, Over) and value.in_steps and all(is_number(each.type) for each in value.order):
        return replace(value, order=tuple(Call("CAST", (each,), "HUGEINT") for each in value.order))
    return value


def _in_windows(of: InWindows) -> str:
    """The rows of a relation, once for each of their windows."""
    size, step = of.size * 1000, (of.step or of.size) * 1000
    at = f"floor(epoch_us({of.time}) / 1000)::BIGINT"
    last = f"{at} - ({at} % {step} + {step}) % {step}"
    bounds = ", ".join(
        f"make_timestamptz((start{more}) * 1000) AS window_{name}"
        for name, more in (("start", ""), ("end", f" + {size}"))
    )
    starts = f"unnest(range({last}, {at} - {size}, -{step})) AS start"
    rows = f"SELECT *, {starts} FROM {of.of.name} WHERE {of.time} IS NOT NULL"
    return f"SELECT * EXCLUDE (start), {bounds} FROM ({rows})"


def _scalars(block: Block) -> list[Column]:
    """The subqueries that stand for values."""
    read = [*block.row_expressions(), *([block.where] if block.where is not None else [])]
    return list(dict.fromkeys(each for one in read for each in columns_of(one) if isinstance(each, Scalar)))


def _place(column: Column) -> str:
    return f"{column.alias}__{column.name}"


def _sound_condition(block: Block) -> str:
    """The terms of WHERE that cannot fail: they decide first, wherever they stand (docs/sql.md)."""
    found = [block.first.sql if isinstance(block.first, Subquery) else text(block.first)] if block.first else []
    found += [text(each) for each in terms_of(block.where) if not can_fail(each)]
    return " AND ".join(f"({each})" for each in found) or "TRUE"
