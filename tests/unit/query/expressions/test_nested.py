"""Nested values: elements and fields, functions that make rows of them, and functions that take a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.functions.render import lower
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.nested import TABLE_FUNCTIONS, items_of
from strandline.jobs.query.expressions.scope import Scope, Typed
from strandline.jobs.sql.dialect import sql_of
from tests.support.function_cases import COLUMNS, elaborated, table
from tests.support.parsed import parse_expression


@pytest.mark.parametrize("text", ["who->age", "who->AGE", "who->`age`", "who->`Age`"])
def test_case_decides_nothing_in_the_name_of_a_field(text: str) -> None:
    assert elaborated(text).expression.sql() == "who.age"


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownName):
        elaborated("who->agee")


def test_a_row_has_no_names_and_is_converted_by_place() -> None:
    converted = elaborated("CAST(ROW(42, 'x') AS STRUCT<a BIGINT, b VARCHAR>)").expression.sql()
    assert "f1" in converted
    assert "f2" in converted


def test_fields_with_names_are_converted_by_name() -> None:
    assert "NULL" in elaborated("CAST(STRUCT(b := 1) AS STRUCT<a INT, b INT>)").expression.sql()


# Functions that make rows: the arrays behind them.


def _items(text: str) -> Typed:
    scope = Scope(Relation("cases", COLUMNS, "keyed", ("nr",)), ("cases",))
    call = parse_expression(text)
    assert call.name in TABLE_FUNCTIONS
    return items_of(call, lambda node: infer(node, scope))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("EXPLODE(tags)", t.array(t.VARCHAR), ["x", None, "y"]),
        ("UNNEST(GENERATE_SERIES(1, 3))", t.array(t.INT), [1, 2, 3]),
        ("CUBE_EXPLODE(ARRAY[1, i])", t.array(t.array(t.INT)), [[None, None], [None, 7], [1, None], [1, 7]]),
        ("CUBE_EXPLODE(ARRAY[i, NULL])", t.array(t.array(t.INT)), [[None, None], [7, None]]),
    ],
)
def test_each_item_is_a_row(text: str, kind: t.SqlType, expected: list[object]) -> None:
    found = _items(text)
    with duckdb.connect() as duck:
        duck.register("cases", table())
        rows = duck.execute(f"SELECT {lower(found.expression, 'duckdb')} FROM cases WHERE nr = 1").fetchone()
    assert (found.type, rows) == (kind, (expected,))


def test_a_map_gives_its_entries() -> None:
    assert _items("EXPLODE(ratings)").type == t.array(t.struct(("k", t.VARCHAR), ("v", t.INT)))


@pytest.mark.parametrize("text", ["EXPLODE(i)", "EXPLODE(tags, tags)", "EXPLODE()", "CUBE_EXPLODE(i)"])
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(TypeMismatch):
        _items(text)


# TRANSFORM, FILTER and REDUCE: whatever function they are given, DuckDB computes what Python does.

_COLUMNS = (("items", t.array(t.BIGINT)), ("pairs", t.map_of(t.VARCHAR, t.BIGINT)), ("n", t.BIGINT))
_SMALL = st.integers(-5, 5)
Duck = duckdb.DuckDBPyConnection
_Body = tuple[str, Callable[[int, int], int]]


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    with duckdb.connect() as connection:
        yield connection


def _typed(text: str) -> Typed:
    return infer(parse_expression(text), Scope(Relation("rows", _COLUMNS, "append"), ("rows",)))


def _value(duck: Duck, text: str, items: list[int] | None, pairs: dict[str, int] | None, n: int) -> object:
    values = ([items], [pairs and list(pairs.items())], [n])
    arrays = [pa.array(each, kind.arrow()) for each, (_, kind) in zip(values, _COLUMNS, strict=True)]
    duck.register("rows", pa.Table.from_arrays(arrays, [name for name, _ in _COLUMNS]))
    ((found,),) = duck.execute(f"SELECT {lower(_typed(text).expression, 'duckdb')} FROM rows").fetchall()
    return found


def _bodies() -> st.SearchStrategy[_Body]:
    """Functions of a variable `x` and the column `n`, as text and as Python's."""
    leaves: st.SearchStrategy[_Body] = st.one_of(
        st.just(("x", lambda x, n: x)),
        st.just(("n", lambda x, n: n)),
        _SMALL.map(lambda number: (f"({number})", lambda x, n: number)),
    )

    def combined(inner: st.SearchStrategy[_Body]) -> st.SearchStrategy[_Body]:
        def join(left: _Body, sign: str, right: _Body) -> _Body:
            operate = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[sign]
            return f"({left[0]} {sign} {right[0]})", lambda x, n: operate(left[1](x, n), right[1](x, n))

        return st.builds(join, inner, st.sampled_from("+-*"), inner)

    return st.recursive(leaves, combined, max_leaves=4)


@given(body=_bodies(), items=st.lists(_SMALL, max_size=6), n=_SMALL)
def test_transform_gives_what_the_function_gives_for_each_item(
    duck: Duck, body: _Body, items: list[int], n: int
) -> None:
    text, function = body
    assert _value(duck, f"TRANSFORM(items, x => {text})", list(items), None, n) == [function(x, n) for x in items]


@given(body=_bodies(), items=st.lists(_SMALL, max_size=6), n=_SMALL)
def test_filter_keeps_the_items_for_which_the_condition_holds(
    duck: Duck, body: _Body, items: list[int], n: int
) -> None:
    text, function = body
    assert _value(duck, f"FILTER(items, x => {text} > 0)", list(items), None, n) == [
        x for x in items if function(x, n) > 0
    ]


@given(body=_bodies(), items=st.lists(_SMALL, max_size=6), n=_SMALL)
def test_reduce_goes_from_the_first_item_to_the_last(duck: Duck, body: _Body, items: list[int], n: int) -> None:
    text, function = body
    expected = reduce(lambda state, x: 2 * state - function(x, n), items, 1)
    assert _value(duck, f"REDUCE(items, 1, (s, x) => 2 * s - {text})", list(items), None, n) == expected


@given(pairs=st.dictionaries(st.sampled_from("abcd"), _SMALL, max_size=4), n=_SMALL)
def test_functions_over_a_map_see_its_keys_and_values(duck: Duck, pairs: dict[str, int], n: int) -> None:
    given_pairs = dict(pairs)
    kept = _value(duck, "FILTER(pairs, (k, v) => v > n AND k <> 'a')", None, given_pairs, n)
    assert kept == {k: v for k, v in pairs.items() if v > n and k != "a"}
    changed = _value(duck, "TRANSFORM(pairs, (k, v) => k || '!', (k, v) => v * n)", None, given_pairs, n)
    assert changed == {f"{k}!": v * n for k, v in pairs.items()}
    assert _value(duck, "REDUCE(pairs, 0, (s, k, v) => s + v + LEN(k))", None, given_pairs, n) == sum(
        pairs.values()
    ) + len(pairs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRANSFORM(tags, i => i)", "TRANSFORM(tags, i => i)"),
        ("TRANSFORM(tags, X => UCASE(x))", "TRANSFORM(tags, x => UCASE(x))"),
        ("TRANSFORM(ARRAY[who], x => x->age)", "TRANSFORM(ARRAY[who], x => x->age)"),
        (
            "FILTER(ratings, (k, v) => v > i)",
            "MAP_OF_PAIRS(FILTER(ENTRIES(ratings), __e0 => __e0->v > i))",
        ),
        (
            "REDUCE(ratings, 0, (s, k, v) => s + v)",
            "REDUCE(ENTRIES(ratings), 0, (s, __e0) => s + __e0->v)",
        ),
    ],
)
def test_a_variable_hides_a_column_and_is_none(text: str, expected: str) -> None:
    from sqlglot import exp

    found = elaborated(text).expression
    assert sql_of(found) == expected
    columns = {column.name for column in found.find_all(exp.Column)}
    assert columns <= {"tags", "ratings", "who", "i"}


def test_functions_within_functions_keep_their_variables_apart(duck: Duck) -> None:
    text = "TRANSFORM(MAP('a' := pairs), (k, v) => k, (k, v) => FILTER(v, (a, b) => a <> k AND b = n))"
    assert _value(duck, text, None, {"a": 1, "b": 1, "c": 2}, 1) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("TRANSFORM(i, x => x)", TypeMismatch, "takes an ARRAY or a MAP, not INT"),
        ("TRANSFORM(tags)", InvalidQuery, "takes one function"),
        ("TRANSFORM(tags, (x, y) => x)", InvalidQuery, "takes 1 variable"),
        ("TRANSFORM(ratings, (k, v) => k)", InvalidQuery, "takes 2 functions"),
        ("FILTER(tags, x => x)", TypeMismatch, "gives VARCHAR"),
        ("MAP(ARRAY[tags], ARRAY[i])", TypeMismatch, "plain value, not ARRAY<VARCHAR>"),
        ("AS_MAP(ARRAY[STRUCT(a := i)], ARRAY[i])", TypeMismatch, "plain value, not STRUCT"),
        ("CAST(NULL AS MAP<ARRAY<INT>, INT>)", TypeMismatch, "plain value, not ARRAY<INT>"),
        ("FILTER(tags, x => y = x)", UnknownName, "unknown column 'y'"),
        ("REDUCE(tags, (s, x) => s)", InvalidQuery, "a state and a function"),
        ("REDUCE(tags, 0, (s, x) => x)", TypeMismatch, "no common type"),
        ("UCASE(x => x)", NotSupported, "is not supported"),
        ("TRANSFORM(x => x)", InvalidQuery, "and a function"),
    ],
)
def test_what_is_no_function_of_the_items_is_refused(text: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message):
        elaborated(text)
