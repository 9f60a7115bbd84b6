"""Which calls of aggregate functions are accepted, and what their results' types are."""

from __future__ import annotations

import pytest
from sqlglot import exp

from jobs.errors import NotSupported, TypeMismatch
from jobs.ivm.aggregates import FUNCTIONS
from jobs.sql import types as t
from jobs.sql.types import SqlType
from tests.rule_harness import parse

TWO = ("2", t.INT)
TRUE = ("true", t.BOOLEAN)
FALSE = ("false", t.BOOLEAN)


def bind(function: str, *arguments: tuple[str, SqlType]):
    return FUNCTIONS[function].bind(tuple(parse(a) for a, _ in arguments), tuple(kind for _, kind in arguments))


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
        ("MAX", [("x", t.BOOLEAN)]),
        ("MIN", [("x", t.array(t.INT))]),
        ("HISTOGRAM", [("x", t.INT)]),
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


def test_distinct_is_refused_as_not_there_yet() -> None:
    with pytest.raises(NotSupported, match="DISTINCT"):
        FUNCTIONS["COUNT"].bind((exp.Distinct(expressions=[exp.column("x")]),), (t.INT,))


def test_stddev_samp_is_refused_because_its_two_meanings_differ() -> None:
    with pytest.raises(NotSupported) as refused:
        bind("STDDEV_SAMP", ("x", t.INT))
    assert refused.value.hint == "write STDDEV_SAMPLE"


def test_only_the_linear_functions_take_rows_back() -> None:
    assert {name for name, function in FUNCTIONS.items() if function.retractable} == {"COUNT", "SUM", "AVG"}
