"""The aggregate calls of one SELECT, bound to their types.

SELECT area, SUM(a) / COUNT(*) + SUM(a) AS x FROM s GROUP BY area      __a0 = SUM(s.a), __a1 = COUNT(*)
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.functions.aggregates.of_values import Percentile
from strandline.jobs.functions.aggregates.ordered import Ordered
from strandline.jobs.functions.aggregates.python import CustomAggregate
from strandline.jobs.functions.aggregates.registry import AggregateFunction, Bound, functions
from strandline.jobs.functions.python.declared import function_at
from strandline.jobs.model.calls import AggregateCall
from strandline.jobs.model.columns import EVENT_ORDER
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.model.view_options import Semantics
from strandline.jobs.query.expressions.null_treatment import OVER_GROUPS, value_of, without_words
from strandline.jobs.query.expressions.ordered_calls import OrderedCall, ordered_call, usual
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.query.logical.inputs import Inputs
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.nested_query import OuterValue
from strandline.state_store.wording import Name, sentence


class Calls:
    """The aggregate calls of one query; a call that is written twice is kept once."""

    def __init__(self, inputs: Inputs, semantics: Semantics) -> None:
        self._inputs = inputs
        self._functions = functions(semantics)
        self._calls: dict[str, AggregateCall] = {}

    @property
    def found(self) -> tuple[AggregateCall, ...]:
        """The calls, in the order in which they were first met."""
        return tuple(self._calls.values())

    def read(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """An aggregate call, elaborated; None when `node` is something else.

        Raises:
            TypeMismatch, InvalidQuery: the function does not take these arguments, or needs an order that is missing.
        """
        node = usual(node)
        whole, ignores = without_words(node, OVER_GROUPS)
        call, condition = whole, None
        if isinstance(whole, exp.Filter):
            call, condition = whole.this, whole.expression.this
        if ignores:
            condition = _known(value_of(call), condition)
        ordered = ordered_call(call)
        if ordered is not None:
            return self._kept(*self._in_order(ordered, typed), condition, typed)
        function = self._function_of(call)
        if function is None or not isinstance(call, exp.Anonymous):
            return None
        if function.needs_order:
            self._check_order(call)
        written, distinct = call.expressions, False
        if written and isinstance(written[0], exp.Distinct):
            written, distinct = written[0].expressions, True
        stars = bool(written) and isinstance(written[0], exp.Star)
        values = [] if stars else [typed(argument) for argument in written]
        expressions, types = tuple(v.expression for v in values), tuple(v.type for v in values)
        bound = function.bind(expressions, types, distinct=distinct)
        parts: list[exp.Expr] = [v.expression for v in values] if values else [each.copy() for each in written]
        made = exp.Anonymous(this=call.name, expressions=[exp.Distinct(expressions=parts)] if distinct else parts)
        return self._kept(made, bound, condition, typed)

    def _in_order(self, call: OrderedCall, typed: Infer) -> tuple[exp.Anonymous, Bound]:
        """A call with an order, as a text of its own and bound."""
        values = [typed(each) for each in (call.value, *call.by)]
        expressions, types = tuple(each.expression for each in values), tuple(each.type for each in values)
        constants = tuple(each for each in call.constants if isinstance(each, exp.Expression))
        function = self._functions[call.function]
        if isinstance(function, Ordered):
            bound = function.in_order(expressions, types, constants, descending=call.descending)
            if call.distinct:
                bound = function.each_once(bound)
        elif isinstance(function, Percentile):
            bound = function.within(expressions[0], types[0], constants, descending=call.descending)
        else:
            bound = function.bind(expressions, types)
        direction = exp.Boolean(this=call.descending)
        once = [exp.true()] if call.distinct else []
        return exp.Anonymous(this=call.function, expressions=[*expressions, *constants, direction, *once]), bound

    def _kept(self, call: exp.Anonymous, bound: Bound, condition: exp.Expr | None, typed: Infer) -> Typed:
        """The call among those of the query, with its FILTER."""
        _check_own(call, bound.arguments)
        distinct = bool(call.expressions) and isinstance(call.expressions[0], exp.Distinct)
        filter_ = _condition(condition, typed) if condition is not None else None
        made: exp.Expression = call
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
                distinct=distinct,
                filter=filter_,
            ),
        )
        return Typed(made, bound.type)

    def call_of(self, node: exp.Expr) -> AggregateCall | None:
        """The aggregate call that an elaborated node stands for; None for any other node."""
        return self._calls.get(sql_of(node)) if isinstance(node, exp.Anonymous | exp.Filter) else None

    def _function_of(self, node: exp.Expression) -> AggregateFunction | None:
        """The aggregate function that a node calls; None when it calls none."""
        written = function_at(node)
        if written is not None:
            return CustomAggregate.declared(written) if written.aggregate else None
        return self._functions.get(node.name) if isinstance(node, exp.Anonymous) else None

    def _check_order(self, call: exp.Anonymous) -> None:
        without = [part for part in self._inputs.parts if any(part.type_of(name) is None for name in EVENT_ORDER)]
        if len(without) == len(self._inputs.parts):
            line, place = position_of(call)
            raise InvalidQuery(
                sentence(
                    "{} needs the order of events, and the rows of '{}' have none", call.name, Name(without[0].name)
                ),
                line=line,
                column=place,
                hint="read a stream, or use MIN or MAX",
            )


def _check_own(call: exp.Anonymous, arguments: tuple[exp.Expression, ...]) -> None:
    """Refuse a call whose every column is of the query around: SQL computes it over the rows of that query."""
    outer = next((found for each in arguments for found in each.find_all(OuterValue)), None)
    if outer is not None and not any(each.find(exp.Column) for each in arguments):
        line, place = position_of(call)
        raise NotSupported(
            f"{call.name} in a subquery over columns of the query around it alone is not supported",
            line=line,
            column=place,
            hint=f"compute {call.name} in a subquery in FROM, and read its column",
        )


def _known(value: exp.Expression, condition: exp.Expr | None) -> exp.Expr:
    """FILTER's condition, and that the value is not NULL: IGNORE NULLS."""
    known = exp.Not(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()))
    return known if condition is None else exp.And(this=exp.Paren(this=condition.copy()), expression=known)


def _condition(node: exp.Expr, typed: Infer) -> exp.Expression:
    found = typed(node)
    if found.type.base is not BaseType.BOOLEAN:
        raise TypeMismatch(f"FILTER takes a condition; {sql_of(node)} is {found.type}")
    return found.expression
