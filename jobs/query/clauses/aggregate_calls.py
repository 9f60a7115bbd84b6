"""The aggregate calls of one SELECT, bound to their types; with ORDER BY, WITHIN GROUP, and IGNORE NULLS.

SELECT area, SUM(a) / COUNT(*) + SUM(a) AS x FROM s GROUP BY area      __a0 = SUM(s.a), __a1 = COUNT(*)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from strandline.jobs.functions.aggregates.bag import Percentile
from strandline.jobs.functions.aggregates.collections import ORDERED, Ordered
from strandline.jobs.functions.aggregates.registry import (
    FUNCTIONS,
    AggregateFunction,
    Bound,
    CustomAggregate,
    canonical,
    functions,
)
from strandline.jobs.functions.python import function_at
from strandline.jobs.model.definitions import Semantics
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.tables import EVENT_ORDER
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.nested import has_order, order_key
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.query.inputs import Inputs, levels_out
from strandline.jobs.sql.dialect import OuterValue, position_of, sql_of
from strandline.jobs.sql.trees import call, is_not_null, where_both
from strandline.state_store.wording import Name, sentence


class Calls:
    """The aggregate calls of one query, each kept once."""

    def __init__(self, inputs: Inputs, semantics: Semantics) -> None:
        self._inputs = inputs
        self._functions = functions(semantics)
        self._calls: dict[str, AggregateCall] = {}

    @property
    def found(self) -> tuple[AggregateCall, ...]:
        """The calls, in the order in which they were first met."""
        return tuple(self._calls.values())

    def read(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """Elaborate an aggregate call; return None for any other node.

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
        if call.name in _EXTREMES and values and has_order(values[-1].type):
            call, values = _by_key(call, values, typed)
            function = self._functions[call.name]
        distinct = distinct and call.name not in _ALIKE_TWICE
        expressions, types = tuple(v.expression for v in values), tuple(v.type for v in values)
        bound = function.bind(expressions, types, distinct=distinct)
        parts: list[exp.Expr] = [v.expression for v in values] if values else [each.copy() for each in written]
        made = exp.Anonymous(this=call.name, expressions=[exp.Distinct(expressions=parts)] if distinct else parts)
        return self._kept(made, bound, condition, typed)

    def _in_order(self, call: OrderedCall, typed: Infer) -> tuple[exp.Anonymous, Bound]:
        """A call with an order, as a text of its own and bound."""
        by, descending = _one_way(call, typed)
        values = [typed(call.value), *(typed(each) if call.distinct else order_key(typed(each), typed) for each in by)]
        expressions, types = tuple(each.expression for each in values), tuple(each.type for each in values)
        constants = tuple(each for each in call.constants if isinstance(each, exp.Expression))
        function = self._functions[call.function]
        if isinstance(function, Ordered):
            bound = function.in_order(expressions, types, constants, descending=descending)
            if call.distinct:
                bound = function.each_once(bound)
        elif isinstance(function, Percentile):
            bound = function.within(expressions[0], types[0], constants, descending=descending)
        elif call.function == "MODE" and descending:
            raise NotSupported(
                "MODE() WITHIN GROUP (ORDER BY … DESC) is not supported: of several values, MODE gives the smallest",
                hint="leave DESC out; or count by value in a subquery, and take the first by ROW_NUMBER()",
            )
        else:
            bound = function.bind(expressions, types)
        direction = exp.Boolean(this=descending)
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
        """Find the aggregate call that an elaborated node stands for; None for any other node."""
        return self._calls.get(sql_of(node)) if isinstance(node, exp.Anonymous | exp.Filter) else None

    def _function_of(self, node: exp.Expression) -> AggregateFunction | None:
        """The aggregate function that a node calls; None when it calls none."""
        written = function_at(node)
        if written is not None:
            return CustomAggregate.declared(written) if written.aggregate else None
        return self._functions.get(node.name) if isinstance(node, exp.Anonymous) else None

    def _check_order(self, call: exp.Anonymous) -> None:
        without = [part for part in self._inputs.parts if any(part.type_of(name) is None for name in EVENT_ORDER)]
        if not self._inputs.parts:
            raise InvalidQuery(
                f"{call.name} needs the order of events, and a query without FROM has none", hint="read a stream"
            ).placed(*position_of(call))
        if len(without) == len(self._inputs.parts):
            raise InvalidQuery(
                sentence(
                    "{} needs the order of events, and the rows of '{}' have none", call.name, Name(without[0].name)
                ),
                hint="read a stream, or use MIN or MAX",
            ).placed(*position_of(call))


_EXTREMES: Final = {
    **dict.fromkeys(("MIN", "ANY_VALUE", "MIN_BY"), "MIN_BY"),
    **dict.fromkeys(("MAX", "MAX_BY"), "MAX_BY"),
}
"""The functions that compare values, and those by which they compare ARRAYs and STRUCTs."""


_ALIKE_TWICE: Final = {"MIN_BY", "MAX_BY", "BIT_AND", "BIT_OR", "BOOL_AND", "EVERY", "BOOL_OR", "ANY"}
"""The functions for which a value counts once however often it comes, so that DISTINCT changes nothing."""


def _by_key(call: exp.Anonymous, values: list[Typed], typed: Infer) -> tuple[exp.Anonymous, list[Typed]]:
    """MAX(x) of an ARRAY or STRUCT is MAX_BY(x, what orders x)."""
    made = [values[0], order_key(values[-1], typed)]
    return exp.Anonymous(this=_EXTREMES[call.name], expressions=[each.expression for each in made]), made


def _check_own(call: exp.Anonymous, arguments: tuple[exp.Expression, ...]) -> None:
    """Refuse a call whose every column is of the query around: SQL computes it over the rows of that query."""
    read = [found for each in arguments for found in each.find_all(exp.Column)]
    outside = any(each.find(OuterValue) for each in arguments) or any(map(levels_out, read))
    if outside and all(map(levels_out, read)):
        raise NotSupported(
            f"{call.name} in a subquery over columns of the query around it alone is not supported",
            hint=f"compute {call.name} in a subquery in FROM, and read its column",
        ).placed(*position_of(call))


def _known(value: exp.Expression, condition: exp.Expr | None) -> exp.Expr:
    """FILTER's condition, and that the value is not NULL: IGNORE NULLS."""
    known = exp.Not(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()))
    return known if condition is None else where_both(condition, known).this


def _condition(node: exp.Expr, typed: Infer) -> exp.Expression:
    found = typed(node)
    if found.type.base is not BaseType.BOOLEAN:
        raise TypeMismatch(f"FILTER takes a condition; {sql_of(node)} is {found.type}")
    return found.expression


# Aggregate calls with an order of their own, taken apart.
#
# ARRAY_AGG(x ORDER BY y DESC)                    value x, by y, downwards
# STRING_AGG(k, ', ' ORDER BY y)                  value k, by y, constants ', '
# PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)  value x, constants 0.5

# Functions that always have an order: where none is written, that of the values.
_ALWAYS = ("STRING_AGG",)
_CONDITIONAL = ("COUNT_IF", "COUNTIF")
# Sketches cannot take values back: the count is exact, whatever accuracy is asked for.
_COUNTS = ("APPROX_COUNT_DISTINCT", "APPROX_DISTINCT")
_APPROXIMATE = ("APPROX_PERCENTILE", "PERCENTILE_APPROX", "APPROX_QUANTILE")
_QUANTILES = {
    **dict.fromkeys(_APPROXIMATE, "PERCENTILE_DISC"),
    "MEDIAN": "PERCENTILE_CONT",
    "QUANTILE_CONT": "PERCENTILE_CONT",
    "QUANTILE_DISC": "PERCENTILE_DISC",
    "QUANTILE": "PERCENTILE_DISC",
}
"""Quantiles that other dialects write as plain calls."""


@dataclass(frozen=True)
class OrderedCall:
    """An aggregate call with an order of its own.

    Attributes:
        function: its name in the list of aggregate functions.
        by: what the value is ordered by; nothing where the value orders itself.
        ways: of each, whether downwards, and whether NULLs come first.
    """

    function: str
    value: exp.Expr
    by: tuple[exp.Expr, ...]
    constants: tuple[exp.Expr, ...]
    descending: bool
    distinct: bool = False
    ways: tuple[tuple[bool, bool], ...] = ()


def usual(node: exp.Expression) -> exp.Expression:
    """Rewrite an aggregate call of another dialect as ours; leave any other node as it is.

    COUNT_STAR()            COUNT(*)
    COUNT_IF(p)             COUNT(*) FILTER (WHERE p)
    MEDIAN(x)               PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)
    QUANTILE_DISC(x, 0.3)   PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY x)
    ARG_MAX(x, y)           MAX_BY(x, y)
    APPROX_DISTINCT(x)      COUNT(DISTINCT x)
    APPROX_PERCENTILE(0.5, 0.01) WITHIN GROUP (ORDER BY x)    PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x)
    ANY_VALUE(x ORDER BY y) FIRST_VALUE(x ORDER BY y) FILTER (WHERE x IS NOT NULL)
    """
    if isinstance(node, exp.WithinGroup) and isinstance(node.this, exp.Anonymous) and node.this.name in _APPROXIMATE:
        exact = exp.Anonymous(this="PERCENTILE_DISC", expressions=[each.copy() for each in node.this.expressions[:1]])
        return exp.WithinGroup(this=exact, expression=node.expression.copy())
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        inner = usual(node.this)
        if inner is node.this:
            return node
        if isinstance(node, exp.Filter) and isinstance(inner, exp.Filter):
            return exp.Filter(this=inner.this, expression=where_both(node.expression.this, inner.expression.this))
        made = node.copy()
        made.set("this", inner)
        return made
    if not isinstance(node, exp.Anonymous) or function_at(node) is not None:
        return node
    name, arguments = node.name, node.expressions
    if name in _COUNTS and arguments:
        return exp.Anonymous(this="COUNT", expressions=[exp.Distinct(expressions=[arguments[0].copy()])])
    if name == "COUNT_STAR" and not arguments:
        return exp.Anonymous(this="COUNT", expressions=[exp.Star()])
    if name in _CONDITIONAL and len(arguments) == 1:
        counted = exp.Anonymous(this="COUNT", expressions=[exp.Star()])
        return exp.Filter(this=counted, expression=exp.Where(this=arguments[0].copy()))
    if name in _QUANTILES and len(arguments) == (1 if name == "MEDIAN" else 2):
        fraction = exp.Literal.number("0.5") if name == "MEDIAN" else arguments[1].copy()
        order = exp.Order(expressions=[exp.Ordered(this=arguments[0].copy(), nulls_first=True)])
        return exp.WithinGroup(this=exp.Anonymous(this=_QUANTILES[name], expressions=[fraction]), expression=order)
    return _renamed(node)


def _renamed(node: exp.Anonymous) -> exp.Expression:
    name, arguments = node.name, node.expressions
    ordered = len(arguments) == 1 and isinstance(arguments[0], exp.Order)
    ours = "FIRST_VALUE" if name == "ANY_VALUE" and ordered else canonical(name)
    if ours == name:
        return node
    renamed = node.copy()
    renamed.set("this", ours)
    if ordered and name == "ANY_VALUE":
        return exp.Filter(this=renamed, expression=exp.Where(this=is_not_null(_value(arguments[0].this))))
    if name.startswith("ARG") and len(arguments) == 2:
        # MAX_BY takes a NULL for a value; these do not.
        return exp.Filter(this=renamed, expression=exp.Where(this=is_not_null(_value(arguments[0]))))
    return renamed


def _value(node: exp.Expr) -> exp.Expression:
    return exp.Paren(this=node.copy())


def ordered_call(node: exp.Expr) -> OrderedCall | None:
    """Take a call with an order apart; return None for any other node.

    Raises:
        InvalidQuery: the function has no order.
        NotSupported: DISTINCT, columns in different directions, or NULLs where they are not by default.
    """
    if isinstance(node, exp.WithinGroup):
        return _within_group(node)
    if not isinstance(node, exp.Anonymous) or not node.expressions:
        return None
    *first, last = node.expressions
    if isinstance(last, exp.Order):
        by, ways = _order(last)
        return _of(node, [*first, last.this], by, ways)
    if node.name in _ALWAYS:
        return _of(node, node.expressions, ())
    return None


def _of(
    node: exp.Anonymous,
    arguments: Sequence[exp.Expr],
    by: tuple[exp.Expr, ...],
    ways: tuple[tuple[bool, bool], ...] = (),
) -> OrderedCall:
    """A call over its arguments: the value, perhaps in DISTINCT, and constants."""
    value, *constants = arguments
    distinct = isinstance(value, exp.Distinct)
    if distinct:
        value, *more = value.expressions
        constants = [*more, *constants]
    return OrderedCall(_named(node), value, by, tuple(constants), bool(ways) and ways[0][0], distinct, ways)


def _within_group(node: exp.WithinGroup) -> OrderedCall:
    call = node.this
    by, ways = _order(node.expression)
    if isinstance(call, exp.Anonymous) and f"{call.name}{ORDERED}" in FUNCTIONS and call.expressions:
        return _of(call, call.expressions, by, ways)
    if not isinstance(call, exp.Anonymous) or call.name not in FUNCTIONS or len(by) != 1:
        raise _refused(node, f"{sql_of(node)}: WITHIN GROUP")
    return OrderedCall(call.name, by[0], (), tuple(call.expressions), ways[0][0])


def _named(node: exp.Anonymous) -> str:
    name = f"{node.name}{ORDERED}"
    if name not in FUNCTIONS:
        line, column = position_of(node)
        known = ", ".join(each.removesuffix(ORDERED) for each in FUNCTIONS if each.endswith(ORDERED))
        raise InvalidQuery(f"{node.name} takes no ORDER BY", line=line, column=column, hint=f"it is for {known}")
    return name


def _order(order: exp.Expr) -> tuple[tuple[exp.Expr, ...], tuple[tuple[bool, bool], ...]]:
    """What an order is by, each once, and the way of each."""
    found: dict[str, tuple[exp.Expr, tuple[bool, bool]]] = {}
    for item in order.expressions:
        found.setdefault(
            sql_of(item.this), (item.this, (bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
        )
    return tuple(by for by, _ in found.values()), tuple(way for _, way in found.values())


# An order in several directions, or with NULLs at the other end, as one in a single direction, in which NULL is less
# than any value:
#
#     ARRAY_AGG(x ORDER BY k, v DESC)          x ORDER BY k, v IS NOT NULL, -v
#     ARRAY_AGG(x ORDER BY v NULLS LAST)       x ORDER BY v IS NULL, v


def _one_way(call: OrderedCall, typed: Infer) -> tuple[tuple[exp.Expr, ...], bool]:
    """What a call is ordered by, all in one direction, and whether that is downwards.

    Raises:
        NotSupported: texts and their like in both directions.
    """
    if all(down is call.descending and first is not down for down, first in call.ways):
        return call.by, call.descending
    kept = [way[0] for by, way in zip(call.by, call.ways, strict=True) if typed(by).type.base not in _OPPOSITES]
    descending = kept[0] if kept else call.descending
    made: list[exp.Expr] = []
    for by, (down, first) in zip(call.by, call.ways, strict=True):
        if first is descending:
            made.append(exp.Is(this=exp.Paren(this=by.copy()), expression=exp.Null()))
        made += [by] if down is descending else _opposite(by, typed(by).type.base)
    return tuple(made), descending


def _opposite(by: exp.Expr, base: BaseType) -> list[exp.Expr]:
    """What orders values the other way round."""
    if base not in _OPPOSITES:
        raise NotSupported(
            f"ORDER BY inside a call, with a {base.value} in both directions, is not supported",
            hint="order texts one way; numbers, dates and TIMESTAMPs can go the other",
        ).placed(*position_of(by))
    return _OPPOSITES[base](exp.Paren(this=by.copy()))


def _less(value: exp.Expr, digits: int = 0) -> list[exp.Expr]:
    """`-value`; of a whole number in a type that has its opposite."""
    to = exp.DataType(this=exp.DType.DECIMAL, expressions=[exp.DataTypeParam(this=exp.Literal.number(digits))])
    return [exp.Neg(this=exp.Cast(this=value, to=to) if digits else value)]


def _number_down(value: exp.Expr) -> list[exp.Expr]:
    """NaN, which is its own opposite, goes to the other end by itself."""
    nan = exp.Cast(this=exp.Literal.string("NaN"), to=exp.DataType(this=exp.DType.DOUBLE))
    return [exp.NEQ(this=value.copy(), expression=nan), *_less(value)]


_OPPOSITES: Final[Mapping[BaseType, Callable[[exp.Expr], list[exp.Expr]]]] = {
    BaseType.INT: lambda value: _less(value, 10),
    BaseType.BIGINT: lambda value: _less(value, 19),
    BaseType.DECIMAL: _less,
    BaseType.DOUBLE: _number_down,
    BaseType.DATE: lambda value: _less(call("UNIX_DATE", value)),
    BaseType.TIMESTAMP: lambda value: _less(call("UNIX_MICROS", value)),
    BaseType.BOOLEAN: lambda value: [exp.Not(this=value)],
}
"""What orders the values of a type the other way round."""


def _refused(node: exp.Expr, what: str) -> NotSupported:
    return NotSupported(f"{what} is not supported yet", hint="order all of it one way").placed(*position_of(node))


# IGNORE NULLS and RESPECT NULLS, taken off a call: they are written inside of it or after it.
#
# FIRST_VALUE(x IGNORE NULLS ORDER BY y)      FIRST_VALUE(x ORDER BY y), and True
# FIRST_VALUE(x) IGNORE NULLS                 FIRST_VALUE(x), and True
# FIRST_VALUE(x RESPECT NULLS)                FIRST_VALUE(x), and False: so it does by itself

_WORDS = exp.IgnoreNulls | exp.RespectNulls
_TAKERS = ("FIRST_VALUE", "LAST_VALUE")
OVER_ROWS = _TAKERS
"""The functions OVER a window for which NULLs are values unless they are ignored."""
OVER_GROUPS = (*_TAKERS, "ARRAY_AGG", "COLLECT_LIST")
"""The aggregates for which NULLs are values unless they are ignored."""


def without_words(node: exp.Expression, takers: tuple[str, ...]) -> tuple[exp.Expression, bool]:
    """Take IGNORE NULLS or RESPECT NULLS off a call, perhaps under FILTER; the second value is True if it ignores
    NULLs. Any other node stays as it is.

    Raises:
        InvalidQuery: the words stand with a function that is not among `takers`.
    """
    inner, ignores = (node.this, isinstance(node, exp.IgnoreNulls)) if isinstance(node, _WORDS) else (node, None)
    call = inner.this if isinstance(inner, exp.Filter) else inner
    found = _inside(call) if isinstance(call, exp.Anonymous) else []
    if ignores is None and not found:
        return node, False
    if not isinstance(call, exp.Anonymous) or call.name not in takers:
        raise InvalidQuery(
            "IGNORE NULLS and RESPECT NULLS do not belong here", hint=f"they are for {', '.join(takers)}"
        ).placed(*position_of(call))
    copied: exp.Expression = inner.copy()
    for words in _inside(copied.this if isinstance(copied, exp.Filter) else copied):
        words.replace(words.this)
    return copied, bool(ignores) or any(isinstance(words, exp.IgnoreNulls) for words in found)


def value_of(call: exp.Expr) -> exp.Expression:
    """First argument of a call without those words: the value that it is about.

    Raises:
        InvalidQuery: it has none.
    """
    first = call.expressions[0] if call.expressions else None
    value = first.this if isinstance(first, exp.Order) else first
    if not isinstance(value, exp.Expression) or isinstance(value, exp.Distinct):
        raise InvalidQuery("IGNORE NULLS is about one value", hint="ARRAY_AGG(x IGNORE NULLS)").placed(
            *position_of(call)
        )
    return value


def _inside(call: exp.Expr) -> list[exp.Expr]:
    """The words inside a call: around an argument, or around the value in its order."""
    parts = [part for each in call.expressions for part in (each, each.this if isinstance(each, exp.Order) else None)]
    return [part for part in parts if isinstance(part, _WORDS)]
