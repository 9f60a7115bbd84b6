"""Aggregate calls with an order of their own, taken apart.

ARRAY_AGG(x ORDER BY y DESC)                    value x, by y, downwards
STRING_AGG(k, ', ' ORDER BY y)                  value k, by y, constants ', '
PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)  value x, constants 0.5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from strandline.jobs.functions.aggregates.ordered import ORDERED
from strandline.jobs.functions.aggregates.registry import FUNCTIONS, canonical
from strandline.jobs.functions.python.declared import function_at
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import is_not_null

# Functions that always have an order: where none is written, that of the values.
_ALWAYS = ("STRING_AGG",)
_CONDITIONAL = ("COUNT_IF", "COUNTIF")
_QUANTILES = {
    "MEDIAN": "PERCENTILE_CONT",
    "QUANTILE_CONT": "PERCENTILE_CONT",
    "QUANTILE_DISC": "PERCENTILE_DISC",
    "QUANTILE": "PERCENTILE_DISC",
}
"""Quantiles that other dialects write as plain calls."""


@dataclass(frozen=True)
class OrderedCall:
    """A call with an order.

    Attributes:
        function: its name in the list of aggregate functions.
        by: what the value is ordered by; nothing where the value orders itself.
    """

    function: str
    value: exp.Expr
    by: tuple[exp.Expr, ...]
    constants: tuple[exp.Expr, ...]
    descending: bool
    distinct: bool = False


def usual(node: exp.Expression) -> exp.Expression:
    """An aggregate call of another dialect as ours; any other node stays as it is.

    COUNT_IF(p)             COUNT(*) FILTER (WHERE p)
    MEDIAN(x)               PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)
    QUANTILE_DISC(x, 0.3)   PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY x)
    ARG_MAX(x, y)           MAX_BY(x, y)
    """
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        inner = usual(node.this)
        if inner is node.this:
            return node
        if isinstance(node, exp.Filter) and isinstance(inner, exp.Filter):
            both = exp.And(
                this=exp.Paren(this=node.expression.this.copy()), expression=exp.Paren(this=inner.expression.this)
            )
            return exp.Filter(this=inner.this, expression=exp.Where(this=both))
        made = node.copy()
        made.set("this", inner)
        return made
    if not isinstance(node, exp.Anonymous) or function_at(node) is not None:
        return node
    name, arguments = node.name, node.expressions
    if name in _CONDITIONAL and len(arguments) == 1:
        counted = exp.Anonymous(this="COUNT", expressions=[exp.Star()])
        return exp.Filter(this=counted, expression=exp.Where(this=arguments[0].copy()))
    if name in _QUANTILES and len(arguments) == (1 if name == "MEDIAN" else 2):
        fraction = exp.Literal.number("0.5") if name == "MEDIAN" else arguments[1].copy()
        order = exp.Order(expressions=[exp.Ordered(this=arguments[0].copy(), nulls_first=True)])
        return exp.WithinGroup(this=exp.Anonymous(this=_QUANTILES[name], expressions=[fraction]), expression=order)
    if canonical(name) == name:
        return node
    renamed = node.copy()
    renamed.set("this", canonical(name))
    if name.startswith("ARG") and len(arguments) == 2:
        # MAX_BY takes a NULL for a value; these do not.
        return exp.Filter(this=renamed, expression=exp.Where(this=is_not_null(_value(arguments[0]))))
    return renamed


def _value(node: exp.Expr) -> exp.Expression:
    return exp.Paren(this=node.copy())


def ordered_call(node: exp.Expr) -> OrderedCall | None:
    """The parts of a call with an order; None for a call without one, and for anything else.

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
        by, descending = _order(node, last)
        return _of(node, [*first, last.this], by, descending=descending)
    if node.name in _ALWAYS:
        return _of(node, node.expressions, (), descending=False)
    return None


def _of(
    node: exp.Anonymous, arguments: Sequence[exp.Expr], by: tuple[exp.Expr, ...], *, descending: bool
) -> OrderedCall:
    """A call over its arguments: the value, perhaps in DISTINCT, and constants."""
    value, *constants = arguments
    distinct = isinstance(value, exp.Distinct)
    if distinct:
        value, *more = value.expressions
        constants = [*more, *constants]
    return OrderedCall(_named(node), value, by, tuple(constants), descending, distinct)


def _within_group(node: exp.WithinGroup) -> OrderedCall:
    call = node.this
    by, descending = _order(node, node.expression)
    if isinstance(call, exp.Anonymous) and f"{call.name}{ORDERED}" in FUNCTIONS and call.expressions:
        return _of(call, call.expressions, by, descending=descending)
    if not isinstance(call, exp.Anonymous) or call.name not in FUNCTIONS or len(by) != 1:
        raise _refused(node, f"{sql_of(node)}: WITHIN GROUP")
    return OrderedCall(call.name, by[0], (), tuple(call.expressions), descending)


def _named(node: exp.Anonymous) -> str:
    name = f"{node.name}{ORDERED}"
    if name not in FUNCTIONS:
        line, column = position_of(node)
        known = ", ".join(each.removesuffix(ORDERED) for each in FUNCTIONS if each.endswith(ORDERED))
        raise InvalidQuery(f"{node.name} takes no ORDER BY", line=line, column=column, hint=f"it is for {known}")
    return name


def _order(node: exp.Expr, order: exp.Expr) -> tuple[tuple[exp.Expr, ...], bool]:
    down = {bool(item.args.get("desc")) for item in order.expressions}
    moved = any(bool(item.args.get("nulls_first")) is bool(item.args.get("desc")) for item in order.expressions)
    if len(down) > 1 or moved:
        raise _refused(node, "ORDER BY inside a call, in several directions or with NULLS at the other end,")
    return tuple(item.this for item in order.expressions), down == {True}


def _refused(node: exp.Expr, what: str) -> NotSupported:
    line, column = position_of(node)
    return NotSupported(f"{what} is not supported yet", line=line, column=column, hint="order all of it one way")
