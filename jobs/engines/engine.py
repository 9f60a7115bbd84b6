"""The few places where Spark and DuckDB spell the same thing differently.

A maintenance rule is one text per engine. Rules and aggregate functions write it through an `Engine`, so that what a
rule *means* stands in one place and how an engine spells it stands here.

WITH RECURSIVE in DuckDB's words: the rows that follow from others, round by round, until nothing new comes.

    UNION, of values that are there already     DuckDB's own: a set of finite values ends by itself
    UNION ALL                                   each row has the number of its round
    UNION, of values that are computed          the same, by key: DuckDB would take a row of another round for a new one

Spark has WITH RECURSIVE with UNION ALL alone, so DuckDB runs all of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from strandline.jobs.engines.arrays import Arrays, DuckDbArrays, SparkArrays
from strandline.jobs.model.tables import ITSELF, LEVEL, Relation
from strandline.jobs.model.types import INT, BaseType, SqlType, struct
from strandline.state_store.tablespec import STATE

Dialect = Literal["spark", "duckdb"]

NEGATIVE_WEIGHT = "strandline: negative weight"
"""The message with which a rule's SQL fails when a row is retracted that is not there; `refresh` looks for it."""
DUPLICATE_KEY = "strandline: duplicate key"
"""The begin of the message with which it fails when a key of a source gets more than one row: ` 2 {"id":7}` follows,
the number of its rows and the key as JSON."""
FAILS_ON_A_ROW = "strandline: a row fails: "
"""The begin of the message with which a row fails; the expression, or the expectation that it breaks, follows."""
NO_DATE = "[NUMERIC_VALUE_OUT_OF_RANGE] The day is in none of the years 1 to 9999"
"""The message with which a number of days fails that is no date."""


def filtered(aggregate: str, *conditions: str | None) -> str:
    """`aggregate` over the rows that meet all conditions; None is no condition."""
    where = " AND ".join(f"({condition})" for condition in conditions if condition)
    return f"{aggregate} FILTER (WHERE {where})" if where else aggregate


def _longest(sizes: Iterable[str]) -> str:
    return f"GREATEST({', '.join(f'COALESCE({size}, 0)' for size in sizes)}, 0)"


class Engine(Arrays):
    """One engine's SQL for the pieces of a rule. Arguments and results are SQL text, except names and types."""

    dialect: Dialect

    @abstractmethod
    def struct(self, fields: Iterable[tuple[str, str]]) -> str:
        """A struct of named values."""

    @abstractmethod
    def row(self, alias: str) -> str:
        """A struct of all columns of a relation of the FROM clause."""

    @abstractmethod
    def newest(self, value: str, order: str) -> str:
        """Aggregate: the value of the row with the greatest order."""

    @abstractmethod
    def oldest(self, value: str, order: str) -> str:
        """Aggregate: the value of the row with the smallest order."""

    @abstractmethod
    def newest_rows(self, table: str, keys: Sequence[str], names: Sequence[str], order: str) -> str:
        """SELECT of these columns of each key's row with the greatest order. No two rows of a key have the same one."""

    @abstractmethod
    def event_order(self, time: str, partition: str, offset: str) -> str:
        """A value by which events compare as by (time, partition, offset); never NULL. No time is before every time."""

    @abstractmethod
    def newest_items(self, value: str, order: str, count: int) -> str:
        """Aggregate: array of the `count` values with the greatest orders, greatest first; NULL over no rows."""

    @abstractmethod
    def oldest_items(self, value: str, order: str, count: int) -> str:
        """Aggregate: array of the `count` values with the smallest orders, smallest first; NULL over no rows."""

    @abstractmethod
    def items_in_order(self, value: str, keys: Sequence[str], *conditions: str | None, descending: bool = False) -> str:
        """Aggregate: array of the values of the rows that meet all conditions, ordered by keys of plain types, all in
        one direction, NULL below all values; NULL or empty over no rows."""

    @abstractmethod
    def skipping_nulls(self, function: str, arguments: Sequence[str]) -> str:
        """LAG or LEAD with IGNORE NULLS, before OVER."""

    @abstractmethod
    def distinct_over(self, value: str, window: str) -> str:
        """The number of different values OVER a window, NULL not among them."""

    @abstractmethod
    def expand(self, arrays: Sequence[tuple[str, str]]) -> str:
        """The text after a FROM clause that repeats each row for each item of (name, array), several side by side: an
        item is read by its array's name, its number from 1 by `__item`."""

    @abstractmethod
    def fail(self, message: str, *more: str) -> str:
        """A BOOLEAN whose evaluation fails with that message, and the values of the row that follow it."""

    def cast(self, sql: str, sql_type: SqlType) -> str:
        """The value as exactly that type; an error when it does not fit."""
        return f"CAST({sql} AS {self.type(sql_type)})"

    def cast_or_null(self, sql: str, sql_type: SqlType) -> str:
        """The value as exactly that type; NULL when it does not fit."""
        return f"TRY_CAST({sql} AS {self.type(sql_type)})"

    def field(self, struct: str, *path: str) -> str:
        """A field of a struct; further names go deeper. NULL when the struct is."""
        return "".join([f"({struct})", *(f".{self.name(step)}" for step in path)])


class Spark(SparkArrays, Engine):
    """Spark SQL 4.2, in ANSI mode."""

    dialect: Dialect = "spark"

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def type(self, sql_type: SqlType) -> str:
        return sql_type.spark()

    def struct(self, fields: Iterable[tuple[str, str]]) -> str:
        return f"struct({', '.join(f'{sql} AS {self.name(name)}' for name, sql in fields)})"

    def row(self, alias: str) -> str:
        return f"struct({alias}.*)"

    def newest(self, value: str, order: str) -> str:
        return f"max_by({value}, {order})"

    def oldest(self, value: str, order: str) -> str:
        return f"min_by({value}, {order})"

    def newest_rows(self, table: str, keys: Sequence[str], names: Sequence[str], order: str) -> str:
        key = ", ".join(map(self.name, keys))
        row = self.struct([(name, self.name(name)) for name in names])
        newest = f"SELECT {self.newest(row, order)} AS __newest FROM {table} GROUP BY {key}"
        return f"SELECT {', '.join(f'__newest.{self.name(name)}' for name in names)} FROM ({newest})"

    def event_order(self, time: str, partition: str, offset: str) -> str:
        return f"struct({time}, {partition}, {offset})"

    def newest_items(self, value: str, order: str, count: int) -> str:
        return f"max_by({value}, {order}, {count})"

    def oldest_items(self, value: str, order: str, count: int) -> str:
        return f"min_by({value}, {order}, {count})"

    def items_in_order(self, value: str, keys: Sequence[str], *conditions: str | None, descending: bool = False) -> str:
        parts = []
        for place, key in enumerate(keys):
            parts += [(f"p{place}", f"{key} IS NOT NULL"), (f"k{place}", key)]
        item = self.struct([("k", self.struct(parts)), ("i", value)])
        items = filtered(self.items(item), *conditions)
        return self.pluck(self.sort(items, descending=descending), "i")

    def skipping_nulls(self, function: str, arguments: Sequence[str]) -> str:
        return f"{function}({', '.join(arguments)}) IGNORE NULLS"

    def distinct_over(self, value: str, window: str) -> str:
        # Spark has no DISTINCT OVER a window.
        return f"CAST(size(collect_set({value}) OVER {window}) AS BIGINT)"

    def expand(self, arrays: Sequence[tuple[str, str]]) -> str:
        longest = _longest(f"size({array})" for _, array in arrays)
        names = ", ".join(["__item", *(self.name(name) for name, _ in arrays)])
        items = ", ".join(["i AS __item", *(f"get({array}, i - 1) AS {self.name(name)}" for name, array in arrays)])
        # sequence(1, 0) would count down.
        numbers = f"CASE WHEN {longest} > 0 THEN sequence(1, {longest}) ELSE CAST(array() AS ARRAY<INT>) END"
        return f"LATERAL VIEW inline(transform({numbers}, i -> struct({items}))) __expanded AS {names}"

    def fail(self, message: str, *more: str) -> str:
        return f"CAST(raise_error({_said(message, more)}) AS BOOLEAN)"


class DuckDb(DuckDbArrays, Engine):
    """DuckDB 2.0."""

    dialect: Dialect = "duckdb"

    def name(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def type(self, sql_type: SqlType) -> str:
        return sql_type.duckdb()

    def struct(self, fields: Iterable[tuple[str, str]]) -> str:
        return f"struct_pack({', '.join(f'{self.name(name)} := {sql}' for name, sql in fields)})"

    def row(self, alias: str) -> str:
        return alias

    def newest(self, value: str, order: str) -> str:
        return f"arg_max({value}, {order})"

    def oldest(self, value: str, order: str) -> str:
        return f"arg_min({value}, {order})"

    def newest_rows(self, table: str, keys: Sequence[str], names: Sequence[str], order: str) -> str:
        # arg_max makes a text of the row and of its order, for each row: four times what this takes. In an epoch most
        # keys come once: to join only those that do not is half of joining all.
        key, listed = (", ".join(map(self.name, each)) for each in (keys, names))
        same = " AND ".join(f"{table}.{name} IS NOT DISTINCT FROM __most.{name}" for name in map(self.name, keys))
        most = f"SELECT {key}, max({order}) AS __order FROM {table} GROUP BY {key} HAVING count(*) > 1"
        return f"SELECT {listed} FROM {table} ANTI JOIN ({most}) AS __most ON {same} AND {order} < __most.__order"

    def event_order(self, time: str, partition: str, offset: str) -> str:
        # A struct is ordered by a text made of its fields, for each row. One number takes a third of the time; above
        # 2^44 an offset reaches into the bits of the partition, which decide nothing between events of one partition.
        # Only to be joined together with a key: a HUGEINT of equal halves, as where an offset is its time, hashes to 0.
        micros = f"COALESCE(epoch_us({time}), {-1 << 62})"
        return f"({micros}::HUGEINT * {1 << 64} + {partition}::HUGEINT * {1 << 44} + {offset})"

    def newest_items(self, value: str, order: str, count: int) -> str:
        return f"arg_max({value}, {order}, {count})"

    def oldest_items(self, value: str, order: str, count: int) -> str:
        return f"arg_min({value}, {order}, {count})"

    def items_in_order(self, value: str, keys: Sequence[str], *conditions: str | None, descending: bool = False) -> str:
        way = "DESC NULLS LAST" if descending else "ASC NULLS FIRST"
        return filtered(f"list({value} ORDER BY {', '.join(f'{key} {way}' for key in keys)})", *conditions)

    def skipping_nulls(self, function: str, arguments: Sequence[str]) -> str:
        return f"{function}({', '.join(arguments)} IGNORE NULLS)"

    def distinct_over(self, value: str, window: str) -> str:
        return f"COUNT(DISTINCT {value}) OVER {window}"

    def expand(self, arrays: Sequence[tuple[str, str]]) -> str:
        longest = _longest(f"len({array})" for _, array in arrays)
        numbers = f"LATERAL (SELECT CAST(unnest(range(1, {longest} + 1)) AS INTEGER) AS __item) AS __items"
        items = ", ".join(f"({array})[__item] AS {self.name(name)}" for name, array in arrays)
        return f"CROSS JOIN {numbers}\n  CROSS JOIN LATERAL (SELECT {items}) AS __expanded"

    def fail(self, message: str, *more: str) -> str:
        return f"CAST(error({_said(message, more)}) AS BOOLEAN)"


def _said(message: str, more: Sequence[str]) -> str:
    return f"concat('{message}', {', '.join(more)})" if more else f"'{message}'"


_ENGINES: dict[Dialect, Engine] = {"spark": Spark(), "duckdb": DuckDb()}


def engine_of(dialect: Dialect) -> Engine:
    """The engine of that dialect."""
    return _ENGINES[dialect]


# Values of any type in a form that both engines compare alike.
#
# Spark puts a NULL inside a struct or array before every value, DuckDB after; Spark compares no maps, DuckDB compares
# their entries in the order in which they happen to be. The comparable form says first whether there is a value, and
# lists a map's entries by key:
#
#     1                                 (TRUE, 1)
#     NULL                              (FALSE, NULL)
#     STRUCT(a := 1, b := MAP('k':=2))  (TRUE, ((FALSE, 1), (FALSE, [((FALSE, 'k'), (FALSE, 2))])))
#
# Forms of one type are equal exactly when the values are; they sort NULL first, but inside of a value last, as
# `jobs.query.expressions.nested` has it; texts and bytes byte by byte, NaN last.


def comparable(engine: Engine, value: str, sql_type: SqlType) -> str:
    """The comparable form of a value that may be NULL. `value` is repeated in it: give it a name first."""
    return engine.struct([("p", f"({value}) IS NOT NULL"), ("v", _present(engine, value, sql_type, 0))])


def comparable_row(engine: Engine, row: str, sql_type: SqlType) -> str:
    """The comparable forms of several values that one struct holds, side by side: each sorts by itself."""
    names = [name for name, _ in sql_type.fields]
    forms = [comparable(engine, engine.field(row, name), inner) for name, inner in sql_type.fields]
    return engine.struct(zip(names, forms, strict=True))


def _nullable(engine: Engine, value: str, sql_type: SqlType, depth: int) -> str:
    """A value inside of another one, where NULL is greater than any other (`jobs.query.expressions.nested`)."""
    return engine.struct([("n", f"({value}) IS NULL"), ("v", _present(engine, value, sql_type, depth))])


def _present(engine: Engine, value: str, sql_type: SqlType, depth: int) -> str:
    # Lambdas stand inside each other: their names differ by depth.
    item = f"__c{depth}"
    match sql_type.base:
        case BaseType.ARRAY:
            return engine.transform(value, item, _nullable(engine, item, sql_type.args[0], depth + 1))
        case BaseType.STRUCT:
            fields = [
                (f"f{place}", _nullable(engine, engine.field(value, name), inner, depth))
                for place, (name, inner) in enumerate(sql_type.fields)
            ]
            return engine.struct(fields)
        case BaseType.MAP:
            return _entries(engine, value, sql_type, depth)
        case _:
            return value


def _entries(engine: Engine, value: str, sql_type: SqlType, depth: int) -> str:
    entry = f"__c{depth}"
    key, inner = sql_type.args
    by_key = engine.sort_by(
        engine.entries(value),
        entry,
        _nullable(engine, engine.field(entry, "key"), key, depth + 1),
        struct(("key", key), ("value", inner)),
    )
    parts = [
        ("k", _nullable(engine, engine.field(entry, "key"), key, depth + 1)),
        ("v", _nullable(engine, engine.field(entry, "value"), inner, depth + 1)),
    ]
    return engine.transform(by_key, entry, engine.struct(parts))


# The columns of a relation as a SELECT lists them: those kept in `__state` become plain ones.


def listed(relation: Relation, engine: Engine) -> list[str]:
    """All that can be read by name of a relation's table, in order: its columns, then the hidden ones."""
    plain = [engine.name(name) for name, _ in relation.columns]
    return plain + [f"{STATE}.{engine.name(name)} AS {engine.name(name)}" for name, _ in relation.hidden]


TOO_MANY_ROUNDS: Final = "strandline: a recursion goes on beyond its rounds: "
"""The begin of the message with which it fails when rows still follow after the last round; their number follows."""


def rounds(
    names: Sequence[str], seed: str, steps: Sequence[str], engine: Engine, *, distinct: bool, levels: int | None
) -> str:
    """The relation `__itself` of all rows, to stand behind WITH RECURSIVE.

    Args:
        names: of the columns.
        seed: a SELECT of the rows to begin with.
        steps: SELECTs of what follows from the rows of `__itself`; with `levels` also of the `__level` of that row.
        distinct: rows are there once.
        levels: the most rounds; None: no row says in which it came.
    """
    columns = ", ".join(map(engine.name, names))
    following = "\n  UNION ALL\n".join(steps)
    itself, level = engine.name(ITSELF), engine.name(LEVEL)
    if levels is None:
        return f"{itself} ({columns}) AS (\n{seed}\n  UNION\nSELECT {columns} FROM (\n{following}\n) AS __steps\n)"
    error = engine.cast(engine.fail(f"{TOO_MANY_ROUNDS}{levels}"), INT)
    next_level = f"CASE WHEN __steps.{level} >= {levels} THEN {error} ELSE __steps.{level} + 1 END AS {level}"
    begin = f"SELECT {'DISTINCT ' if distinct else ''}{columns}, 0 AS {level} FROM (\n{seed}\n) AS __seed"
    if not distinct:
        return f"""{itself} ({columns}, {level}) AS (
{begin}
  UNION ALL
SELECT {columns}, {next_level} FROM (
{following}
) AS __steps
)"""
    shown = ", ".join(f"__steps.{engine.name(name)}" for name in names)
    same = " AND ".join(f"__steps.{name} IS NOT DISTINCT FROM __known.{name}" for name in map(engine.name, names))
    return f"""{itself} ({columns}, {level}) USING KEY ({columns}) AS (
{begin}
  UNION
SELECT {shown}, {next_level} FROM (
SELECT DISTINCT {columns}, {level} FROM (
{following}
) AS __all
) AS __steps ANTI JOIN recurring.{itself} AS __known ON {same}
)"""


def all_rounds(names: Sequence[str], engine: Engine, *, levels: int | None) -> str:
    """A SELECT of the rows of `__itself`. Of a column that nobody reads DuckDB would not compute the error."""
    where = f" WHERE {engine.name(LEVEL)} >= 0" if levels is not None else ""
    return f"SELECT {', '.join(map(engine.name, names))} FROM {engine.name(ITSELF)}{where}"
