"""GROUP BY: which expressions are the groups, which calls aggregate, and the outputs over both.

SELECT area, SUM(a) / COUNT(*) + SUM(a) AS x FROM s GROUP BY area

    group  area              calls  __a0 = SUM(a), __a1 = COUNT(*)        x = __a0 / __a1 + __a0
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from jobs.errors import InvalidQuery, NotSupported, TypeMismatch
from jobs.ivm.aggregates import FUNCTIONS
from jobs.ivm.stage import AggregateCall, Relation
from jobs.sql.dialect import position_of, sql_of
from jobs.sql.scope import Infer, Typed, column
from jobs.sql.types import Kind


class Calls:
    """The aggregate calls of one query; the same call, written twice, is one."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._calls: dict[str, AggregateCall] = {}

    @property
    def found(self) -> tuple[AggregateCall, ...]:
        """The calls, in the order in which they were first met."""
        return tuple(self._calls.values())

    def read(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """An aggregate call, elaborated; None when `node` is something else.

        Raises:
            TypeMismatch, InvalidQuery: the function does not take these arguments.
            NotSupported: the input's rows can go away, and the function cannot take values back yet.
        """
        call, condition = node, None
        if isinstance(node, exp.Filter):
            call, condition = node.this, node.expression.this
        if not isinstance(call, exp.Anonymous) or call.name not in FUNCTIONS:
            return None
        self._check_retractable(call)
        arguments = [] if call.expressions and isinstance(call.expressions[0], exp.Star) else call.expressions
        values = [_argument(argument, typed) for argument in arguments]
        bound = FUNCTIONS[call.name].bind(tuple(v.expression for v in values), tuple(v.type for v in values))
        filter_ = _condition(condition, typed) if condition is not None else None
        parts = [v.expression for v in values] if arguments else [each.copy() for each in call.expressions]
        made: exp.Expression = exp.Anonymous(this=call.name, expressions=parts)
        if filter_ is not None:
            made = exp.Filter(this=made, expression=exp.Where(this=filter_))
        self._calls.setdefault(
            sql_of(made),
            AggregateCall(
                name=f"__a{len(self._calls)}",
                function=call.name,
                arguments=bound.arguments,
                argument_types=bound.argument_types,
                type=bound.type,
                parameters=bound.parameters,
                filter=filter_,
            ),
        )
        return Typed(made, bound.type)

    def call_of(self, node: exp.Expr) -> AggregateCall | None:
        """The call that an elaborated node is, if it is one."""
        return self._calls.get(sql_of(node)) if isinstance(node, exp.Anonymous | exp.Filter) else None

    def _check_retractable(self, call: exp.Anonymous) -> None:
        if self._relation.kind == "keyed" and not FUNCTIONS[call.name].retractable:
            line, place = position_of(call)
            retractable = ", ".join(name for name, function in FUNCTIONS.items() if function.retractable)
            raise NotSupported(
                f"{call.name} over the table '{self._relation.name}' is not maintained yet:"
                " its rows change and go, and the function cannot take values back",
                line=line,
                column=place,
                hint=f"over tables there are {retractable}",
            )


def over_groups(node: exp.Expression, groups: Mapping[str, str], calls: Calls) -> exp.Expression:
    """An elaborated expression over the input as one over the names of groups and calls.

    Args:
        groups: text of each elaborated group expression -> its name.

    Raises:
        InvalidQuery: a column that is neither grouped by nor aggregated.
    """
    name = groups.get(sql_of(node))
    if name is not None:
        return column(name)
    call = calls.call_of(node)
    if call is not None:
        return column(call.name)
    if isinstance(node, exp.Column):
        line, place = position_of(node)
        raise InvalidQuery(
            f"column '{node.name}' is neither grouped by nor aggregated",
            line=line,
            column=place,
            hint=f"add it to GROUP BY, or say which of its values: LATEST_BY_OFFSET({node.name})",
        )
    made = node.copy()
    for child in list(made.iter_expressions()):
        if isinstance(child, exp.Identifier | exp.DataType):
            continue
        assert isinstance(child, exp.Expression)
        child.replace(over_groups(child, groups, calls))
    return made


def check_group(found: Typed) -> None:
    """Check that one can group by an expression.

    Raises:
        InvalidQuery: it is a constant, or of a type whose values cannot be compared.
    """
    line, place = position_of(found.expression)
    if not any(isinstance(node, exp.Column) for node in found.expression.walk()):
        raise InvalidQuery(
            f"GROUP BY {sql_of(found.expression)} groups by a constant",
            line=line,
            column=place,
            hint="write the expression itself: positions of the SELECT list are not taken",
        )
    if found.type.kind in (Kind.MAP, Kind.NULL):
        raise InvalidQuery(f"one cannot group by {found.type}", line=line, column=place)


def _argument(node: exp.Expr, typed: Infer) -> Typed:
    if isinstance(node, exp.Distinct):
        raise NotSupported("aggregates over DISTINCT values are not maintained yet")
    return typed(node)


def _condition(node: exp.Expr, typed: Infer) -> exp.Expression:
    found = typed(node)
    if found.type.kind is not Kind.BOOLEAN:
        raise TypeMismatch(f"FILTER takes a condition; {sql_of(node)} is {found.type}")
    return found.expression
