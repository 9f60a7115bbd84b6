"""Which calls of aggregate functions are accepted, of which type they are, and when a group is computed again."""

from __future__ import annotations

import math
from typing import Any

import pytest
from duckdb import DuckDBPyConnection
from sqlglot import exp

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.aggregates.contract import GroupChanges
from strandline.jobs.functions.aggregates.registry import FUNCTIONS, Bound, functions
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported, TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import SqlType
from tests.support.aggregate_cases import CALLS, called
from tests.support.rule_harness import call, parse

TWO = ("2", t.INT)
TRUE = ("true", t.BOOLEAN)
FALSE = ("false", t.BOOLEAN)


def bind(function: str, *arguments: tuple[str, SqlType], distinct: bool = False, ksql: bool = False) -> Bound:
    found = functions("ksql" if ksql else "sql")[function]
    return found.bind(tuple(parse(a) for a, _ in arguments), tuple(kind for _, kind in arguments), distinct=distinct)


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        ("COUNT", t.map_of(t.VARCHAR, t.INT), t.BIGINT),
        ("COUNT", t.NULL, t.BIGINT),
        ("SUM", t.INT, t.BIGINT),
        ("SUM", t.BIGINT, t.BIGINT),
        ("SUM", t.decimal(10, 2), t.decimal(20, 2)),
        ("SUM", t.decimal(38, 18), t.decimal(38, 18)),
        ("SUM", t.DOUBLE, t.DOUBLE),
        ("AVG", t.INT, t.DOUBLE),
        ("AVG", t.decimal(10, 2), t.DOUBLE),
        ("MIN", t.DATE, t.DATE),
        ("MAX", t.BYTES, t.BYTES),
        ("MAX", t.decimal(9, 3), t.decimal(9, 3)),
        ("LATEST_BY_OFFSET", t.array(t.INT), t.array(t.INT)),
        ("COLLECT_LIST", t.struct(("a", t.INT)), t.array(t.struct(("a", t.INT)))),
        ("ARRAY_AGG", t.INT, t.array(t.INT)),
        ("COLLECT_SET", t.map_of(t.VARCHAR, t.INT), t.array(t.map_of(t.VARCHAR, t.INT))),
        ("COUNT_DISTINCT", t.array(t.INT), t.BIGINT),
        ("ATTR", t.DATE, t.DATE),
        ("SUM_LIST", t.array(t.INT), t.BIGINT),
        ("SUM_LIST", t.array(t.decimal(10, 2)), t.decimal(20, 2)),
        ("BOOL_AND", t.BOOLEAN, t.BOOLEAN),
        ("ANY", t.BOOLEAN, t.BOOLEAN),
        ("VARIANCE", t.INT, t.DOUBLE),
        ("HISTOGRAM", t.VARCHAR, t.map_of(t.VARCHAR, t.BIGINT)),
        ("STDDEV_SAMPLE", t.BIGINT, t.DOUBLE),
    ],
)
def test_the_result_type_follows_from_the_argument(function: str, argument: SqlType, result: SqlType) -> None:
    bound = bind(function, ("x", argument))
    assert bound.type == result
    assert bound.argument_types == (argument,)


def test_count_star_has_no_argument_however_it_is_written() -> None:
    star = FUNCTIONS["COUNT"].bind((exp.Star(),), (t.NULL,))
    assert star == FUNCTIONS["COUNT"].bind((), ())
    assert star.arguments == ()


@pytest.mark.parametrize(
    ("arguments", "parameters", "result"),
    [
        ([], (True,), t.VARCHAR),
        ([TRUE], (True,), t.VARCHAR),
        ([FALSE], (False,), t.VARCHAR),
        ([TWO], (True, 2), t.array(t.VARCHAR)),
        ([TWO, FALSE], (False, 2), t.array(t.VARCHAR)),
    ],
)
@pytest.mark.parametrize("function", ["LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"])
def test_by_offset_takes_n_and_ignore_nulls_as_constants(
    function: str, arguments: list[tuple[str, SqlType]], parameters: tuple[int | bool, ...], result: SqlType
) -> None:
    bound = bind(function, ("x", t.VARCHAR), *arguments)
    assert (bound.parameters, bound.type, len(bound.arguments)) == (parameters, result, 1)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("COUNT", [("x", t.INT), ("y", t.INT)]),
        ("SUM", []),
        ("SUM", [("x", t.VARCHAR)]),
        ("SUM", [("NULL", t.NULL)]),
        ("AVG", [("x", t.DATE)]),
        ("MAX", [("x", t.array(t.INT))]),
        ("MIN", [("x", t.array(t.INT))]),
        ("MAX", [("x", t.map_of(t.VARCHAR, t.INT))]),
        ("MIN", [("x", t.struct(("a", t.INT)))]),
        ("MAX_BY", [("x", t.INT)]),
        ("MAX_BY", [("x", t.INT), ("y", t.BOOLEAN)]),
        ("MIN_BY", [("x", t.INT), ("NULL", t.NULL)]),
        ("TOPK", [("x", t.INT)]),
        ("TOPK", [("x", t.INT), ("k", t.INT)]),
        ("TOPK", [("x", t.INT), ("0", t.INT)]),
        ("TOPK", [("x", t.INT), TRUE]),
        ("TOPK", [("x", t.array(t.INT)), TWO]),
        ("TOPKDISTINCT", [("x", t.INT), ("y", t.INT), TWO]),
        ("COLLECT_LIST", []),
        ("COUNT_DISTINCT", []),
        ("SUM_LIST", [("x", t.INT)]),
        ("SUM_LIST", [("x", t.array(t.VARCHAR))]),
        ("BOOL_OR", [("x", t.INT)]),
        ("CORRELATION", [("x", t.INT)]),
        ("CORRELATION", [("x", t.INT), ("y", t.VARCHAR)]),
        ("HISTOGRAM", [("x", t.DOUBLE)]),
        ("STDDEV_SAMPLE", [("x", t.VARCHAR)]),
        ("LATEST_BY_OFFSET", []),
        ("LATEST_BY_OFFSET", [("x", t.INT), ("0", t.INT)]),
        ("LATEST_BY_OFFSET", [("x", t.INT), ("y", t.INT)]),
        ("LATEST_BY_OFFSET", [("x", t.INT), TRUE, TWO]),
        ("EARLIEST_BY_OFFSET", [("x", t.INT), TWO, TWO]),
        ("EARLIEST_BY_OFFSET", [("x", t.INT), TWO, TRUE, TRUE]),
    ],
)
def test_calls_that_do_not_fit_are_refused_with_a_hint(function: str, arguments: list[tuple[str, SqlType]]) -> None:
    with pytest.raises(TypeMismatch) as refused:
        bind(function, *arguments)
    assert function in refused.value.message
    assert refused.value.hint


def test_topk_with_other_columns_gives_structs() -> None:
    bound = bind("TOPK", ("x", t.INT), ("s", t.VARCHAR), ("m", t.map_of(t.VARCHAR, t.INT)), TWO)
    item = t.struct(("sort_col", t.INT), ("col0", t.VARCHAR), ("col1", t.map_of(t.VARCHAR, t.INT)))
    assert (bound.type, bound.parameters, len(bound.arguments)) == (t.array(item), (2,), 3)


@pytest.mark.parametrize("function", ["COUNT", "SUM", "AVG", "MIN", "MAX", "COUNT_DISTINCT"])
def test_distinct_gives_the_type_of_the_function_without_it(function: str) -> None:
    assert bind(function, ("x", t.INT), distinct=True).type == bind(function, ("x", t.INT)).type


def test_distinct_is_refused_where_it_would_mean_nothing() -> None:
    for function in ("LATEST_BY_OFFSET", "STDDEV_SAMPLE", "HISTOGRAM", "TOPK"):
        with pytest.raises(NotSupported, match="DISTINCT"):
            bind(function, ("x", t.VARCHAR), distinct=True)
    with pytest.raises(TypeMismatch, match="DISTINCT"):
        FUNCTIONS["COUNT"].bind((exp.Star(),), (t.NULL,), distinct=True)


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        ("SUM", 0),
        ("AVG", 0.0),
        ("STDDEV_SAMPLE", 0.0),
        ("STDDEV_SAMP", 0.0),
        ("COUNT", 0),
        ("MAX", None),
    ],
)
def test_ksqldb_has_values_where_sql_has_null(duck: DuckDBPyConnection, function: str, shown: float | None) -> None:
    """Over no value."""
    assert _ksql_over(duck, "NULL", function, [("v", t.DOUBLE)]) == shown


def test_ksqldb_calls_the_variance_stddev_samp(duck: DuckDBPyConnection) -> None:
    assert _ksql_over(duck, "1), (3), (5", "STDDEV_SAMP", [("v", t.DOUBLE)]) == 4.0
    assert _ksql_over(duck, "1), (3), (5", "STDDEV_SAMPLE", [("v", t.DOUBLE)]) == 2.0
    assert math.isnan(_ksql_over(duck, "1", "CORRELATION", [("v", t.DOUBLE), ("v", t.DOUBLE)]))


def _ksql_over(duck: DuckDBPyConnection, rows: str, function: str, arguments: list[tuple[str, SqlType]]) -> Any:
    """A call bound as a view with SEMANTICS='ksql' binds it, over a column `v`, by the function of `FUNCTIONS`."""
    bound = bind(function, *arguments, ksql=True)
    made = AggregateCall("a", function, bound.arguments, bound.argument_types, bound.type, parameters=bound.parameters)
    words, own = engine_of("duckdb"), FUNCTIONS[function]
    changes = GroupChanges(tuple(f"CAST({text} AS DOUBLE)" for text, _ in arguments), "1", "NULL", None)
    kept = f"SELECT {own.add(words, made, changes)} AS kept FROM (VALUES ({rows})) AS t(v)"
    found = duck.execute(f"SELECT {own.result(words, made, 'kept')} FROM ({kept})").fetchone()
    assert found is not None
    return found[0]


def test_ksqldb_keeps_the_digits_of_a_decimal_sum() -> None:
    kind = t.decimal(4, 1)
    assert bind("SUM", ("x", kind), ksql=True).type == kind
    assert bind("SUM", ("x", kind)).type == t.decimal(14, 1)


def test_exactly_the_linear_functions_lose_nothing() -> None:
    """`retractable` and `lost_type` say the same, but of sums of DOUBLE, which a retraction can wear out."""
    for name, (function, *_) in CALLS.items():
        made = called("a", name)
        linear = FUNCTIONS[function].lost_type(made) is None
        assert linear == (
            FUNCTIONS[function].lost(engine_of("duckdb"), made, GroupChanges(("x", "y"), "w", "o", None)) is None
        )
        if not made.distinct and FUNCTIONS[function].form(made) == 1:
            assert linear == FUNCTIONS[function].retractable, name


INT = ("x", t.INT)


@pytest.mark.parametrize(
    ("function", "arguments", "merged", "lost", "again"),
    [
        ("MAX", [INT], "9", "2", False),
        ("MAX", [INT], "9", "9", True),
        ("MAX", [INT], "9", "NULL", False),
        ("MAX", [INT], "NULL", "2", True),
        ("MIN", [INT], "2", "9", False),
        ("MIN", [INT], "2", "1", True),
        ("MAX_BY", [("s", t.VARCHAR), INT], "{'by': 9, 'v': 'a'}", "2", False),
        ("MAX_BY", [("s", t.VARCHAR), INT], "{'by': 9, 'v': 'a'}", "9", True),
        ("MAX_BY", [("s", t.VARCHAR), INT], "NULL", "NULL", False),
        ("TOPK", [INT, TWO], "[9, 5]", "4", False),
        ("TOPK", [INT, TWO], "[9, 5]", "5", True),
        ("TOPK", [INT, TWO], "[9]", "4", True),
        ("TOPK", [INT, TWO], "[]", "NULL", False),
        ("TOPKDISTINCT", [INT, TWO], "[9, 5]", "4", False),
        ("VARIANCE", [INT], "{'n': 1}", "0", False),
        ("VARIANCE", [INT], "{'n': 1}", "1", True),
        ("LATEST_BY_OFFSET", [INT], "{'at': 5, 'v': 1}", "4", False),
        ("LATEST_BY_OFFSET", [INT], "{'at': 5, 'v': 1}", "5", True),
        ("EARLIEST_BY_OFFSET", [INT, TWO], "[{'at': 5, 'v': 1}, {'at': 7, 'v': 1}]", "8", False),
        ("EARLIEST_BY_OFFSET", [INT, TWO], "[{'at': 5, 'v': 1}]", "8", True),
        ("COLLECT_SET", [INT], "[{'v': 1, 'n': 2, 'at': 5}]", "[6, 7]", False),
        ("COLLECT_SET", [INT], "[{'v': 1, 'n': 2, 'at': 5}]", "[4, 5]", True),
        ("COLLECT_SET", [INT], "[{'v': 1, 'n': 2, 'at': NULL}]", "NULL", False),
    ],
)
def test_a_group_is_computed_again_only_when_a_row_that_went_can_have_mattered(
    duck: DuckDBPyConnection, function: str, arguments: list[tuple[str, SqlType]], merged: str, lost: str, again: bool
) -> None:
    """Places in the order of events are plain numbers here."""
    condition = FUNCTIONS[function].must_recompute(engine_of("duckdb"), call("a", function, arguments), "m", "l")
    types = '::STRUCT("by" INT, v VARCHAR)' if function == "MAX_BY" else ""
    assert duck.execute(f"SELECT {condition} FROM (SELECT {merged}{types} AS m, {lost} AS l)").fetchone() == (again,)
