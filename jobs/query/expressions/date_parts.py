"""EXTRACT(part FROM value), and the functions of one part: YEAR(at), MONTH(at), …

EXTRACT(YEAR FROM at)       PART_OF_DATE('year', at)
EXTRACT(MINUTE FROM clock)  (clock / 60000) % 60: TIME is milliseconds of the day
EXTRACT(EPOCH FROM at)      UNIX_TIMESTAMP(BEGIN_OF_UNIT('SECOND', at)) / 1000: division cuts, also before 1970
DATE_TRUNC('hour', at)      BEGIN_OF_UNIT('HOUR', at)
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.functions.scalars.time_parts import PARTS, PARTS_OF_TIME, UNITS
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.arithmetic import arithmetic, literal
from strandline.jobs.query.expressions.casts import converted
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.sql.trees import call

_SECONDS = "EPOCH"
DATE_PARTS = (*PARTS, _SECONDS)
"""The parts that EXTRACT knows."""


def constant_text(node: exp.Expr) -> str | None:
    """The text of a constant, in a CAST perhaps, as drivers write their parameters; empty for NULL, None for a value
    that is computed."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return ""
    return node.name if isinstance(node, exp.Literal) else None


def extracted(node: exp.Anonymous, typed: Infer) -> Typed:
    """EXTRACT(part, value), elaborated: an INT, for EPOCH a BIGINT.

    Raises:
        InvalidQuery: there is no such part, or the value has none of that kind.
        TypeMismatch: the value is no date or time.
    """
    part = constant_text(node.expressions[0]) if len(node.expressions) == 2 else None
    if part is None:
        raise InvalidQuery("EXTRACT is written EXTRACT(part FROM value)")
    part, value = part.upper(), typed(node.expressions[1])
    if not part:
        return converted(Typed(exp.Null(), t.NULL), t.INT)
    if part not in DATE_PARTS:
        raise InvalidQuery(f"EXTRACT has no part {part}", hint=f"one of {', '.join(DATE_PARTS)}")
    if value.type.base is BaseType.TIME:
        return _of_time(part, value, typed)
    if value.type.base is BaseType.DATE:
        value = converted(value, t.TIMESTAMP)
    if value.type.base is not BaseType.TIMESTAMP:
        raise TypeMismatch(f"EXTRACT takes a DATE, TIME or TIMESTAMP, not {value.type}")
    if part == _SECONDS:
        second = typed(call("BEGIN_OF_UNIT", exp.Literal.string("SECOND"), value.expression))
        millis = Typed(call("UNIX_TIMESTAMP", second.expression), t.BIGINT)
        return arithmetic(exp.Div, millis, _whole(1_000))
    return typed(call("PART_OF_DATE", exp.Literal.string(part), value.expression))


def truncated(node: exp.Anonymous, typed: Infer) -> Typed:
    """DATE_TRUNC('unit', value), elaborated: the TIMESTAMP at which the unit began.

    Raises:
        InvalidQuery: there is no such unit.
        TypeMismatch: the value is no DATE or TIMESTAMP.
    """
    unit = constant_text(node.expressions[0]) if len(node.expressions) == 2 else None
    if unit is None:
        raise InvalidQuery("DATE_TRUNC is written DATE_TRUNC('hour', value)")
    unit, value = unit.upper(), typed(node.expressions[1])
    if not unit:
        return converted(Typed(exp.Null(), t.NULL), t.TIMESTAMP)
    if unit not in UNITS:
        raise InvalidQuery(f"DATE_TRUNC has no unit {unit}", hint=f"one of {', '.join(UNITS)}")
    if value.type.base is BaseType.DATE:
        value = converted(value, t.TIMESTAMP)
    if value.type.base is not BaseType.TIMESTAMP:
        raise TypeMismatch(f"DATE_TRUNC takes a DATE or TIMESTAMP, not {value.type}")
    return typed(call("BEGIN_OF_UNIT", exp.Literal.string(unit), value.expression))


def _of_time(part: str, value: Typed, typed: Infer) -> Typed:
    if part not in PARTS_OF_TIME:
        raise InvalidQuery(f"a TIME has no {part}", hint=f"one of {', '.join(PARTS_OF_TIME)}")
    return typed(call("PART_OF_TIME", exp.Literal.string(part), value.expression))


def _whole(number: int) -> Typed:
    return literal(exp.Literal(this=str(number), is_string=False))
