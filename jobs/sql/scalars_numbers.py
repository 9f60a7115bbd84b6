"""Functions over numbers. Where a result does not exist (the logarithm of -1), it is NULL."""

from __future__ import annotations

from jobs.errors import TypeMismatch
from jobs.sql import types as t
from jobs.sql.scalars import Scalar, Signature, Types, common, count, numeric, takes
from jobs.sql.types import Kind, SqlType

_DOUBLE = takes(t.DOUBLE, t.DOUBLE)


def _same(name: str, types: Types) -> tuple[Types, SqlType]:
    """One number, whose type the result has."""
    count(name, types, 1, 1)
    numeric(name, 1, types[0])
    return types, t.DOUBLE if types[0].kind is Kind.NULL else types[0]


def _integers(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    for number, kind in enumerate(types, 1):
        if kind.kind not in (Kind.INT, Kind.BIGINT, Kind.NULL):
            raise TypeMismatch(f"argument {number} of {name} must be INT or BIGINT, not {kind}")
    return types, common(name, types)


def _whole(digits: int) -> Signature:
    """FLOOR and CEIL: the type stays, but a DECIMAL loses its fraction (and may gain a digit before the point)."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, 1, 1)
        numeric(name, 1, types[0])
        kind = types[0]
        if kind.kind is Kind.DECIMAL:
            return types, t.decimal(max(kind.precision - kind.scale + digits, 1), 0)
        return types, t.DOUBLE if kind.kind is Kind.NULL else kind

    return signature


def _round(name: str, types: Types) -> tuple[Types, SqlType]:
    """ROUND(x) is a whole number, BIGINT for a DOUBLE; ROUND(x, n) keeps the type."""
    count(name, types, 1, 2)
    if len(types) == 1:
        given, kind = _whole(1)(name, types)
        return given, t.BIGINT if kind == t.DOUBLE else kind
    numeric(name, 1, types[0])
    if types[1] != t.INT:
        raise TypeMismatch(f"argument 2 of {name} must be INT, not {types[1]}")
    return types, types[0]


NUMBERS = (
    Scalar("ABS", _same, "abs"),
    Scalar("SIGN", takes(t.INT, t.DOUBLE), "CAST(sign({0}) AS INT)"),
    Scalar("FLOOR", _whole(1), "floor", exact=True),
    Scalar("CEIL", _whole(1), "ceil", aliases=("CEILING",), exact=True),
    # Half goes away from zero, as in both engines; ksqlDB rounds half up, which differs below zero.
    Scalar("ROUND", _round, "round", exact=True, constant=(1,)),
    Scalar("SQRT", _DOUBLE, "sqrt(CASE WHEN {0} >= 0 THEN {0} END)"),
    Scalar("POWER", takes(t.DOUBLE, t.DOUBLE, t.DOUBLE), "power"),
    Scalar("EXP", _DOUBLE, "exp"),
    Scalar("LN", _DOUBLE, "ln(CASE WHEN {0} > 0 THEN {0} END)"),
    # Division of integers, towards zero; by zero it is NULL.
    Scalar("DIV", _integers, "(({0}) div nullif({1}, 0))", "(({0}) // nullif({1}, 0))", exact=True),
    # Before a CAST to a whole number: Spark's CAST cuts the fraction, DuckDB's rounds it.
    Scalar("CUT", _same, "({0})", "trunc({0})"),
)
