"""Functions over numbers. An undefined DOUBLE is NaN or infinite (LN(-1), LN(0)), as in IEEE 754."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jobs.functions.scalars.contract import Scalar, Signature, Types, Written, common, count, numeric, takes
from jobs.functions.scalars.decimals import parts_in_duckdb, parts_in_spark
from jobs.model import types as t
from jobs.model.errors import InvalidQuery, TypeMismatch
from jobs.model.types import BaseType, SqlType

_DOUBLE = takes(t.DOUBLE, t.DOUBLE)


def _same(name: str, types: Types) -> tuple[Types, SqlType]:
    """One number; the result has its type."""
    count(name, types, 1, 1)
    numeric(name, 1, types[0])
    return types, t.DOUBLE if types[0].base is BaseType.NULL else types[0]


def _integers(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    for number, sql_type in enumerate(types, 1):
        if sql_type.base not in (BaseType.INT, BaseType.BIGINT, BaseType.NULL):
            raise TypeMismatch(f"argument {number} of {name} must be INT or BIGINT, not {sql_type}")
    return types, common(name, types)


def _whole(digits: int) -> Signature:
    """FLOOR and CEIL: the type stays, but a DECIMAL loses its fraction (and may gain a digit before the point)."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        count(name, types, 1, 1)
        numeric(name, 1, types[0])
        sql_type = types[0]
        if sql_type.base is BaseType.DECIMAL:
            return types, t.decimal(max(sql_type.precision - sql_type.scale + digits, 1), 0)
        return types, t.DOUBLE if sql_type.base is BaseType.NULL else sql_type

    return signature


def _round(name: str, types: Types) -> tuple[Types, SqlType]:
    """ROUND(x) is a whole number, BIGINT for a DOUBLE; ROUND(x, n) keeps the type."""
    count(name, types, 1, 2)
    if len(types) == 1:
        given, sql_type = _whole(1)(name, types)
        return given, t.BIGINT if sql_type == t.DOUBLE else sql_type
    numeric(name, 1, types[0])
    if types[1] != t.INT:
        raise TypeMismatch(f"argument 2 of {name} must be INT, not {types[1]}")
    return types, types[0]


def _rounded(arguments: Sequence[str]) -> str:
    """Half goes up, so -1.5 becomes -1; the engines' own ROUND takes it away from zero."""
    value, *rest = arguments
    digits = rest[0] if rest else "0"
    away = f"round({value}, {digits})"
    step = _power_of_ten(-_whole_literal(digits))
    # The share of a step that rounding cut off, in DOUBLE: one half, within the errors of DOUBLE.
    half = f"abs(CAST({value} - {away} AS DOUBLE) / {step} - 0.5) < 1e-9"
    return f"CASE WHEN {value} < 0 AND {half} THEN round({away} + {step}, {digits}) ELSE {away} END"


def _rounded_decimal(cut: str) -> Written:
    """The same of a DECIMAL, whose digits are all exact: `cut` is the text that cuts a negative one towards zero."""

    def write(arguments: Sequence[str]) -> str:
        value, digits = arguments[0], arguments[1] if len(arguments) > 1 else "0"
        away = f"round({value}, {digits})"
        place = _whole_literal(digits)
        if abs(place) >= t.MAX_PRECISION:
            return away
        half = _exactly("5" + "0" * (-place - 1) if place < 0 else f"0.{'0' * place}5")
        is_half = f"{value} < 0 AND {value} % {_exactly(_power_of_ten(-place))} = -{half}"
        return f"CASE WHEN {is_half} THEN {cut.format(value, digits)} ELSE {away} END"

    return write


def _exactly(number: str) -> str:
    """A positive number as a DECIMAL of no more digits than it has: with more, DuckDB would go on in DOUBLE."""
    digits = number.replace(".", "")
    scale = len(number.partition(".")[2])
    return f"CAST({number} AS DECIMAL({max(len(digits.lstrip('0')), scale, 1)}, {scale}))"


def _whole_literal(text: str) -> int:
    return int(text.replace(" ", ""))


def _power_of_ten(exponent: int) -> str:
    return "1" + "0" * exponent if exponent >= 0 else "0." + "0" * (-exponent - 1) + "1"


def _cut_spark(arguments: Sequence[str]) -> str:
    digits = "".join(f", {each}" for each in arguments[1:])
    return f"CASE WHEN {arguments[0]} < 0 THEN ceil({arguments[0]}{digits}) ELSE floor({arguments[0]}{digits}) END"


def _cut_double(arguments: Sequence[str], cut: str) -> str:
    """Cut as a decimal number, since 0.29 * 100 is less than 29; from 10^15 on nothing stands behind the point."""
    if len(arguments) == 1:
        return cut
    return f"CASE WHEN abs({arguments[0]}) < 1e15 THEN CAST({cut} AS DOUBLE) ELSE {arguments[0]} END"


def _cut_double_duckdb(arguments: Sequence[str]) -> str:
    if len(arguments) == 1:
        return f"trunc({arguments[0]})"
    return _cut_double(arguments, f"trunc(CAST(CAST({arguments[0]} AS VARCHAR) AS DECIMAL(38, 15)), {arguments[1]})")


def _logarithm(name: str, types: Types) -> tuple[Types, SqlType]:
    """LOG(x), natural; LOG(base, x)."""
    return takes(t.DOUBLE, *([t.DOUBLE] * min(max(len(types), 1), 2)))(name, types)


_LN = (
    "CASE WHEN {0} > 0 THEN ln({0}) WHEN {0} = 0 THEN CAST('-Infinity' AS DOUBLE)"
    " WHEN {0} IS NOT NULL THEN CAST('NaN' AS DOUBLE) END"
)


def _logarithm_text(arguments: Sequence[str]) -> str:
    if len(arguments) == 1:
        return _LN.format(*arguments)
    base, value = arguments
    there = f"{value} IS NOT NULL AND {base} IS NOT NULL"
    return (
        f"CASE WHEN {base} > 0 AND {base} <> 1 THEN ({_LN.format(value)}) / ln({base})"
        f" WHEN {there} THEN CAST('NaN' AS DOUBLE) END"
    )


def _bounded(function: str) -> str:
    """ACOS, ASIN: outside of -1 … 1 there is no angle."""
    return (
        f"CASE WHEN {{0}} BETWEEN -1 AND 1 THEN {function}({{0}}) WHEN {{0}} IS NOT NULL THEN CAST('NaN' AS DOUBLE) END"
    )


_EARTH = {"km": 6371, "miles": 3959}
"""Radius of the earth, as in ksqlDB."""


def _distance(name: str, types: Types) -> tuple[Types, SqlType]:
    return takes(t.DOUBLE, *([t.DOUBLE] * 4), t.VARCHAR, optional=1)(name, types)


def _distance_text(arguments: Sequence[str]) -> str:
    """Haversine."""
    lat1, lon1, lat2, lon2, *unit = arguments
    radius = _radius(unit[0].strip("'") if unit else "km")
    squares = (
        f"power(sin(radians({lat2} - ({lat1})) / 2), 2)"
        f" + power(sin(radians({lon2} - ({lon1})) / 2), 2) * cos(radians({lat1})) * cos(radians({lat2}))"
    )
    return f"2 * asin(sqrt({squares})) * {radius}"


def _radius(unit: str) -> int:
    name = unit.lower()
    found = [radius for key, radius in _EARTH.items() if name and (key.startswith(name) or name.startswith(key[:2]))]
    if not found:
        raise InvalidQuery(f"{unit!r} is not a unit of distance", hint="'KM' or 'MILES'")
    return found[0]


def _check_unit(literals: Sequence[str | None]) -> None:
    for unit in literals[4:]:
        _radius(unit or "")


def _nothing(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 0, 0)
    return (), t.DOUBLE


PARTS: Final = t.struct(("whole", t.decimal(38, 0)), ("rest", t.decimal(38, 38)))
"""The type of the parts of a DECIMAL, before the point and behind it, both of its sign."""


def _parts(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 3, 3)
    if types[0].base is not BaseType.DECIMAL:
        raise TypeMismatch(f"argument 1 of {name} must be a DECIMAL, not {types[0]}")
    return types, PARTS


NUMBERS = (
    Scalar("DECIMAL_PARTS", _parts, parts_in_spark, parts_in_duckdb, hidden=True),
    Scalar("ABS", _same, "abs"),
    # NaN has no sign: 0, as in ksqlDB.
    Scalar(
        "SIGN",
        takes(t.INT, t.DOUBLE),
        "CASE WHEN isnan({0}) THEN 0 ELSE CAST(sign({0}) AS INT) END",
        "CAST(sign({0}) AS INT)",
    ),
    Scalar("FLOOR", _whole(1), "floor", exact=True),
    Scalar("CEIL", _whole(1), "ceil", aliases=("CEILING",), exact=True),
    Scalar("ROUND", _round, _rounded, exact=True, constant=(1,), instead=((BaseType.DECIMAL, "ROUND_OF_DECIMAL"),)),
    Scalar(
        "ROUND_OF_DECIMAL",
        _round,
        _rounded_decimal("ceil({0}, {1})"),
        _rounded_decimal("trunc({0}, {1})"),
        exact=True,
        constant=(1,),
        hidden=True,
    ),
    Scalar(
        "TRUNC",
        _round,
        _cut_spark,
        "trunc",
        aliases=("TRUNCATE",),
        exact=True,
        constant=(1,),
        instead=((BaseType.DOUBLE, "TRUNC_OF_DOUBLE"),),
    ),
    Scalar(
        "TRUNC_OF_DOUBLE",
        _round,
        lambda arguments: _cut_double(arguments, _cut_spark(arguments)),
        _cut_double_duckdb,
        exact=True,
        constant=(1,),
        hidden=True,
    ),
    Scalar("SQRT", _DOUBLE, "CASE WHEN {0} >= 0 THEN sqrt({0}) WHEN {0} IS NOT NULL THEN CAST('NaN' AS DOUBLE) END"),
    Scalar("CBRT", _DOUBLE, "cbrt"),
    Scalar("POWER", takes(t.DOUBLE, t.DOUBLE, t.DOUBLE), "power"),
    Scalar("EXP", _DOUBLE, "exp"),
    Scalar("LN", _DOUBLE, _LN),
    Scalar("LOG", _logarithm, _logarithm_text),
    *(Scalar(name, _DOUBLE, name.lower()) for name in ("SIN", "COS", "TAN", "ATAN", "SINH", "COSH", "TANH")),
    *(Scalar(name, _DOUBLE, name.lower()) for name in ("DEGREES", "RADIANS")),
    *(Scalar(name, _DOUBLE, _bounded(name.lower())) for name in ("ACOS", "ASIN")),
    Scalar("COT", _DOUBLE, "CASE WHEN {0} = 0 THEN CAST('Infinity' AS DOUBLE) ELSE 1 / tan({0}) END"),
    Scalar("ATAN2", takes(t.DOUBLE, t.DOUBLE, t.DOUBLE), "atan2"),
    Scalar("PI", _nothing, "pi"),
    Scalar("GEO_DISTANCE", _distance, _distance_text, constant=(4,), check=_check_unit),
    # Division of integers, towards zero; by zero it is NULL.
    Scalar("DIV", _integers, "(({0}) div nullif({1}, 0))", "(({0}) // nullif({1}, 0))", exact=True, hidden=True),
    # Before a CAST to a whole number: Spark's CAST cuts the fraction, DuckDB's rounds it.
    Scalar("CUT", _same, "({0})", "trunc({0})", hidden=True),
)
