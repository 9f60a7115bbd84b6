"""The contract of a scalar function: its name, the types it takes and gives, and its text in each engine.

A new function is one entry in one of the modules beside this one. An engine's text is a template: `{0}`, `{1}` are the
arguments as that engine writes them, `{args}` all of them, separated by commas. Where the text depends on how many
arguments there are, or on the value of a literal, it is a function of the arguments' texts.

A template that needs a lambda of its own names its variables `__x`, `__y`, …: no column and no variable of the language
begins so, so that an argument's text can stand inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.types import BaseType, SqlType, common_type

TOTAL = "total"
"""The mark on a node that has a value for each value of its operands: -x and ABS(x), unless x is an INT or BIGINT, and
what `total` says."""


def total(sum_of_times: exp.Expression) -> exp.Expression:
    """Mark arithmetic of the planner's own over times and durations: no row can fail by it.

    A TIMESTAMP is less than 2^54 ms from 1970, and `jobs.sql.time_clauses.LONGEST` bounds a duration.
    """
    for node in sum_of_times.walk(prune=lambda each: isinstance(each, exp.Func)):
        if isinstance(node, exp.Binary | exp.Paren):
            node.meta[TOTAL] = True
    return sum_of_times


Types = tuple[SqlType, ...]
Signature = Callable[[str, Types], tuple[Types, SqlType]]
"""(function's name, types of the arguments) -> (types to cast the arguments to, type of the result)."""
Written = Callable[[Sequence[str]], str]
Template = str | Written
"""The text of a call in an engine, given the texts of the arguments."""


Fails = Callable[[Sequence[exp.Expression]], exp.Expression | None]
"""The condition under which a call with those arguments has no value; None when it always has."""


@dataclass(frozen=True)
class Scalar:
    """A scalar function.

    Attributes:
        name: upper case.
        signature: raises TypeMismatch when the arguments do not fit.
        spark: template of Spark's text.
        duckdb: template of DuckDB's text; the same as Spark's when not given.
        aliases: other names of the same function.
        exact: the engines give other types, so the result is cast to the signature's.
        constant: arguments (from 0) that must be literals.
        instead: the function that is called in its place when the first argument is of that type.
        check: raises InvalidQuery for a literal that the function does not know; it is given the values of the
            arguments, None for those that are no literals.
        alike: literals among the arguments take the type of the others.
        hidden: a building block of other functions; not meant for users, and harmless when they call it.
        fails: the condition on the arguments under which the call fails, from `jobs.functions.scalars.domains`; it
            never fails itself. None: the function has a value, or NULL, for all arguments.
        fault: what such a call fails by.
    """

    name: str
    signature: Signature
    spark: Template
    duckdb: Template | None = None
    aliases: tuple[str, ...] = ()
    exact: bool = False
    constant: tuple[int, ...] = ()
    instead: tuple[tuple[BaseType, str], ...] = ()
    check: Callable[[Sequence[str | None]], None] | None = None
    alike: bool = False
    hidden: bool = False
    fails: Fails | None = None
    fault: RowFault = RowFault.OUT_OF_RANGE

    def write(self, dialect: str, arguments: Sequence[str]) -> str:
        """The call as SQL text of one engine."""
        template = self.duckdb if dialect == "duckdb" and self.duckdb is not None else self.spark
        if not isinstance(template, str):
            return template(arguments)
        if "{" in template:
            return template.format(*arguments, args=", ".join(arguments))
        return f"{template}({', '.join(arguments)})"


def takes(result: SqlType, *parameters: SqlType, optional: int = 0) -> Signature:
    """A fixed list of parameters, of which the last `optional` may be left out. Arguments widen to them."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, len(parameters) - optional, len(parameters))
        return tuple(_fits(name, i, a, p) for i, (a, p) in enumerate(zip(types, parameters, strict=False))), result

    return signature


def takes_no_clock(result: SqlType, parameter: SqlType) -> Signature:
    """One argument; without it the function would be about the clock's time, which no view can be maintained from."""
    of_value = takes(result, parameter)

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        if not types:
            raise InvalidQuery(
                f"{name}() is the time of the clock, and a view gives the same rows whenever it is computed",
                hint="use rowtime, the time of the event",
            )
        return of_value(name, types)

    return signature


def takes_any_number(result: SqlType, parameter: SqlType, least: int) -> Signature:
    """`least` or more arguments of one type."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, least, None)
        return tuple(_fits(name, i, a, parameter) for i, a in enumerate(types)), result

    return signature


def takes_common(
    least: int, most: int | None = None, *, result: SqlType | None = None, nested: bool = True
) -> Signature:
    """Arguments of one common type, whichever it is, that is also the result's unless another is given."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, least, most)
        shared = common(name, types)
        if shared.is_nested and not nested:
            raise TypeMismatch(f"{name} does not take {shared}")
        return (shared,) * len(types), result or shared

    return signature


def common(what: str, types: Sequence[SqlType]) -> SqlType:
    """The type that all of `types` fit into.

    Raises:
        TypeMismatch: there is none; the message names `what` needs it.
    """
    shared = types[0]
    for other in types[1:]:
        wider = common_type(shared, other)
        if wider is None:
            raise TypeMismatch(
                f"{what}: {shared} and {other} have no common type", hint="convert one with CAST(… AS …)"
            )
        shared = wider
    return shared


def count(name: str, types: Types, least: int, most: int | None) -> None:
    """Check how many arguments there are.

    Raises:
        TypeMismatch: too few or too many.
    """
    if len(types) < least or (most is not None and len(types) > most):
        wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise TypeMismatch(f"{name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(types)}")


def numeric(name: str, number: int, sql_type: SqlType) -> None:
    """Check that argument `number` (from 1) is a number.

    Raises:
        TypeMismatch: it is not.
    """
    if not sql_type.is_numeric and sql_type.base is not BaseType.NULL:
        raise TypeMismatch(f"argument {number} of {name} must be a number, not {sql_type}")


def _fits(name: str, index: int, given: SqlType, wanted: SqlType) -> SqlType:
    if common_type(given, wanted) != wanted:
        raise TypeMismatch(f"argument {index + 1} of {name} must be {wanted}, not {given}", hint=f"CAST(… AS {wanted})")
    return wanted


# String literals as each engine writes them, for templates whose text depends on a literal's value.

Dialect = Literal["spark", "duckdb"]
_ESCAPED = {"spark": re.compile(r"\\(.)", re.DOTALL), "duckdb": re.compile(r"'(')")}


def quoted(text: str, dialect: str) -> str:
    """`text` as a literal."""
    if dialect == "spark":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "''") + "'"


def unquoted(literal: str, dialect: str) -> str | None:
    """The value of a literal; None when the text is anything else than one literal."""
    if len(literal) < 2 or literal[0] != "'" or literal[-1] != "'":
        return None
    text = _ESCAPED[dialect].sub(r"\1", literal[1:-1])
    return text if quoted(text, dialect) == literal else None
