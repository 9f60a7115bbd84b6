"""The second oracle: what an expression gives on a row, in plain Python, and whether it fails there.

It is what docs/sql.md says, written once more from the generator's own tree: it shares no code with the project, and
none with DuckDB. An expression that is not evaluated does not fail: of AND, OR, CASE and COALESCE only what is needed.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, Final

from tests.properties.paths.expressions import Call, Column, Constant, Expression
from tests.properties.paths.values import BIGINT, BOOLEAN, DATE, DOUBLE, INT, LARGEST, VARCHAR, digits_of, is_decimal

Row = Mapping[Column, Any]

_WIDE: Final = Context(prec=120, rounding=ROUND_HALF_UP)
_TRUE: Final = ("t", "tr", "tru", "true", "y", "ye", "yes")


class Fails(Exception):
    """The expression fails on the row."""


def value_of(expression: Expression, row: Row, *, nulls: bool = False) -> Any:
    """The value of an expression on a row.

    Args:
        nulls: what fails is NULL, and what stands around it goes on with that (`ERRORS = 'null'`).

    Raises:
        Fails: some part that is evaluated fails.
    """
    if isinstance(expression, Column):
        return row[expression]
    if isinstance(expression, Constant):
        return expression.value

    def part(place: int) -> Any:
        return value_of(expression.arguments[place], row, nulls=nulls)

    if expression.operator in _LAZY:
        return _LAZY[expression.operator](part)
    values = [part(place) for place in range(len(expression.arguments))]
    if expression.operator in _OF_NULLS:
        return _OF_NULLS[expression.operator](*values)
    if None in values:
        return None
    try:
        return _strict(expression, values)
    except Fails:
        if nulls:
            return None
        raise


def _and(part: Callable[[int], Any]) -> bool | None:
    left = part(0)
    if left is False:
        return False
    right = part(1)
    return False if right is False else None if left is None or right is None else True


def _or(part: Callable[[int], Any]) -> bool | None:
    left = part(0)
    if left is True:
        return True
    right = part(1)
    return True if right is True else None if left is None or right is None else False


def _case(part: Callable[[int], Any]) -> Any:
    return part(1) if part(0) is True else part(2)


def _coalesce(part: Callable[[int], Any]) -> Any:
    first = part(0)
    return part(1) if first is None else first


_LAZY: Final[Mapping[str, Callable[[Callable[[int], Any]], Any]]] = {
    "AND": _and,
    "OR": _or,
    "CASE": _case,
    "COALESCE": _coalesce,
}


def _null_if(value: Any, other: Any) -> Any:
    return None if value is not None and other is not None and _compared(value, other) == 0 else value


_OF_NULLS: Final[Mapping[str, Callable[..., Any]]] = {
    "IS NULL": lambda value: value is None,
    "IS DISTINCT FROM": lambda left, right: not _same(left, right),
    "NULLIF": _null_if,
}
"""Operators that say something of NULL too."""


def _strict(call: Call, values: list[Any]) -> Any:
    """The value of an operator whose arguments are all there."""
    match call.operator:
        case "+" | "-" | "*" | "/" | "%":
            return _arithmetic(call, *values)
        case "NEGATE":
            return _held(-values[0], call.type)
        case "ABS":
            return _held(abs(values[0]), call.type)
        case "=" | "<>" | "<" | "<=" | ">" | ">=":
            return _COMPARISONS[call.operator](_compared(*values))
        case "NOT":
            return not values[0]
        case "||":
            return values[0] + values[1]
        case "LENGTH":
            return len(values[0])
        case "CAST":
            return _cast(values[0], call.arguments[0].type, call.type)
    raise AssertionError(call.operator)


_COMPARISONS: Final[Mapping[str, Callable[[int], bool]]] = {
    "=": lambda sign: sign == 0,
    "<>": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


def _same(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    return _compared(left, right) == 0


def _compared(left: Any, right: Any) -> int:
    """-1, 0 or 1; NaN is equal to itself and greater than any other number; texts by their code points."""
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if math.isnan(left) or math.isnan(right):
            return int(math.isnan(left)) - int(math.isnan(right))
    return int(left > right) - int(left < right)


def _arithmetic(call: Call, left: Any, right: Any) -> Any:
    if call.operator in ("/", "%") and right == 0:
        raise Fails
    if call.type == DOUBLE:
        return _of_doubles(call.operator, float(left), float(right))
    if is_decimal(call.type):
        return _of_decimals(call, Decimal(left), Decimal(right))
    match call.operator:
        case "+":
            made = left + right
        case "-":
            made = left - right
        case "*":
            made = left * right
        case "/":
            made = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        case _:
            made = abs(left) % abs(right) * (-1 if left < 0 else 1)
    return _held(made, call.type)


def _of_doubles(operator: str, left: float, right: float) -> float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
    return math.nan if math.isinf(left) or math.isnan(right) else math.fmod(left, right)


def _of_decimals(call: Call, left: Decimal, right: Decimal) -> Decimal:
    with localcontext(_WIDE):
        match call.operator:
            case "+":
                made = left + right
            case "-":
                made = left - right
            case "*":
                made = left * right
            case "/":
                made = left / right
            case _:
                made = left % right
    return Decimal(_held(made, call.type))


def _held(value: Any, kind: str) -> Any:
    """The value, in the type.

    Raises:
        Fails: it is out of its range.
    """
    if kind in LARGEST and not -LARGEST[kind] - 1 <= value <= LARGEST[kind]:
        raise Fails
    if is_decimal(kind):
        precision, scale = digits_of(kind)
        value = Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_WIDE)
        if abs(value) >= Decimal(10) ** (precision - scale):
            raise Fails
    return value


def _cast(value: Any, source: str, target: str) -> Any:
    if source == VARCHAR:
        return _of_text(value, target)
    if target == VARCHAR:
        return str(value)
    if target == DOUBLE:
        return float(value)
    if is_decimal(target):
        if isinstance(value, float) and not math.isfinite(value):
            raise Fails
        return _held(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), target)
    if isinstance(value, float) and not math.isfinite(value):
        raise Fails
    return _held(int(value), target)  # towards zero


def _of_text(value: str, target: str) -> Any:
    text = value.strip(" ")
    if target in (INT, BIGINT):
        if not re.fullmatch("[+-]?[0-9]+", text):
            raise Fails
        return _held(int(text), target)
    if target == BOOLEAN:
        return value.lower() in _TRUE
    if target == DATE:
        found = re.fullmatch("([0-9]{4})(?:-([0-9]{1,2}))?(?:-([0-9]{1,2}))?", value)
        try:
            return dt.date(*(int(part or 1) for part in found.groups())) if found is not None else _fail()
        except ValueError:
            _fail()
    raise AssertionError(target)


def _fail() -> Any:
    raise Fails
