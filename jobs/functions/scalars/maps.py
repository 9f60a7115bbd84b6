"""Functions over maps. Where a map is made of pairs, a later pair replaces an earlier one with the same key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.jobs.functions.scalars.contract import Scalar, Types, common, count, takes
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType

# {0}: an array of pairs, in the engine's own names of their fields.
LAST_WINS = {
    "spark": "map_from_entries(filter({0}, (__x, __i) ->"
    " NOT exists(slice({0}, __i + 2, size({0})), __y -> __y.{1} = __x.{1})))",
    "duckdb": "map_from_entries(list_filter({0}, lambda __x, __i:"
    " NOT list_contains(list_transform(list_slice({0}, __i + 1, len({0})), lambda __y: __y.{1}), __x.{1})))",
}


def is_map(name: str, number: int, sql_type: SqlType) -> None:
    """Check that argument `number` (from 1) is a map.

    Raises:
        TypeMismatch: it is not.
    """
    if sql_type.base is not BaseType.MAP:
        raise TypeMismatch(f"argument {number} of {name} must be a MAP, not {sql_type}")


def _of_map(result: Callable[[SqlType], SqlType]) -> Callable[[str, Types], tuple[Types, SqlType]]:
    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, 1, 1)
        is_map(name, 1, types[0])
        return types, result(types[0])

    return signature


def pairs_of(sql_type: SqlType) -> SqlType:
    """The type of ENTRIES of a map: ARRAY<STRUCT<k, v>>."""
    return t.array(t.struct(("k", sql_type.args[0]), ("v", sql_type.args[1])))


def _entries(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 2)
    is_map(name, 1, types[0])
    if types[1:] not in ((), (t.BOOLEAN,)):
        raise TypeMismatch(f"argument 2 of {name} must be TRUE or FALSE, whether to sort by the key")
    return types, pairs_of(types[0])


def _entries_spark(arguments: Sequence[str]) -> str:
    pairs = f"transform(map_entries({arguments[0]}), __x -> named_struct('k', __x.key, 'v', __x.value))"
    order = "(__x, __y) -> CASE WHEN __x.k < __y.k THEN -1 WHEN __x.k > __y.k THEN 1 ELSE 0 END"
    return _ordered(pairs, f"array_sort({pairs}, {order})", arguments)


def _entries_duckdb(arguments: Sequence[str]) -> str:
    def paired(keys: str) -> str:
        return f'list_transform({keys}, lambda __x: struct_pack("k" := __x, "v" := ({arguments[0]})[__x]))'

    keys = f"map_keys({arguments[0]})"
    return _ordered(paired(keys), paired(f"list_sort({keys})"), arguments)


def _ordered(plain: str, sorted_: str, arguments: Sequence[str]) -> str:
    if len(arguments) == 1 or arguments[1].upper() == "FALSE":
        return plain
    return sorted_ if arguments[1].upper() == "TRUE" else f"CASE WHEN {arguments[1]} THEN {sorted_} ELSE {plain} END"


def _of_pairs(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 1)
    item = types[0].args[0] if types[0].base is BaseType.ARRAY else t.NULL
    if item.base is not BaseType.STRUCT or len(item.fields) != 2:
        raise TypeMismatch(f"{name} takes an ARRAY of pairs, not {types[0]}")
    return types, t.map_of(item.fields[0][1], item.fields[1][1])


def _of_lists(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    for number, sql_type in enumerate(types, 1):
        if sql_type.base is not BaseType.ARRAY:
            raise TypeMismatch(f"argument {number} of {name} must be an ARRAY, not {sql_type}")
    return types, t.map_of(types[0].args[0], types[1].args[0])


def _two_maps(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    shared = common(name, types)
    is_map(name, 1, shared)
    return (shared, shared), shared


_SPARK_SPLIT = "filter(split({0}, concat('\\\\Q', {1}, '\\\\E')), __x -> contains(__x, {2}))"
_SPARK_PAIR = "split(__x, concat('\\\\Q', {2}, '\\\\E'))"
_SPARK_PAIRS = f"transform({_SPARK_SPLIT}, __x -> named_struct('k', {_SPARK_PAIR}[0], 'v', {_SPARK_PAIR}[1]))"
_DUCKDB_PAIRS = (
    "list_transform(list_filter(str_split({0}, {1}), lambda __x: contains(__x, {2})),"
    ' lambda __x: struct_pack("k" := str_split(__x, {2})[1], "v" := str_split(__x, {2})[2]))'
)
_HAS_DELIMITERS = "{1} <> '' AND {2} <> ''"

# A key without a value has NULL, a value without a key is left out, as is one whose key is NULL. (arrays_zip would name
# the fields after columns, where the arrays are columns.)
_AS_MAP_SPARK = LAST_WINS["spark"].format(
    "filter(zip_with({0}, {1}, (__k, __v) -> named_struct('k', __k, 'v', __v)), __y -> __y.k IS NOT NULL)", "k"
)
_AS_MAP_DUCKDB = LAST_WINS["duckdb"].format(
    'list_filter(list_transform(list_zip({0}, {1}), lambda __x: {{"k": __x[1], "v": __x[2]}}),'
    " lambda __y: __y.k IS NOT NULL)",
    "k",
)

MAPS = (
    Scalar("MAP_KEYS", _of_map(lambda sql_type: t.array(sql_type.args[0])), "map_keys"),
    Scalar("MAP_VALUES", _of_map(lambda sql_type: t.array(sql_type.args[1])), "map_values"),
    Scalar(
        "MAP_LENGTH", _of_map(lambda _: t.INT), "size({0})", "CAST(cardinality({0}) AS INTEGER)", aliases=("MAP_SIZE",)
    ),
    Scalar("ENTRIES", _entries, _entries_spark, _entries_duckdb),
    # The way back from ENTRIES; NULL where a key comes twice.
    Scalar(
        "MAP_OF_PAIRS",
        _of_pairs,
        "CASE WHEN size(array_distinct(transform({0}, __x -> __x.k))) = size({0})"
        " AND NOT exists({0}, __x -> __x.k IS NULL) THEN map_from_entries({0}) END",
        "CASE WHEN len(list_distinct(list_transform({0}, lambda __x: __x.k))) = len({0})"
        " THEN map_from_entries({0}) END",
        hidden=True,
    ),
    Scalar(
        "AS_MAP",
        _of_lists,
        f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN {_AS_MAP_SPARK} END",
        f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN {_AS_MAP_DUCKDB} END",
    ),
    Scalar(
        "MAP_UNION",
        _two_maps,
        # A key that both have keeps its place, as in DuckDB.
        "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE map_concat("
        "transform_values({0}, (__x, __y) -> CASE WHEN map_contains_key({1}, __x) THEN {1}[__x] ELSE __y END),"
        " map_filter({1}, (__x, __y) -> NOT map_contains_key({0}, __x))) END",
        "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE map_concat({0}, {1}) END",
    ),
    Scalar(
        "SPLIT_TO_MAP",
        takes(t.map_of(t.VARCHAR, t.VARCHAR), t.VARCHAR, t.VARCHAR, t.VARCHAR),
        f"CASE WHEN {_HAS_DELIMITERS} THEN {LAST_WINS['spark'].format(_SPARK_PAIRS, 'k')} END",
        f"CASE WHEN {_HAS_DELIMITERS} THEN {LAST_WINS['duckdb'].format(_DUCKDB_PAIRS, 'k')} END",
    ),
)
