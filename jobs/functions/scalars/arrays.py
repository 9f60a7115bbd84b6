"""Functions over arrays, and those that take a lambda over an array or a map (TRANSFORM, FILTER, REDUCE).

NULL is an item like others, and equal to NULL; items are numbered from 1.
`jobs.query.expressions.nested` elaborates the calls of those that take a lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.functions.scalars.contract import Scalar, Signature, Types, common, count, takes, unquoted
from strandline.jobs.functions.scalars.domains import MOST_CHARACTERS, too_many
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.types import BaseType, SqlType

FORMS = {
    "TRANSFORM": "TRANSFORM(array, x => …) or TRANSFORM(map, (k, v) => …, (k, v) => …)",
    "FILTER": "FILTER(array, x => …) or FILTER(map, (k, v) => …)",
    "REDUCE": "REDUCE(array, state, (s, x) => …) or REDUCE(map, state, (s, k, v) => …)",
}
"""The forms of a call, for each function."""

OF_ARRAY = "of_array"
"""The mark, among a Bracket's `meta`, of an element of an ARRAY; without it one of a MAP."""


def _by_function(name: str, types: Types) -> tuple[Types, SqlType]:
    raise InvalidQuery(f"{name} takes a function", hint=FORMS[name])


HIGHER_ORDER = (
    Scalar("TRANSFORM", _by_function, "transform", "list_transform"),
    Scalar("FILTER", _by_function, "filter", "list_filter"),
    # NULL as the state gives NULL, and NULL as the array gives the state.
    Scalar(
        "REDUCE",
        _by_function,
        "CASE WHEN {1} IS NULL OR {0} IS NULL THEN {1} ELSE aggregate({0}, {1}, {2}) END",
        "CASE WHEN {1} IS NULL OR {0} IS NULL THEN {1} ELSE list_reduce({0}, {2}, {1}) END",
    ),
)


# The first of equal items stays as it is: -0.0 too, which equals 0.0.
_DISTINCT = "list_filter({0}, lambda __x, __i: list_position({0}, __x) = __i)"
_FIRST = "NOT exists(slice({0}, 1, __i), __y -> __y <=> __x)"
_HAS = "exists({1}, __y -> __y <=> __x)"
_DISTINCT_SPARK = f"filter({{0}}, (__x, __i) -> {_FIRST})"
_COMBINED = (
    "list_transform(range(0, CAST(1 << len({0}) AS BIGINT)), lambda __y: list_transform({0}, lambda __x, __i:"
    " CASE WHEN (__y >> (len({0}) - __i)) & 1 = 1 THEN __x END))"
)


def is_array(name: str, number: int, sql_type: SqlType) -> None:
    """Check that argument `number` (from 1) is an array.

    Raises:
        TypeMismatch: it is not.
    """
    if sql_type.base is not BaseType.ARRAY:
        raise TypeMismatch(f"argument {number} of {name} must be an ARRAY, not {sql_type}")


def _one(result: Callable[[SqlType], SqlType], *, plain: bool = False, compared: bool = False) -> Signature:
    """One array; `plain`: its items have an order; `compared`: they are told apart."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, 1, 1)
        is_array(name, 1, types[0])
        if plain and types[0].args[0].is_nested:
            raise TypeMismatch(f"{name} does not take {types[0]}: its items have no order")
        if compared and has_map(types[0]):
            raise TypeMismatch(f"{name} does not take {types[0]}: it cannot compare MAPs")
        return types, result(types[0])

    return signature


def _two(name: str, types: Types) -> tuple[Types, SqlType]:
    """Two arrays of one type; one that is just NULL has the other's."""
    count(name, types, 2, 2)
    shared = common(name, types)
    is_array(name, 1, shared)
    return (shared, shared), shared


def _two_compared(name: str, types: Types) -> tuple[Types, SqlType]:
    """The same, where items are told apart."""
    found = _two(name, types)
    if has_map(found[1]):
        raise TypeMismatch(f"{name} does not take {found[1]}: it cannot compare MAPs")
    return found


def _with_item(result: Callable[[SqlType], SqlType]) -> Signature:
    """An array, and a value of its items' type."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, 2, 2)
        is_array(name, 1, types[0])
        item = common(name, (types[0].args[0], types[1]))
        if has_map(item) or item.base is BaseType.NULL:
            raise TypeMismatch(f"{name} cannot compare values of type {item}")
        return (t.array(item), item), result(t.array(item))

    return signature


def _sort(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 2)
    _, result = _one(lambda sql_type: sql_type, plain=True)(name, types[:1])
    if len(types) == 2 and types[1] != t.VARCHAR:
        raise TypeMismatch(f"argument 2 of {name} must be 'ASC' or 'DESC', not {types[1]}")
    return types, result


def _descending(arguments: Sequence[str]) -> bool:
    return len(arguments) > 1 and arguments[1].strip("'").upper().startswith("DESC")


def _check_order(literals: Sequence[str | None]) -> None:
    if len(literals) > 1 and (literals[1] or "").upper() not in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
        raise InvalidQuery(f"{literals[1]!r} is not an order", hint="'ASC' or 'DESC'")


def _sorted_spark(arguments: Sequence[str]) -> str:
    return f"sort_array({arguments[0]}, false)" if _descending(arguments) else f"array_sort({arguments[0]})"


def _sorted_duckdb(arguments: Sequence[str]) -> str:
    order = "DESC" if _descending(arguments) else "ASC"
    return f"list_sort({arguments[0]}, '{order}', 'NULLS LAST')"


def _join(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 2)
    is_array(name, 1, types[0])
    texts = t.array(t.VARCHAR)
    if t.common_type(types[0], texts) != texts or types[1:] not in ((), (t.VARCHAR,), (t.NULL,)):
        raise TypeMismatch(f"{name} takes an ARRAY<VARCHAR> and a VARCHAR", hint="CAST(… AS ARRAY<VARCHAR>)")
    return (texts, t.VARCHAR)[: len(types)], t.VARCHAR


def _joined(template: str) -> Callable[[Sequence[str]], str]:
    """NULL items are the word null, a NULL separator is none."""
    return lambda arguments: template.format(
        arguments[0], f"coalesce({arguments[1]}, '')" if len(arguments) > 1 else "','"
    )


def _joined_duckdb(arguments: Sequence[str]) -> str:
    """DuckDB takes a separator from a constant only; another one goes before each item, and from before the first."""
    separator = arguments[1] if len(arguments) > 1 else "','"
    before = "" if unquoted(separator, "duckdb") is not None else f"coalesce({separator}, '') || "
    items = f"list_transform({arguments[0]}, lambda __x: {before}coalesce(__x, 'null'))"
    if not before:
        return f"array_to_string({items}, {separator})"
    return f"substring(array_to_string({items}, ''), length(coalesce({separator}, '')) + 1)"


def _slice(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 3, 3)
    is_array(name, 1, types[0])
    for number, sql_type in enumerate(types[1:], 2):
        if sql_type.base not in (BaseType.INT, BaseType.NULL):
            raise TypeMismatch(f"argument {number} of {name} must be INT, not {sql_type}")
    return (types[0], t.INT, t.INT), types[0]


def _sliced(size: str, cut: str) -> Callable[[Sequence[str]], str]:
    """The items between two places, both included; NULL where the array does not reach so far."""

    def write(arguments: Sequence[str]) -> str:
        items = arguments[0]
        length = size.format(items)
        first, last = f"coalesce({arguments[1]}, 1)", f"coalesce({arguments[2]}, {length})"
        inside = f"{first} >= 1 AND {last} <= {length} AND {last} >= {first} - 1"
        return f"CASE WHEN {inside} THEN {cut.format(items, first, last)} END"

    return write


def _series(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 3)
    for number, sql_type in enumerate(types, 1):
        if sql_type.base not in (
            (BaseType.INT, BaseType.NULL) if number == 3 else (BaseType.INT, BaseType.BIGINT, BaseType.NULL)
        ):
            raise TypeMismatch(f"argument {number} of {name} must be {'INT' if number == 3 else 'INT or BIGINT'}")
    shared = common(name, types[:2])
    shared = t.INT if shared.base is BaseType.NULL else shared
    return (shared,) * len(types), t.array(shared)


def _part(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 3, 3)
    is_array(name, 1, types[0])
    for number, sql_type in enumerate(types[1:], 2):
        if sql_type.base not in (BaseType.INT, BaseType.BIGINT, BaseType.NULL):
            raise TypeMismatch(f"argument {number} of {name} must be INT or BIGINT, not {sql_type}")
    return (types[0], t.BIGINT, t.BIGINT), types[0]


def _cut(size: str, cut: str) -> Callable[[Sequence[str]], str]:
    """The items of an array between two places, as far as it has them; a negative place counts from the end."""

    def write(arguments: Sequence[str]) -> str:
        items, first, last = arguments
        length = size.format(items)
        begin = f"greatest(CASE WHEN {first} < 0 THEN {length} + {first} + 1 ELSE {first} END, 1)"
        end = f"greatest(least(CASE WHEN {last} < 0 THEN {length} + {last} + 1 ELSE {last} END, {length}), 0)"
        begin = f"least({begin}, {length} + 1)"
        known = f"{items} IS NOT NULL AND {first} IS NOT NULL AND {last} IS NOT NULL"
        return f"CASE WHEN {known} THEN {cut.format(items, begin, end)} END"

    return write


def _nested(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 1)
    is_array(name, 1, types[0])
    if types[0].args[0].base is not BaseType.ARRAY:
        raise TypeMismatch(f"{name} takes an ARRAY of ARRAYs, not {types[0]}")
    return types, types[0].args[0]


_TOO_MANY = f"(abs(CAST({{1}} AS DOUBLE) - CAST({{0}} AS DOUBLE)) > {MOST_CHARACTERS}e0 * abs(CAST({{2}} AS DOUBLE)))"


def _counted(template: str) -> Callable[[Sequence[str]], str]:
    """Down when the end is below the start and no step is given. NULL for a step in the other direction."""

    def write(arguments: Sequence[str]) -> str:
        first, last, *rest = arguments
        step = rest[0] if rest else f"CASE WHEN {last} < {first} THEN -1 ELSE 1 END"
        leads = f"(({step}) > 0 AND {last} >= {first}) OR (({step}) < 0 AND {last} <= {first})"
        # An engine computes what is constant even where a CASE has another branch.
        bounded = f"CASE WHEN {_TOO_MANY.format(first, last, step)} THEN {first} ELSE {last} END"
        return f"CASE WHEN {leads} THEN {template.format(first, bounded, step)} END"

    return write


def _cubed(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 1)
    is_array(name, 1, types[0])
    return types, t.array(types[0])


ARRAYS = (
    Scalar(
        "ARRAY_LENGTH",
        _one(lambda _: t.INT),
        "array_size({0})",
        "CAST(len({0}) AS INTEGER)",
        aliases=("CARDINALITY",),
        instead=((BaseType.MAP, "MAP_LENGTH"),),
    ),
    # False, not NULL, when the array lacks the value and holds a NULL, and where there is no array.
    Scalar(
        "ARRAY_CONTAINS",
        _with_item(lambda _: t.BOOLEAN),
        "CASE WHEN {0} IS NOT NULL THEN exists({0}, __x -> __x <=> {1}) ELSE false END",
        "CASE WHEN {0} IS NOT NULL THEN list_position({0}, {1}) IS NOT NULL ELSE false END",
    ),
    # NULL where the array or the value is, as in DuckDB and Spark.
    Scalar(
        "LIST_CONTAINS",
        _with_item(lambda _: t.BOOLEAN),
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN exists({0}, __x -> __x <=> {1}) END",
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN list_position({0}, {1}) IS NOT NULL END",
        aliases=("LIST_HAS", "ARRAY_HAS"),
    ),
    # The place of the first one; NULL where there is none, as in PostgreSQL.
    Scalar(
        "ARRAY_POSITION",
        _with_item(lambda _: t.INT),
        "CAST(nullif(array_position(transform({0}, __x -> __x <=> {1}), true), 0) AS INT)",
        "CAST(list_position({0}, {1}) AS INTEGER)",
        aliases=("LIST_POSITION", "LIST_INDEXOF", "ARRAY_INDEXOF"),
    ),
    Scalar("ARRAY_REVERSE", _one(lambda sql_type: sql_type), "reverse", "list_reverse", aliases=("LIST_REVERSE",)),
    Scalar(
        "ARRAY_SLICE",
        _part,
        _cut("size({0})", "slice({0}, CAST({1} AS INT), CAST(greatest({2} - {1} + 1, 0) AS INT))"),
        _cut("len({0})", "list_slice({0}, {1}, {2})"),
        aliases=("LIST_SLICE",),
    ),
    # An array that is NULL has no items.
    Scalar(
        "ARRAY_FLATTEN",
        _nested,
        "flatten(filter({0}, __x -> __x IS NOT NULL))",
        "flatten({0})",
        aliases=("FLATTEN",),
    ),
    Scalar("ARRAY_DISTINCT", _one(lambda sql_type: sql_type, compared=True), _DISTINCT_SPARK, _DISTINCT),
    Scalar(
        "ARRAY_EXCEPT",
        _two_compared,
        f"CASE WHEN {{1}} IS NOT NULL THEN filter({{0}}, (__x, __i) -> {_FIRST} AND NOT {_HAS}) END",
        "CASE WHEN {1} IS NOT NULL THEN list_filter({0}, lambda __x, __i:"
        " list_position({0}, __x) = __i AND list_position({1}, __x) IS NULL) END",
    ),
    Scalar(
        "ARRAY_INTERSECT",
        _two_compared,
        f"CASE WHEN {{1}} IS NOT NULL THEN filter({{0}}, (__x, __i) -> {_FIRST} AND {_HAS}) END",
        "CASE WHEN {1} IS NOT NULL THEN list_filter({0}, lambda __x, __i:"
        " list_position({0}, __x) = __i AND list_position({1}, __x) IS NOT NULL) END",
    ),
    Scalar(
        "ARRAY_UNION",
        _two_compared,
        _DISTINCT_SPARK.format("concat({0}, {1})"),
        f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN {_DISTINCT.format('list_concat({0}, {1})')} END",
    ),
    Scalar(
        "ARRAY_CONCAT",
        _two,
        "coalesce(concat({0}, {1}), {0}, {1})",
        "CASE WHEN {0} IS NOT NULL OR {1} IS NOT NULL THEN list_concat({0}, {1}) END",
    ),
    # Of equal items the first: DuckDB's own would give either of 0.0 and -0.0.
    *(
        Scalar(
            f"ARRAY_{most}",
            _one(lambda sql_type: sql_type.args[0], plain=True),
            f"array_{most.lower()}",
            f"list_extract({{0}}, list_position({{0}}, list_{most.lower()}({{0}})))",
        )
        for most in ("MAX", "MIN")
    ),
    Scalar("ARRAY_SORT", _sort, _sorted_spark, _sorted_duckdb, constant=(1,), check=_check_order),
    Scalar(
        "ARRAY_REMOVE",
        _with_item(lambda sql_type: sql_type),
        "filter({0}, __x -> NOT (__x <=> {1}))",
        "list_filter({0}, lambda __x: __x IS DISTINCT FROM {1})",
    ),
    Scalar(
        "JOIN_TEXTS",
        _join,
        _joined("array_join({0}, {1}, 'null')"),
        _joined_duckdb,
        hidden=True,
    ),
    Scalar(
        "SLICE",
        _slice,
        _sliced("size({0})", "slice({0}, {1}, {2} - {1} + 1)"),
        _sliced("CAST(len({0}) AS INTEGER)", "list_slice({0}, {1}, {2})"),
    ),
    Scalar(
        "GENERATE_SERIES",
        _series,
        _counted("sequence({0}, {1}, {2})"),
        _counted("generate_series({0}, {1}, {2})"),
        exact=True,
        fails=too_many,
        fault=RowFault.TOO_LARGE,
    ),
    Scalar("TOO_MANY", takes(t.BOOLEAN, t.BIGINT, t.BIGINT, t.INT), _TOO_MANY, hidden=True),
    # Each item or NULL in its place, in all combinations, each once: for CUBE_EXPLODE.
    Scalar(
        "COMBINATIONS",
        _cubed,
        "array_distinct(transform(sequence(0, shiftleft(1, size({0})) - 1), __y -> transform({0}, (__x, __i) ->"
        " CASE WHEN getbit(__y, size({0}) - 1 - __i) = 1 THEN __x END)))",
        _DISTINCT.format(_COMBINED),
        hidden=True,
    ),
)
