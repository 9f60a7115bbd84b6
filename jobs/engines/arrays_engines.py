"""The two implementations of `jobs.engines.arrays`: for Spark and for DuckDB."""

from __future__ import annotations

from strandline.jobs.engines.arrays import Arrays, addend, has_map
from strandline.jobs.model.types import BaseType, SqlType


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
