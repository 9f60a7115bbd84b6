"""Arrays and maps as each engine writes them: the part of an engine that accumulators are made of.

Places in an array are counted from 1. A `body` is SQL text over the names that the method binds. They begin with two
underscores, as no column of a user's does (DuckDB prefers the column), and differ from those bound around them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from strandline.jobs.model.types import MAX_PRECISION, BaseType, SqlType


def has_map(sql_type: SqlType) -> bool:
    """True if values of the type hold a MAP anywhere: Spark can neither compare nor sort them."""
    if sql_type.base is BaseType.MAP:
        return True
    return any(has_map(inner) for inner in (*sql_type.args, *(field for _, field in sql_type.fields)))


def addend(sql_type: SqlType) -> SqlType:
    """The type in which two values of `sql_type` are added without losing a digit.

    Spark widens the sum of two decimals by a digit and, at 38, takes that digit from the scale. Adding two of 37 digits
    stays exact, so a sum may have 37: one that needs all 38 is reported as an overflow.
    """
    if sql_type.base is not BaseType.DECIMAL:
        return sql_type
    return SqlType(BaseType.DECIMAL, precision=min(sql_type.precision, MAX_PRECISION - 1), scale=sql_type.scale)


class Arrays(ABC):
    """One engine's SQL over arrays and maps. Arguments and results are SQL text, except names, types and counts."""

    @abstractmethod
    def name(self, name: str) -> str:
        """An identifier, quoted."""

    @abstractmethod
    def type(self, sql_type: SqlType) -> str:
        """A type."""

    @abstractmethod
    def items(self, value: str) -> str:
        """Aggregate: array of all values, in no order; NULL or empty over no rows."""

    @abstractmethod
    def distinct_items(self, value: str) -> str:
        """Aggregate: array of the different values, in no order; none may be NULL. NULL or empty over no rows."""

    @abstractmethod
    def transform(self, items: str, item: str, body: str) -> str:
        """`body` for each item."""

    @abstractmethod
    def keep(self, items: str, item: str, condition: str) -> str:
        """The items for which the condition holds."""

    @abstractmethod
    def let(self, value: str, name: str, body: str) -> str:
        """`body`, in which `name` is the value: an expression written twice is computed twice."""

    @abstractmethod
    def get(self, items: str, place: str) -> str:
        """The item at that place; NULL where there is none."""

    @abstractmethod
    def slice(self, items: str, start: str, length: str) -> str:
        """`length` items from place `start` on, or as many as there are."""

    @abstractmethod
    def places(self, items: str) -> str:
        """The array 1, 2, … up to the number of items."""

    @abstractmethod
    def size(self, items: str) -> str:
        """The number of items; NULL of NULL."""

    @abstractmethod
    def concat(self, left: str, right: str) -> str:
        """Two arrays, one after the other."""

    @abstractmethod
    def reverse(self, items: str) -> str:
        """An array, last item first."""

    @abstractmethod
    def repeat(self, value: str, count: str) -> str:
        """An array that holds the value `count` times."""

    @abstractmethod
    def sort(self, items: str, *, descending: bool = False) -> str:
        """Values that can be compared and are not NULL, sorted."""

    @abstractmethod
    def sort_by(self, items: str, item: str, key: str, sql_type: SqlType, *, descending: bool = False) -> str:
        """The items, whose type is `sql_type`, sorted by a key: a comparable expression over `item`."""

    @abstractmethod
    def distinct(self, items: str) -> str:
        """The different values among the items, none of which is NULL."""

    @abstractmethod
    def overlap(self, left: str, right: str) -> str:
        """TRUE if an item is in both arrays; never NULL, even where items or arrays are."""

    @abstractmethod
    def least(self, items: str) -> str:
        """The smallest item that is not NULL; NULL when there is none."""

    @abstractmethod
    def total(self, items: str, sql_type: SqlType) -> str:
        """The sum of the items that are not NULL, as that type; 0 over none."""

    @abstractmethod
    def join_texts(self, items: str, separator: str) -> str:
        """The texts of an array, none of which is NULL, with a constant between them; its quotes are doubled."""

    @abstractmethod
    def bits(self, items: str, operator: str) -> str:
        """BIGINTs, none of which is NULL, joined bit by bit with `&`, `|` or `^`; some BIGINT over none."""

    def entries(self, value: str) -> str:
        """A MAP as an array of structs `key`, `value`."""
        return f"map_entries({value})"

    def first(self, items: str, count: int) -> str:
        """The first `count` items of an array, or all when there are fewer."""
        return self.slice(items, "1", str(count))

    def pluck(self, items: str, field: str) -> str:
        """One field of each struct of an array."""
        return self.transform(items, "__one", f"(__one).{self.name(field)}")

    def flatten(self, arrays: str) -> str:
        """The items of arrays, one array after the other."""
        return f"flatten({arrays})"

    def map_of(self, entries: str) -> str:
        """The MAP of an array of structs (key, value); no key comes twice."""
        return f"map_from_entries({entries})"

    def empty(self, sql_type: SqlType) -> str:
        """The empty ARRAY or MAP of that type."""
        literal = {BaseType.ARRAY: "array()", BaseType.MAP: "map()"}[sql_type.base]
        return f"CAST({literal} AS {self.type(sql_type)})"


# The two engines: Spark and DuckDB.


class SparkArrays(Arrays):
    """Spark SQL 4.2, in ANSI mode."""

    def items(self, value: str) -> str:
        return f"collect_list({value})"

    def distinct_items(self, value: str) -> str:
        return f"collect_set({value})"

    def transform(self, items: str, item: str, body: str) -> str:
        return f"transform({items}, {item} -> {body})"

    def keep(self, items: str, item: str, condition: str) -> str:
        return f"filter({items}, {item} -> {condition})"

    def let(self, value: str, name: str, body: str) -> str:
        return f"transform(array({value}), {name} -> {body})[0]"

    def get(self, items: str, place: str) -> str:
        return f"get({items}, {place} - 1)"

    def slice(self, items: str, start: str, length: str) -> str:
        return f"slice({items}, {start}, {length})"

    def places(self, items: str) -> str:
        return f"transform({items}, (__one, __nr) -> __nr + 1)"

    def size(self, items: str) -> str:
        return f"size({items})"

    def concat(self, left: str, right: str) -> str:
        return f"concat({left}, {right})"

    def reverse(self, items: str) -> str:
        return f"reverse({items})"

    def repeat(self, value: str, count: str) -> str:
        return f"array_repeat({value}, CAST({count} AS INT))"

    def sort(self, items: str, *, descending: bool = False) -> str:
        return f"sort_array({items}, {'false' if descending else 'true'})"

    def sort_by(self, items: str, item: str, key: str, sql_type: SqlType, *, descending: bool = False) -> str:
        keyed = self.transform(items, item, f"struct({key} AS k, {item} AS i)")
        if has_map(sql_type):
            down, up = (1, -1) if descending else (-1, 1)
            order = f"CASE WHEN __left.k < __right.k THEN {down} WHEN __left.k > __right.k THEN {up} ELSE 0 END"
            return self.pluck(f"array_sort({keyed}, (__left, __right) -> {order})", "i")
        return self.pluck(self.sort(keyed, descending=descending), "i")

    def distinct(self, items: str) -> str:
        return f"array_distinct({items})"

    def overlap(self, left: str, right: str) -> str:
        return f"COALESCE(arrays_overlap({left}, {right}), FALSE)"

    def least(self, items: str) -> str:
        return f"array_min({items})"

    def total(self, items: str, sql_type: SqlType) -> str:
        exact = self.type(addend(sql_type))
        added = f"CAST(CAST(__sum AS {exact}) + CAST(__left AS {exact}) AS {self.type(sql_type)})"
        present = self.keep(items, "__left", "__left IS NOT NULL")
        return f"aggregate({present}, CAST(0 AS {self.type(sql_type)}), (__sum, __left) -> {added})"

    def join_texts(self, items: str, separator: str) -> str:
        # In a text of Spark's a backslash begins an escape, as it does before a quote.
        escaped = separator.replace("\\", "\\\\").replace("''", "\\'")
        return f"array_join({items}, '{escaped}')"

    def bits(self, items: str, operator: str) -> str:
        start = "CAST(-1 AS BIGINT)" if operator == "&" else "CAST(0 AS BIGINT)"
        return f"aggregate({items}, {start}, (__sum, __left) -> __sum {operator} __left)"


class DuckDbArrays(Arrays):
    """DuckDB 2.0."""

    def items(self, value: str) -> str:
        return f"list({value})"

    def distinct_items(self, value: str) -> str:
        return f"list(DISTINCT {value})"

    def transform(self, items: str, item: str, body: str) -> str:
        return f"list_transform({items}, lambda {item}: {body})"

    def keep(self, items: str, item: str, condition: str) -> str:
        return f"list_filter({items}, lambda {item}: {condition})"

    def let(self, value: str, name: str, body: str) -> str:
        return f"list_transform([{value}], lambda {name}: {body})[1]"

    def get(self, items: str, place: str) -> str:
        return f"({items})[{place}]"

    def slice(self, items: str, start: str, length: str) -> str:
        return f"list_slice({items}, {start}, {start} + {length} - 1)"

    def places(self, items: str) -> str:
        return f"range(1, len({items}) + 1)"

    def size(self, items: str) -> str:
        return f"len({items})"

    def concat(self, left: str, right: str) -> str:
        return f"list_concat({left}, {right})"

    def reverse(self, items: str) -> str:
        return f"list_reverse({items})"

    def repeat(self, value: str, count: str) -> str:
        return f"repeat([{value}], {count})"

    def sort(self, items: str, *, descending: bool = False) -> str:
        return f"list_sort({items}, '{'DESC' if descending else 'ASC'}')"

    def sort_by(self, items: str, item: str, key: str, sql_type: SqlType, *, descending: bool = False) -> str:
        keyed = self.transform(items, item, f"struct_pack(k := {key}, i := {item})")
        return self.pluck(self.sort(keyed, descending=descending), "i")

    def distinct(self, items: str) -> str:
        return f"list_distinct({items})"

    def overlap(self, left: str, right: str) -> str:
        return f"COALESCE(list_has_any({left}, {right}), FALSE)"

    def least(self, items: str) -> str:
        return f"list_min({items})"

    def total(self, items: str, sql_type: SqlType) -> str:
        return f"COALESCE(CAST(list_sum({items}) AS {self.type(sql_type)}), 0)"

    def empty(self, sql_type: SqlType) -> str:
        literal = "MAP {}" if sql_type.base is BaseType.MAP else "[]"
        return f"CAST({literal} AS {self.type(sql_type)})"

    def join_texts(self, items: str, separator: str) -> str:
        return f"array_to_string({items}, '{separator}')"

    def bits(self, items: str, operator: str) -> str:
        word = {"&": "bit_and", "|": "bit_or", "^": "bit_xor"}[operator]
        return f"COALESCE(list_aggregate({items}, '{word}'), 0)"
