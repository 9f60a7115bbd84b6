"""The few places where Spark and DuckDB spell the same thing differently.

A maintenance rule is one text per engine. Rules and aggregate functions write it through an `Engine`, so that what a
rule *means* stands in one place and how an engine spells it stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal

from jobs.sql.types import Kind, SqlType

Dialect = Literal["spark", "duckdb"]

NEGATIVE_WEIGHT = "strandline: negative weight"
"""What a rule's SQL fails with when a row was taken away that is not there; `refresh` knows it by this text."""


def filtered(aggregate: str, *conditions: str | None) -> str:
    """`aggregate` over the rows that meet all conditions; None is no condition."""
    where = " AND ".join(f"({condition})" for condition in conditions if condition)
    return f"{aggregate} FILTER (WHERE {where})" if where else aggregate


def has_map(kind: SqlType) -> bool:
    """Whether values of the type hold a MAP anywhere: Spark can neither compare nor sort them."""
    if kind.kind is Kind.MAP:
        return True
    return any(has_map(inner) for inner in (*kind.args, *(field for _, field in kind.fields)))


class Engine(ABC):
    """How one engine writes the pieces of a rule. All arguments and results are SQL text, but for names and types."""

    dialect: Dialect

    @abstractmethod
    def name(self, name: str) -> str:
        """An identifier, quoted."""

    @abstractmethod
    def type(self, kind: SqlType) -> str:
        """A type."""

    @abstractmethod
    def struct(self, fields: Iterable[tuple[str, str]]) -> str:
        """A struct of named values."""

    @abstractmethod
    def empty(self, kind: SqlType) -> str:
        """The empty ARRAY or MAP of that type."""

    @abstractmethod
    def newest(self, value: str, order: str) -> str:
        """Aggregate: the value of the row with the greatest order."""

    @abstractmethod
    def oldest(self, value: str, order: str) -> str:
        """Aggregate: the value of the row with the smallest order."""

    @abstractmethod
    def newest_items(self, value: str, order: str, count: int) -> str:
        """Aggregate: array of the `count` values with the greatest orders, greatest first; NULL over no rows."""

    @abstractmethod
    def oldest_items(self, value: str, order: str, count: int) -> str:
        """Aggregate: array of the `count` values with the smallest orders, smallest first; NULL over no rows."""

    @abstractmethod
    def items(self, value: str) -> str:
        """Aggregate: array of all values, in no order; NULL or empty over no rows."""

    @abstractmethod
    def counts(self, value: str) -> str:
        """Aggregate: MAP from each value that is not null to how often it is there; NULL or empty over no rows."""

    @abstractmethod
    def sort(self, items: str, item: SqlType, by: str, *, descending: bool = False) -> str:
        """An array of structs, sorted by their field `by`, which is unique and comparable."""

    @abstractmethod
    def first(self, items: str, count: int) -> str:
        """The first `count` items of an array, or all when there are fewer."""

    @abstractmethod
    def concat(self, left: str, right: str) -> str:
        """Two arrays, one after the other."""

    @abstractmethod
    def reverse(self, items: str) -> str:
        """An array, last item first."""

    @abstractmethod
    def pluck(self, items: str, field: str) -> str:
        """One field of each struct of an array."""

    @abstractmethod
    def add_maps(self, left: str, right: str) -> str:
        """The union of two MAPs to numbers; values of common keys are added."""

    @abstractmethod
    def sort_map(self, value: str) -> str:
        """A MAP with its entries in the order of the keys, so that equal maps are stored equal."""

    @abstractmethod
    def fail(self, message: str) -> str:
        """A BOOLEAN whose evaluation fails with that message."""

    def cast(self, sql: str, kind: SqlType) -> str:
        """The value as exactly that type; an error when it does not fit."""
        return f"CAST({sql} AS {self.type(kind)})"

    def field(self, struct: str, *path: str) -> str:
        """A field of a struct; further names go deeper. NULL when the struct is."""
        return "".join([f"({struct})", *(f".{self.name(step)}" for step in path)])


class Spark(Engine):
    """Spark SQL 4.2, in ANSI mode."""

    dialect: Dialect = "spark"

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def type(self, kind: SqlType) -> str:
        return kind.spark()

    def struct(self, fields: Iterable[tuple[str, str]]) -> str:
        return f"struct({', '.join(f'{sql} AS {self.name(name)}' for name, sql in fields)})"

    def empty(self, kind: SqlType) -> str:
        return self.cast("map()" if kind.kind is Kind.MAP else "array()", kind)

    def newest(self, value: str, order: str) -> str:
        return f"max_by({value}, {order})"

    def oldest(self, value: str, order: str) -> str:
        return f"min_by({value}, {order})"

    def newest_items(self, value: str, order: str, count: int) -> str:
        return f"max_by({value}, {order}, {count})"

    def oldest_items(self, value: str, order: str, count: int) -> str:
        return f"min_by({value}, {order}, {count})"

    def items(self, value: str) -> str:
        return f"collect_list({value})"

    def counts(self, value: str) -> str:
        # Spark has no such aggregate. The sorted values are named `s` by a one-item transform (an expression used
        # twice is computed twice), `b` are the places where a run of equal values begins: n log n, one pass.
        runs = (
            "transform(b, (at, i) -> struct(element_at(s, at) AS key,"
            " CAST(CASE WHEN i + 1 < size(b) THEN b[i + 1] ELSE size(s) + 1 END - at AS BIGINT) AS value))"
        )
        begins = "filter(transform(s, (v, i) -> CASE WHEN i = 0 OR s[i - 1] <> v THEN i + 1 END), at -> at IS NOT NULL)"
        entries = f"transform(array({begins}), b -> {runs})[0]"
        return f"map_from_entries(transform(array(array_sort(collect_list({value}))), s -> {entries})[0])"

    def sort(self, items: str, item: SqlType, by: str, *, descending: bool = False) -> str:
        if not has_map(item) and item.fields[0][0] == by:
            return f"sort_array({items}, {'false' if descending else 'true'})"
        less = f"x.{self.name(by)} < y.{self.name(by)}"
        down, up = (1, -1) if descending else (-1, 1)
        return f"array_sort({items}, (x, y) -> CASE WHEN {less} THEN {down} ELSE {up} END)"

    def first(self, items: str, count: int) -> str:
        return f"slice({items}, 1, {count})"

    def concat(self, left: str, right: str) -> str:
        return f"concat({left}, {right})"

    def reverse(self, items: str) -> str:
        return f"reverse({items})"

    def pluck(self, items: str, field: str) -> str:
        return f"transform({items}, item -> item.{self.name(field)})"

    def add_maps(self, left: str, right: str) -> str:
        return f"map_zip_with({left}, {right}, (k, a, b) -> COALESCE(a, 0) + COALESCE(b, 0))"

    def sort_map(self, value: str) -> str:
        return f"map_from_entries(array_sort(map_entries({value})))"

    def fail(self, message: str) -> str:
        return f"CAST(raise_error('{message}') AS BOOLEAN)"


class DuckDb(Engine):
    """DuckDB 2.0."""

    dialect: Dialect = "duckdb"

    def name(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def type(self, kind: SqlType) -> str:
        return kind.duckdb()

    def struct(self, fields: Iterable[tuple[str, str]]) -> str:
        return f"struct_pack({', '.join(f'{self.name(name)} := {sql}' for name, sql in fields)})"

    def empty(self, kind: SqlType) -> str:
        return self.cast("MAP {}" if kind.kind is Kind.MAP else "[]", kind)

    def newest(self, value: str, order: str) -> str:
        return f"arg_max({value}, {order})"

    def oldest(self, value: str, order: str) -> str:
        return f"arg_min({value}, {order})"

    def newest_items(self, value: str, order: str, count: int) -> str:
        return f"arg_max({value}, {order}, {count})"

    def oldest_items(self, value: str, order: str, count: int) -> str:
        return f"arg_min({value}, {order}, {count})"

    def items(self, value: str) -> str:
        return f"list({value})"

    def counts(self, value: str) -> str:
        return f"histogram({value})"

    def sort(self, items: str, item: SqlType, by: str, *, descending: bool = False) -> str:
        keyed = f"list_transform({items}, lambda i: struct_pack(k := (i).{self.name(by)}, i := i))"
        ordered = f"list_sort({keyed}, '{'DESC' if descending else 'ASC'}')"
        return f"list_transform({ordered}, lambda i: (i).i)"

    def first(self, items: str, count: int) -> str:
        return f"list_slice({items}, 1, {count})"

    def concat(self, left: str, right: str) -> str:
        return f"list_concat({left}, {right})"

    def reverse(self, items: str) -> str:
        return f"list_reverse({items})"

    def pluck(self, items: str, field: str) -> str:
        return f"list_transform({items}, lambda item: (item).{self.name(field)})"

    def add_maps(self, left: str, right: str) -> str:
        keys = f"list_distinct(list_concat(map_keys({left}), map_keys({right})))"
        total = f"COALESCE(({left})[k], 0) + COALESCE(({right})[k], 0)"
        return f"map_from_entries(list_transform({keys}, lambda k: struct_pack(k := k, v := {total})))"

    def sort_map(self, value: str) -> str:
        return f"map_from_entries(list_sort(map_entries({value})))"

    def fail(self, message: str) -> str:
        return f"CAST(error('{message}') AS BOOLEAN)"


_ENGINES: dict[Dialect, Engine] = {"spark": Spark(), "duckdb": DuckDb()}


def engine(dialect: Dialect) -> Engine:
    """The writer of that dialect."""
    return _ENGINES[dialect]
