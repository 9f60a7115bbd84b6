"""Functions over VARCHAR that holds JSON. A text that is no JSON gives NULL, never an error.

Spark reads JSON as VARIANT, which sorts the members of an object by name; DuckDB leaves them as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from jobs.functions.scalars.contract import Scalar, Types, count, takes, takes_any_number
from jobs.model import types as t
from jobs.model.errors import TypeMismatch
from jobs.model.types import BaseType, SqlType

_TEXT_MAP = t.map_of(t.VARCHAR, t.VARCHAR)
_VARIANT = "try_parse_json({0})"
# A name inside of a text of JSON; control characters in names are left as they are.
_NAME = "'\"' || replace(replace({0}, '\\\\', '\\\\\\\\'), '\"', '\\\\\"') || '\"'"
_NAME_DUCKDB = "CAST(to_json({0}) AS VARCHAR)"

_ITEMS_SPARK = "transform(try_variant_get(try_parse_json({0}), '$', 'array<variant>'), __x -> to_json(__x))"
_ITEMS_DUCKDB = "list_transform(json_extract({0}, '$[*]'), lambda __x: CAST(__x AS VARCHAR))"
_RECORDS_SPARK = (
    "transform_values(try_variant_get(try_parse_json({0}), '$', 'map<string, variant>'), (__x, __y) -> to_json(__y))"
)
_RECORDS_DUCKDB = (
    "map(json_keys({0}), list_transform(json_keys({0}),"
    " lambda __x: CAST(json_extract({0}, '/' || replace(replace(__x, '~', '~0'), '/', '~1')) AS VARCHAR)))"
)


_SAFE = "CASE WHEN json_valid({0}) THEN {0} END"


def _typed_duckdb(json_type: str, text: str) -> str:
    """`text` where the argument is JSON of that type (OBJECT, ARRAY)."""
    return f"CASE WHEN json_type({_SAFE}) = '{json_type}' THEN {text} END"


_OBJECT = _typed_duckdb("OBJECT", _RECORDS_DUCKDB)
_LIST = _typed_duckdb("ARRAY", _ITEMS_DUCKDB)


def _contains(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    if types[0].base not in (BaseType.VARCHAR, BaseType.NULL) or types[1].is_nested:
        raise TypeMismatch(f"{name} takes a VARCHAR with an array of JSON, and a plain value")
    return (t.VARCHAR, types[1]), t.BOOLEAN


def _contains_spark(arguments: Sequence[str]) -> str:
    wanted = f"to_json(named_struct('v', {arguments[1]}), map('ignoreNullFields', 'false'))"
    items = _ITEMS_SPARK.format(arguments[0])
    found = f"exists({items}, __x -> concat('{{\"v\":', __x, '}}') = {wanted})"
    return f"coalesce({found}, false)"


def _contains_duckdb(arguments: Sequence[str]) -> str:
    wanted = f"coalesce(CAST(to_json({arguments[1]}) AS VARCHAR), 'null')"
    return f"coalesce(list_contains({_LIST.format(arguments[0])}, {wanted}), false)"


def _joined(pair: Callable[[str, str], str]) -> Callable[[Sequence[str]], str]:
    return lambda arguments: reduce(pair, arguments)


def _pair_spark(left: str, right: str) -> str:
    """Two objects: the members of both, where the later ones win. Else the items of both: no array is one item."""
    first, second = (_RECORDS_SPARK.format(side) for side in (left, right))
    union = f"map_concat(map_filter({first}, (__k, __v) -> NOT map_contains_key({second}, __k)), {second})"
    members = f"transform(map_entries({union}), __e -> {_NAME.format('__e.key')} || ':' || __e.value)"
    as_object = f"'{{' || array_join({members}, ',') || '}}'"
    items = [f"coalesce({_ITEMS_SPARK.format(s)}, array(to_json({_VARIANT.format(s)})))" for s in (left, right)]
    as_array = f"'[' || array_join(concat({items[0]}, {items[1]}), ',') || ']'"
    valid = " AND ".join(f"{_VARIANT.format(side)} IS NOT NULL" for side in (left, right))
    both = f"{first} IS NOT NULL AND {second} IS NOT NULL"
    return f"CASE WHEN {both} THEN {as_object} WHEN {valid} THEN {as_array} END"


def _pair_duckdb(left: str, right: str) -> str:
    objects = [_OBJECT.format(side) for side in (left, right)]
    union = f"map_concat({objects[0]}, {objects[1]})"
    members = f"list_transform(map_entries({union}), lambda __e: {_NAME_DUCKDB.format('__e.key')} || ':' || __e.value)"
    as_object = f"'{{' || array_to_string({members}, ',') || '}}'"
    items = [f"coalesce({_LIST.format(s)}, [CAST(json({_SAFE.format(s)}) AS VARCHAR)])" for s in (left, right)]
    as_array = f"'[' || array_to_string(list_concat({items[0]}, {items[1]}), ',') || ']'"
    valid = " AND ".join(f"json_valid({side})" for side in (left, right))
    both = " AND ".join(f"{each} IS NOT NULL" for each in objects)
    return f"CASE WHEN {both} THEN {as_object} WHEN {valid} THEN {as_array} END"


JSON = (
    # Strings without their quotes, anything else as JSON.
    Scalar(
        "EXTRACTJSONFIELD",
        takes(t.VARCHAR, t.VARCHAR, t.VARCHAR),
        "get_json_object",
        f"json_extract_string({_SAFE}, {{1}})",
        aliases=("JSON_EXTRACT",),
    ),
    Scalar(
        "IS_JSON_STRING",
        takes(t.BOOLEAN, t.VARCHAR),
        "(try_parse_json({0}) IS NOT NULL)",
        "coalesce(json_valid({0}), false)",
    ),
    Scalar(
        "JSON_ARRAY_LENGTH",
        takes(t.INT, t.VARCHAR),
        "json_array_length",
        "CAST(" + _typed_duckdb("ARRAY", "json_array_length({0})") + " AS INTEGER)",
    ),
    Scalar("JSON_ARRAY_CONTAINS", _contains, _contains_spark, _contains_duckdb),
    Scalar("JSON_ITEMS", takes(t.array(t.VARCHAR), t.VARCHAR), _ITEMS_SPARK, _LIST),
    Scalar(
        "JSON_KEYS",
        takes(t.array(t.VARCHAR), t.VARCHAR),
        "json_object_keys",
        _typed_duckdb("OBJECT", "json_keys({0})"),
    ),
    Scalar("JSON_RECORDS", takes(_TEXT_MAP, t.VARCHAR), _RECORDS_SPARK, _OBJECT),
    Scalar("JSON_CONCAT", takes_any_number(t.VARCHAR, t.VARCHAR, 1), _joined(_pair_spark), _joined(_pair_duckdb)),
)
