"""The expressions of generated views: a small tree of their own, and its text in the language.

The second oracle (`evaluate`) gives their values from this tree; nothing of it comes from the project's parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.properties.paths.values import BIGINT, DOUBLE, INT, VARCHAR, is_decimal


@dataclass(frozen=True)
class Column:
    """A column of one input of a query."""

    alias: str
    name: str
    type: str

    @property
    def sql(self) -> str:
        return f"{self.alias}.{self.name}"


@dataclass(frozen=True)
class Constant:
    """A literal: a whole number, a text, TRUE, FALSE; or NULL of a type."""

    value: Any
    type: str


@dataclass(frozen=True)
class Call:
    """An operator or function applied to arguments. `operator` is a key of `TEXTS`."""

    operator: str
    arguments: tuple[Expression, ...]
    type: str


Expression = Column | Constant | Call

TEXTS: Final[dict[str, str]] = {
    **{sign: f"({{0}} {sign} {{1}})" for sign in ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "||")},
    "AND": "({0} AND {1})",
    "OR": "({0} OR {1})",
    "NOT": "(NOT {0})",
    "IS NULL": "({0} IS NULL)",
    "IS DISTINCT FROM": "({0} IS DISTINCT FROM {1})",
    "NEGATE": "(- {0})",
    "ABS": "ABS({0})",
    "CASE": "CASE WHEN {0} THEN {1} ELSE {2} END",
    "COALESCE": "COALESCE({0}, {1})",
    "NULLIF": "NULLIF({0}, {1})",
    "LENGTH": "LENGTH({0})",
    "CAST": "CAST({0} AS {type})",
}
"""What stands for each operator, in our language and in DuckDB alike."""

ARITHMETIC: Final = ("+", "-", "*", "/", "%")

Shown = Callable[[Expression], str | None]
"""What stands in place of an expression; None: its own text."""


def text(expression: Expression, shown: Shown = lambda _: None) -> str:
    """The text of an expression."""
    other = shown(expression)
    if other is not None:
        return other
    match expression:
        case Column():
            return expression.sql
        case Constant():
            return _constant(expression)
        case Call():
            parts = [text(each, shown) for each in expression.arguments]
            return TEXTS[expression.operator].format(*parts, type=expression.type)


def _constant(constant: Constant) -> str:
    match constant.value:
        case None:
            return f"CAST(NULL AS {constant.type})"
        case bool():
            return "TRUE" if constant.value else "FALSE"
        case str():
            return "'" + constant.value.replace("'", "''") + "'"
        case int() if constant.value < 0:
            return f"(- {-constant.value})"
        case _:
            return str(constant.value)


def parts_of(expression: Expression) -> Iterator[Expression]:
    """The expression and all inside it."""
    yield expression
    if isinstance(expression, Call):
        for each in expression.arguments:
            yield from parts_of(each)


def terms_of(condition: Expression | None) -> list[Expression]:
    """What stands between the ANDs of a condition."""
    if isinstance(condition, Call) and condition.operator == "AND":
        return [term for each in condition.arguments for term in terms_of(each)]
    return [] if condition is None else [condition]


def columns_of(expression: Expression) -> set[Column]:
    return {each for each in parts_of(expression) if isinstance(each, Column)}


def can_fail(expression: Expression) -> bool:
    """True if there are values on which some part of it fails."""
    return any(_fails_itself(each) for each in parts_of(expression))


def is_sure(term: Expression) -> bool:
    """True of a term that fails on no row although something in it can: what is divided by 3 has a value."""
    return all(
        isinstance(each, Call) and each.operator in ("/", "%") and _is_safe(each.arguments[1])
        for each in parts_of(term)
        if _fails_itself(each)
    )


def _is_safe(divisor: Expression) -> bool:
    return isinstance(divisor, Constant) and divisor.value not in (None, 0, -1)


def _fails_itself(expression: Expression) -> bool:
    if not isinstance(expression, Call):
        return False
    match expression.operator:
        case "/" | "%":
            return True
        case "+" | "-" | "*" | "NEGATE" | "ABS":
            return expression.type != DOUBLE
        case "CAST":
            return (expression.arguments[0].type, expression.type) not in NEVER_FAILS
    return False


NEVER_FAILS: Final = {(INT, BIGINT), (INT, DOUBLE), (BIGINT, DOUBLE), (INT, VARCHAR), (BIGINT, VARCHAR)}
"""Conversions that take every value."""


def is_whole(kind: str) -> bool:
    return kind in (INT, BIGINT)


def is_number(kind: str) -> bool:
    return is_whole(kind) or kind == DOUBLE or is_decimal(kind)
