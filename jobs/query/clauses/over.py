"""Functions OVER a window: the calls of one SELECT, and their partitions.

SELECT k, RANK() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM s QUALIFY place <= 3

    partition  s.k      calls  __w0 = RANK, by s.v descending      outputs  k = s.k, place = __w0

Calls over several PARTITION BYs become a query for each; that, and what a frame may be, is in `over_windows`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NamedTuple

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.functions.aggregates.collections import ORDERED
from strandline.jobs.functions.aggregates.registry import FUNCTIONS, canonical, functions
from strandline.jobs.functions.scalars.contract import common
from strandline.jobs.functions.scalars.domains import REACH
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Semantics
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch, UnknownName
from strandline.jobs.model.stage import (
    AggregateCall,
    AggregateFramed,
    AggregateOver,
    AnalyticCall,
)
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.clauses.aggregate_calls import OVER_ROWS, Calls, usual, without_words
from strandline.jobs.query.clauses.over_windows import (
    Order,
    Partition,
    by_columns,
    by_length,
    check_kinds,
    computed_number,
    excluded,
    frame_text,
    is_by_distance,
    is_rare,
    reaches_over_time,
    ties,
    without_end,
)
from strandline.jobs.query.expressions.casts import converted, widened
from strandline.jobs.query.expressions.coercion import is_constant
from strandline.jobs.query.expressions.infer import Aggregate, infer
from strandline.jobs.query.expressions.nested import has_order, order_key
from strandline.jobs.query.expressions.scope import Infer, Typed, column
from strandline.jobs.query.inputs import Inputs
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import call

_SHARES = ("PERCENT_RANK", "CUME_DIST")
_RANKINGS = ("ROW_NUMBER", "RANK", "DENSE_RANK", *_SHARES)
_NEIGHBOURS = ("LAG", "LEAD")
_ENDS = ("FIRST_VALUE", "LAST_VALUE")
_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "BOOL_AND", "BOOL_OR")
_DISTINCT = "COUNT_DISTINCT"
ANALYTIC_FUNCTIONS = (*_RANKINGS, "NTILE", *_NEIGHBOURS, *_ENDS, "NTH_VALUE", *_AGGREGATES)
# Functions that mean nothing without an order; of ROW_NUMBER SQL does not require one, and all rows have one rank then.
_NEED_ORDER = ("NTILE", *_NEIGHBOURS)


class _Window(NamedTuple):
    """A window as it is read.

    Attributes:
        partition: the texts of PARTITION BY.
        spec: the frame as written.
        types: of the order.
        reaches: the distances of the frame that each row brings.
    """

    partition: tuple[str, ...]
    order: Order
    spec: exp.Expr | None
    types: list[SqlType]
    reaches: tuple[exp.Expression, ...]


class AnalyticCalls:
    """The calls OVER windows of one query, each kept once."""

    def __init__(self, inputs: Inputs, aggregate: Aggregate, semantics: Semantics) -> None:
        """`aggregate` reads the aggregate calls that stand inside: RANK() OVER (ORDER BY COUNT(*))."""
        self._inputs = inputs
        self._semantics = semantics
        self._functions = functions(semantics)
        self._aggregate = aggregate
        self._calls: dict[str, AnalyticCall] = {}
        self._partitions: dict[tuple[str, ...], tuple[exp.Expression, ...]] = {}
        self._members: dict[tuple[str, ...], set[str]] = {}

    @property
    def found(self) -> tuple[AnalyticCall, ...]:
        """The calls, in the order in which they were first met."""
        return tuple(self._calls.values())

    @property
    def partition(self) -> tuple[exp.Expression, ...]:
        """Expressions of every PARTITION BY, one after the other; `partitions` says which belong together."""
        return tuple(node for nodes in self._partitions.values() for node in nodes)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The different partitions, in the order in which they were first met."""
        made, end = [], 0
        for texts, nodes in self._partitions.items():
            begin, end = end, end + len(nodes)
            made.append(Partition(begin, end, frozenset(self._members[texts])))
        return tuple(made)

    def read(self, node: exp.Expression, _typed: Infer) -> Typed | None:
        """Elaborate a call OVER a window to the plain column that holds its value; return None for any other node.

        Raises:
            SqlError: no such function, or arguments that do not fit.
        """
        if not isinstance(node, exp.Window):
            return None
        if node.args.get("alias") is not None:
            name = node.args["alias"].name
            raise InvalidQuery(f"there is no window '{name}'", hint=f"WINDOW {name} AS (PARTITION BY … ORDER BY …)")
        written = node.args.get("spec")
        exclude, rare = excluded(written), is_rare(written)
        if self._of_frame(node.this) or (rare and self._is_aggregate(node.this)):
            partition, order, spec, types, reaches = self._window(node)
            made: AnalyticCall = self._aggregate_over(_in_window_order(node), order, frame_text(spec, types))
        else:
            call, ignores = self._named(node.this)
            partition, order, spec, types, reaches = self._window(node)
            frame = self._frame_of(call.name, spec, types)
            if call.name == "NTH_VALUE" and rare:
                raise NotSupported(
                    "NTH_VALUE over frames in GROUPS, with EXCLUDE, or bounded by columns is not supported"
                )
            tied = call.name in _ENDS and (rare or ties(frame, ignores=ignores))
            made = (self._end_over if tied else self._analytic)(call, order, frame, ignores=ignores)
        if (exclude or reaches) and isinstance(made, AggregateOver):
            parts = {each.name: getattr(made, each.name) for each in fields(made)}
            parts["arguments"] = (*made.arguments, *reaches)
            made = AggregateFramed(**parts, exclude=exclude, reaches=len(reaches))
        text = sql_of(node)
        self._calls.setdefault(text, replace(made, name=f"__w{len(self._calls)}"))
        self._members[partition].add(self._calls[text].name)
        return Typed(column(self._calls[text].name), made.type)

    def _window(self, node: exp.Window) -> _Window:
        partition = self._partition(node)
        items = node.args["order"].expressions if node.args.get("order") else ()
        typed = [self._typed(item.this) for item in items]
        order = tuple(self._order(item) for item in items)
        spec, types = node.args.get("spec"), [each.type for each in typed]
        reaches: tuple[exp.Expression, ...] = ()
        if spec is not None and reaches_over_time(spec):
            spec, order, types = by_length(spec, order, types)
        elif spec is not None and by_columns(spec):
            spec, order, reaches = self._reaching(spec, order, typed)
        elif is_by_distance(spec):
            order = tuple((without_end(each), by[1], by[2]) for each, by in zip(typed, order, strict=True))
        return _Window(partition, order, spec, types, reaches)

    def _reaching(
        self, spec: exp.Expr, order: Order, by: list[Typed]
    ) -> tuple[exp.Expr, Order, tuple[exp.Expression, ...]]:
        """A frame that each row brings the bounds of: with `?` in their places, the order, and the bounds.

        Raises:
            TypeMismatch, NotSupported: a bound is no such number as the frame counts.
        """
        kind, made, reaches = spec.args["kind"].upper(), spec.copy(), []
        found = {which: self._typed(made.args[which]) for which in by_columns(spec)}
        check_kinds(kind, list(found.values()), by)
        unit = common("RANGE", [each.type for each in (*by, *found.values())]) if kind == "RANGE" else t.BIGINT
        if unit in (t.INT, t.BIGINT) and kind == "RANGE":
            unit = SqlType(t.BaseType.DECIMAL, precision=t.MAX_PRECISION)
        for which, value in found.items():
            reaches.append(call(REACH, widened(value, unit).expression))
            made.set(which, "?")
        for which in {"start", "end"} - set(found):
            if kind == "RANGE" and isinstance(made.args.get(which), exp.Literal):
                raise NotSupported(
                    f"a RANGE with one constant distance and one of a column is not supported: {sql_of(spec)}"
                )
        if kind == "RANGE":
            order = tuple(
                (widened(each, unit).expression, down, first) for each, (_, down, first) in zip(by, order, strict=True)
            )
        return made, order, tuple(reaches)

    def _of_frame(self, node: exp.Expression) -> bool:
        """True if the call is an aggregate that is computed of a frame's rows as of a group's."""
        call: exp.Expr = usual(node)
        while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            call = call.this
        if isinstance(call, exp.WithinGroup):
            return True
        if not isinstance(call, exp.Anonymous):
            return False
        first, last = (call.expressions[0], call.expressions[-1]) if call.expressions else (None, None)
        if isinstance(last, exp.Order):
            return True
        if call.name in ANALYTIC_FUNCTIONS:
            if call.name in ("MIN", "MAX") and first is not None and not isinstance(first, exp.Distinct):
                return has_order(self._typed(first).type)
            if not isinstance(first, exp.Distinct):
                return False
            return call.name in ("SUM", "AVG") or (call.name == "COUNT" and len(first.expressions) > 1)
        function = self._functions.get(call.name)
        return f"{call.name}{ORDERED}" in self._functions or (function is not None and not function.needs_order)

    def _is_aggregate(self, node: exp.Expression) -> bool:
        """True if the call is an aggregate that engines are asked for OVER windows."""
        call: exp.Expr = usual(node)
        while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            call = call.this
        return isinstance(call, exp.Anonymous) and call.name in _AGGREGATES

    def _aggregate_over(self, node: exp.Expression, order: Order, frame: str | None) -> AggregateOver:
        """An aggregate as a group's, whose arguments are NULL where FILTER does not hold: there they are not computed,
        and cannot fail."""
        calls = Calls(self._inputs, self._semantics)
        found = calls.read(node, self._typed)
        call = calls.call_of(found.expression) if found is not None else None
        assert call is not None
        arguments = call.arguments
        if call.filter is not None:
            chosen = (exp.Case(ifs=[exp.If(this=call.filter.copy(), true=each)]) for each in arguments)
            arguments = (*chosen, call.filter)
        bare = replace(call, name="", arguments=(), filter=None)
        return AggregateOver(
            "",
            call.function,
            arguments,
            order,
            call.type,
            frame,
            aggregate=bare,
            filtered=call.filter is not None,
        )

    def _named(self, node: exp.Expression) -> tuple[exp.Anonymous, bool]:
        """The call of a function of windows, without IGNORE NULLS, and whether it says so."""
        call, ignores = without_words(_filtered(usual(node)), (*OVER_ROWS, *_NEIGHBOURS))
        if not isinstance(call, exp.Anonymous) or call.name not in ANALYTIC_FUNCTIONS:
            written = node.name if isinstance(node, exp.Anonymous) else sql_of(node)
            aggregates = (
                name for name, each in self._functions.items() if not each.needs_order and ORDERED not in name
            )
            raise UnknownName.among("window function", written, (*ANALYTIC_FUNCTIONS, *aggregates)).placed(
                *position_of(node)
            )
        return call, ignores

    def _frame_of(self, name: str, spec: exp.Expr | None, types: list[SqlType]) -> str | None:
        """The frame; None for functions that look at the whole partition, whatever frame their window has."""
        found = frame_text(spec, types)
        return found if name in (*_ENDS, "NTH_VALUE", *_AGGREGATES) else None

    def _analytic(self, call: exp.Anonymous, order: Order, frame: str | None, *, ignores: bool) -> AnalyticCall:
        if call.name in _NEED_ORDER and not order:
            raise InvalidQuery(f"{call.name} needs an order: OVER (PARTITION BY … ORDER BY …)")
        name, arguments, sql_type = self._arguments(call)
        if ignores and name in _NEIGHBOURS:
            arguments = (exp.IgnoreNulls(this=arguments[0]), *arguments[1:])
        elif ignores:
            arguments = tuple(exp.IgnoreNulls(this=each) for each in arguments)
        return AnalyticCall("", name, arguments, order, sql_type, frame)

    def _end_over(self, call: exp.Anonymous, order: Order, frame: str | None, *, ignores: bool) -> AggregateOver:
        """FIRST_VALUE or LAST_VALUE over a frame that begins or ends amid rows that tie: the value of the first or last
        of the frame's rows, by the order and then by key."""
        name, arguments, sql_type = self._arguments(call)
        aggregate = AggregateCall("", name, (), (sql_type,), sql_type, (ignores,))
        return AggregateOver("", name, arguments, order, sql_type, frame, aggregate=aggregate)

    def _typed(self, node: exp.Expr) -> Typed:
        return infer(node, self._inputs, self._aggregate)

    def _partition(self, node: exp.Window) -> tuple[str, ...]:
        """The texts of a call's PARTITION BY, which stand for it among those of the query."""
        partition = tuple(self._typed(item) for item in node.args.get("partition_by") or ())
        if any(has_map(each.type) for each in partition):
            raise InvalidQuery("one cannot partition by a MAP")
        texts = tuple(sql_of(each.expression) for each in partition)
        self._partitions.setdefault(texts, tuple(each.expression for each in partition))
        self._members.setdefault(texts, set())
        return texts

    def _order(self, item: exp.Expr) -> tuple[exp.Expression, bool, bool]:
        found = self._typed(item.this)
        if has_map(found.type):
            raise TypeMismatch(f"values of type {found.type} have no order: {sql_of(item.this)}")
        found = order_key(found, self._typed)
        return found.expression, bool(item.args.get("desc")), bool(item.args.get("nulls_first"))

    def _arguments(self, call: exp.Anonymous) -> tuple[str, tuple[exp.Expression, ...], SqlType]:
        """The function that computes a call, its arguments and the type of its value."""
        name, written = call.name, call.expressions
        if written and isinstance(written[0], exp.Distinct):
            return self._distinct(name, written[0].expressions)
        if name in _AGGREGATES:
            return (name, *self._aggregated(name, written))
        return (name, *self._positional(name, written))

    def _distinct(self, name: str, written: list[exp.Expression]) -> tuple[str, tuple[exp.Expression, ...], SqlType]:
        if name in ("MIN", "MAX", "BOOL_AND", "BOOL_OR"):
            return (name, *self._aggregated(name, written))
        found = self._typed(written[0])
        if name != "COUNT" or found.type.is_nested:
            raise NotSupported(
                f"{name}(DISTINCT …) of {found.type} OVER a window is not supported",
                hint="COUNT(DISTINCT x) OVER of plain values is; otherwise join a subquery that groups",
            )
        if found.type.base is t.BaseType.DOUBLE:
            found = converted(found, t.VARCHAR)  # as a text NaN is equal to itself, and zero has no sign
        return _DISTINCT, (found.expression,), t.BIGINT

    def _positional(self, name: str, written: list[exp.Expression]) -> tuple[tuple[exp.Expression, ...], SqlType]:
        counts = {**dict.fromkeys(_RANKINGS, (0, 0)), **dict.fromkeys(_NEIGHBOURS, (1, 3)), "NTH_VALUE": (2, 2)}
        least, most = counts.get(name, (1, 1))
        if not least <= len(written) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise TypeMismatch(f"{name} takes {wanted} argument{'s' if wanted != '1' else ''}, not {len(written)}")
        if name in _RANKINGS:
            return (), t.DOUBLE if name in _SHARES else t.BIGINT
        if name in (*_NEIGHBOURS, "NTILE", "NTH_VALUE"):
            at = 0 if name == "NTILE" else 1
            written = [computed_number(each) if place == at else each for place, each in enumerate(written)]
        values = [self._typed(each) for each in written]
        number = values[0] if name == "NTILE" else values[1] if len(values) > 1 else None
        if number is not None and not (is_constant(number.expression) and number.type == t.INT):
            raise TypeMismatch(f"{name} takes a whole number, not {sql_of(number.expression)}")
        if name in ("NTILE", "NTH_VALUE") and not (isinstance(written[-1], exp.Literal) and int(written[-1].name) > 0):
            raise TypeMismatch(f"{name} takes a number from 1, not {sql_of(written[-1])}")
        if name == "NTILE":
            return (values[0].expression,), t.BIGINT
        sql_type = common(name, [values[0].type, *(value.type for value in values[2:])])
        if sql_type.base is t.BaseType.NULL:
            raise TypeMismatch(f"{name}(NULL) has no type", hint=f"{name}(CAST(NULL AS …))")
        parts = [value if place == 1 else widened(value, sql_type) for place, value in enumerate(values)]
        return tuple(part.expression for part in parts), sql_type

    def _aggregated(self, name: str, written: list[exp.Expression]) -> tuple[tuple[exp.Expression, ...], SqlType]:
        values = [] if written and isinstance(written[0], exp.Star) else [self._typed(each) for each in written]
        bound = self._functions[name].bind(tuple(v.expression for v in values), tuple(v.type for v in values))
        return bound.arguments, bound.type


def _in_window_order(node: exp.Window) -> exp.Expression:
    """The call; a text that is joined in no order of its own is joined in the window's."""
    order = node.args.get("order")
    call = node.this
    assert isinstance(call, exp.Expression)
    inner = call.this if isinstance(call, exp.Filter) else call
    name = canonical(inner.name) if isinstance(inner, exp.Anonymous) and inner.expressions else ""
    if order is None or f"{name}{ORDERED}" not in FUNCTIONS or name in FUNCTIONS:
        return call
    if isinstance(inner.expressions[-1], exp.Order):
        return call
    made = call.copy()
    last = (made.this if isinstance(made, exp.Filter) else made).expressions[-1]
    last.replace(exp.Order(this=last.copy(), expressions=[each.copy() for each in order.expressions]))
    return made


def _filtered(call: exp.Expression) -> exp.Expression:
    """`SUM(x) FILTER (WHERE c)` as `SUM(CASE WHEN c THEN x END)`: these aggregates skip NULL. Other calls stay.

    Raises:
        InvalidQuery: FILTER stands with a function that is no aggregate.
    """
    if not isinstance(call, exp.Filter):
        return call
    inner, condition = call.this, call.expression.this
    if not isinstance(inner, exp.Anonymous) or inner.name not in _AGGREGATES or len(inner.expressions) > 1:
        raise InvalidQuery(
            f"OVER a window, FILTER is for {', '.join(_AGGREGATES)} of one value: {sql_of(call)}"
        ).placed(*position_of(call))
    value = inner.expressions[0] if inner.expressions else exp.Star()
    distinct = isinstance(value, exp.Distinct)
    if distinct and len(value.expressions) != 1:
        return inner  # refused with and without FILTER
    value = value.expressions[0] if distinct else value
    kept = exp.Literal.number(1) if isinstance(value, exp.Star) else value.copy()
    made: exp.Expression = exp.Case(ifs=[exp.If(this=condition.copy(), true=kept)])
    return exp.Anonymous(this=inner.this, expressions=[exp.Distinct(expressions=[made]) if distinct else made])
