"""Aggregate calls with an order of their own, taken apart.

ARRAY_AGG(x ORDER BY y DESC)                    value x, by y, downwards
STRING_AGG(k, ', ' ORDER BY y)                  value k, by y, constants ', '
PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)  value x, constants 0.5
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from jobs.functions.aggregates.ordered import ORDERED
from jobs.functions.aggregates.registry import FUNCTIONS
from jobs.model.errors import InvalidQuery, NotSupported
from jobs.sql.dialect import position_of, sql_of

# Functions that always have an order: where none is written, that of the values.
_ALWAYS = ("STRING_AGG",)


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
        value, *constants = [*first, last.this]
        if isinstance(value, exp.Distinct):
            raise _refused(node, f"DISTINCT with ORDER BY in {node.name}")
        by, descending = _order(node, last)
        return OrderedCall(_named(node), value, by, tuple(constants), descending)
    if node.name in _ALWAYS:
        value, *constants = node.expressions
        return OrderedCall(_named(node), value, (), tuple(constants), False)
    return None


def _within_group(node: exp.WithinGroup) -> OrderedCall:
    call = node.this
    by, descending = _order(node, node.expression)
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
