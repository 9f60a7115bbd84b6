"""A view's query without the rows that break an expectation with quarantine: one more SELECT around it.

    CREATE TABLE v WITH (EXPECT = '[{expect_column_values_to_be_between: {column: fare, min_value: 0},
                                     quarantine: true}]') AS SELECT id, fare FROM rides

    SELECT id, fare FROM (SELECT id, fare FROM rides) AS rows
    WHERE MEETS(fare IS NULL OR fare >= 0, 'expect_column_values_to_be_between__fare')

Everything is made from this query: the plan, the rules of both engines, the recomputation, the fingerprint. A filter
or a join takes the condition into its own WHERE; of groups the inner stage keeps all, as with HAVING.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from strandline.jobs.functions.scalars.domains import meets
from strandline.jobs.model.definitions import Expectation
from strandline.jobs.model.errors import NotSupported, OptionRefused
from strandline.jobs.model.stage import Output
from strandline.jobs.query.expressions.infer import condition
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import FromItem, Inputs, conjoined
from strandline.jobs.query.logical import Block, From, Query, outputs_of
from strandline.jobs.sql.trees import call

if TYPE_CHECKING:
    from collections.abc import Iterable


_ALIAS = "rows"
"""The names in a dead letter of a group begin so: `rows_total`."""


def guarded_query(query: Query, expectations: Iterable[Expectation]) -> Query:
    """Add a guard for each of these expectations around a query; without any it stays as it is.

    Raises:
        NotSupported, OptionRefused: no condition on a row stands for one, as `row_condition` says.
        UnknownName, TypeMismatch: one does not fit the query's columns.
    """
    wanted = tuple(expectations)
    if not wanted:
        return query
    part = FromItem(_ALIAS, _ALIAS, query, outputs_of(query), {})
    guards = [meets(condition(row_condition(each), Inputs((part,)), f"'{each.type}'"), each.name) for each in wanted]
    outputs = tuple(Output(name, part.column(name), sql_type) for name, sql_type in part.columns)
    return Block((From(_ALIAS, query),), conjoined(guards), outputs, key=query.key)


# The condition on one row that an expectation of Great Expectations stands for, as a tree of our SQL.
#
# | expect_column_… | a row meets it when |
# | --- | --- |
# | values_to_be_null, values_to_not_be_null | `c IS NULL`, `c IS NOT NULL` |
# | values_to_be_between | `c >= min AND c <= max`; `>` and `<` with strict_min and strict_max |
# | values_to_be_in_set, values_to_not_be_in_set | `c IN (…)`, `NOT c IN (…)` |
# | values_to_match_regex, values_to_not_match_regex | the expression is found in `c`, or is not |
# | value_lengths_to_equal, value_lengths_to_be_between | the same of `LEN(c)` |
# | pair_values_a_to_be_greater_than_b | `a > b`; `>=` with or_equal |
# | pair_values_to_be_equal | `a = b` |
#
# As in Great Expectations, a value that is missing meets all but the first two, and so does a pair whose values are
# both missing. https://greatexpectations.io/expectations

Arguments = Mapping[str, Any]
_Comparison = type[exp.GT | exp.GTE | exp.LT | exp.LTE | exp.EQ]


@dataclass(frozen=True)
class _Form:
    """One expectation: its condition, and the arguments that it must have and may have."""

    condition: Callable[[Arguments], exp.Expression]
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


def row_condition(expectation: Expectation) -> exp.Expression:
    """Condition that stands for an expectation, over plain names of columns.

    Raises:
        NotSupported: no single row breaks the expectation, or it has an argument that has no meaning for one.
        OptionRefused: an argument is missing, or has a value that no row can be compared with.
    """
    form = _FORMS.get(expectation.type)
    if form is None:
        raise NotSupported(
            f"quarantine is for expectations about single rows, and '{expectation.type}' is none that is known",
            hint="leave quarantine out: it is checked of all rows together, and blocking: true holds readers back; "
            f"known are {', '.join(_FORMS)}",
        )
    for name in expectation.arguments:
        if name not in (*form.needed, *form.optional):
            raise NotSupported(
                f"quarantine is not possible with the argument '{name}' of '{expectation.type}'",
                hint=f"use {', '.join((*form.needed, *form.optional))}; or leave quarantine out",
            )
    for name in form.needed:
        if expectation.arguments.get(name) is None:
            raise OptionRefused(f"'{expectation.type}' needs the argument '{name}'")
    return form.condition(expectation.arguments)


def _null(arguments: Arguments) -> exp.Expression:
    return exp.Is(this=column(str(arguments["column"])), expression=exp.Null())


def _not_null(arguments: Arguments) -> exp.Expression:
    return exp.Not(this=_null(arguments))


def _unless_missing(arguments: Arguments, condition: exp.Expression) -> exp.Expression:
    return exp.Or(this=_null(arguments), expression=exp.Paren(this=condition))


def _between(arguments: Arguments) -> exp.Expression:
    return _unless_missing(arguments, _within(column(str(arguments["column"])), arguments))


def _lengths_between(arguments: Arguments) -> exp.Expression:
    return _unless_missing(arguments, _within(_length(arguments), arguments))


def _lengths_equal(arguments: Arguments) -> exp.Expression:
    return _unless_missing(arguments, exp.EQ(this=_length(arguments), expression=_constant(arguments["value"])))


def _length(arguments: Arguments) -> exp.Expression:
    return call("LEN", column(str(arguments["column"])))


def _within(value: exp.Expression, arguments: Arguments) -> exp.Expression:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    least: _Comparison = exp.GT if arguments.get("strict_min") else exp.GTE
    most: _Comparison = exp.LT if arguments.get("strict_max") else exp.LTE
    limits = [(compared, limit) for compared, limit in ((least, low), (most, high)) if limit is not None]
    parts = [compared(this=value.copy(), expression=_constant(limit)) for compared, limit in limits]
    if not parts:
        raise OptionRefused("an expectation of a range has neither min_value nor max_value", hint="give one of them")
    return parts[0] if len(parts) == 1 else exp.And(this=parts[0], expression=parts[1])


def _in_set(arguments: Arguments) -> exp.Expression:
    return _unless_missing(arguments, _contained(arguments))


def _not_in_set(arguments: Arguments) -> exp.Expression:
    return _unless_missing(arguments, exp.Not(this=_contained(arguments)))


def _contained(arguments: Arguments) -> exp.Expression:
    values = arguments["value_set"]
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise OptionRefused(f"value_set is a list of values, not {values!r}", hint="value_set: [a, b]")
    return exp.In(this=column(str(arguments["column"])), expressions=[_constant(each) for each in values])


def _found(arguments: Arguments) -> exp.Expression:
    return _unless_missing(arguments, exp.Not(this=_not_found(arguments)))


def _absent(arguments: Arguments) -> exp.Expression:
    return _unless_missing(arguments, _not_found(arguments))


def _not_found(arguments: Arguments) -> exp.Expression:
    pattern = exp.Literal.string(str(arguments["regex"]))
    extracted = call("REGEXP_EXTRACT", pattern, column(str(arguments["column"])))
    return exp.Is(this=extracted, expression=exp.Null())


def _greater(arguments: Arguments) -> exp.Expression:
    return _of_pair(arguments, exp.GTE if arguments.get("or_equal") else exp.GT)


def _equal(arguments: Arguments) -> exp.Expression:
    return _of_pair(arguments, exp.EQ)


def _of_pair(arguments: Arguments, compared: _Comparison) -> exp.Expression:
    left, right = (column(str(arguments[name])) for name in ("column_A", "column_B"))
    missing = [exp.Is(this=side.copy(), expression=exp.Null()) for side in (left, right)]
    both = exp.Paren(this=exp.And(this=missing[0], expression=missing[1]))
    return exp.Or(this=both, expression=compared(this=left, expression=right))


def _constant(value: object) -> exp.Expression:
    """A plain value of YAML as a literal; a float as DOUBLE, so that it is compared as it is written."""
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return exp.Literal.string(value)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise OptionRefused(f"no row can be compared with {value!r}", hint="use a number, a text, true or false")
    text = str(abs(value)) if isinstance(value, int) else repr(abs(value))
    literal = exp.Literal.number(text)
    return exp.Neg(this=literal) if value < 0 else literal


_FORMS: Mapping[str, _Form] = {
    "expect_column_values_to_be_null": _Form(_null, ("column",)),
    "expect_column_values_to_not_be_null": _Form(_not_null, ("column",)),
    "expect_column_values_to_be_between": _Form(
        _between, ("column",), ("min_value", "max_value", "strict_min", "strict_max")
    ),
    "expect_column_values_to_be_in_set": _Form(_in_set, ("column", "value_set")),
    "expect_column_values_to_not_be_in_set": _Form(_not_in_set, ("column", "value_set")),
    "expect_column_values_to_match_regex": _Form(_found, ("column", "regex")),
    "expect_column_values_to_not_match_regex": _Form(_absent, ("column", "regex")),
    "expect_column_value_lengths_to_equal": _Form(_lengths_equal, ("column", "value")),
    "expect_column_value_lengths_to_be_between": _Form(
        _lengths_between, ("column",), ("min_value", "max_value", "strict_min", "strict_max")
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": _Form(_greater, ("column_A", "column_B"), ("or_equal",)),
    "expect_column_pair_values_to_be_equal": _Form(_equal, ("column_A", "column_B")),
}
