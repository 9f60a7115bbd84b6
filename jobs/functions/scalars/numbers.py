"""Functions over numbers. An undefined DOUBLE is NaN or infinite (LN(-1), LN(0)), as in IEEE 754."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from strandline.jobs.functions.scalars.contract import (
    Scalar,
    Signature,
    Types,
    Written,
    common,
    count,
    numeric,
    takes,
    takes_common,
)
from strandline.jobs.functions.scalars.decimals import parts_in_duckdb, parts_in_spark
from strandline.jobs.functions.scalars.domains import no_opposite
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType

_DOUBLE = takes(t.DOUBLE, t.DOUBLE)

_WHOLE_FROM: Final = repr(2.0**52)
"""From here on a DOUBLE has no fraction."""
_GREATEST: Final = "1.7976931348623157e308"
_MOST_STEPS: Final = 308
"""Powers of ten that are a DOUBLE."""
_BEYOND: Final = "nullif({}, 9223372036854775808e0)"
"""Spark takes 2^63 for the greatest BIGINT, which is one less."""
_WHOLE_DOUBLE: Final = {"spark": "CAST({} AS DOUBLE)", "duckdb": "{}"}
"""A whole number as FLOOR gives it, as a DOUBLE: Spark's FLOOR gives a BIGINT."""


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


def _rounded(value: str, digits: str, back: str) -> str:
    """A DOUBLE rounded to a step, half upwards, by operations that both engines round in the one way of IEEE 754.

    A number that is the DOUBLE nearest to a half of a step counts as that half: 0.285 is less than 0.285, and written
    so nevertheless. `back` is the engine's text of a whole number as a DOUBLE.
    """
    steps, size = _steps(value, digits)
    whole = back.format(f"floor({steps} + 5e-1)")
    up, down = size.format(f"{whole} + 5e-1"), size.format(f"{whole} - 5e-1")
    moved = f"{whole} + CASE WHEN {up} <= {value} THEN 1e0 WHEN {down} > {value} THEN -1e0 ELSE 0e0 END"
    return _where_fractions_are(value, steps, size.format(moved))


def _cut(value: str, digits: str, back: str) -> str:
    """A DOUBLE cut towards zero to a step: one that is the DOUBLE nearest to a step is that step, as 0.29 is."""
    size_of_value = f"abs({value})"
    steps, size = _steps(size_of_value, digits)
    whole = back.format(f"floor({steps})")
    up, down = size.format(f"{whole} + 1e0"), size.format(f"{whole}")
    moved = f"{whole} + CASE WHEN {up} <= {size_of_value} THEN 1e0 WHEN {down} > {size_of_value} THEN -1e0 ELSE 0e0 END"
    cut = size.format(moved)
    return _where_fractions_are(value, steps, f"CASE WHEN {value} < 0 THEN 0e0 - ({cut}) ELSE {cut} END")


def _steps(value: str, digits: str) -> tuple[str, str]:
    """The text of the steps in a DOUBLE, and the template of the DOUBLE that so many steps are."""
    place = _whole_literal(digits)
    if place == 0:
        return f"({value})", "({})"
    ten = f"1e{abs(place)}"
    return (f"(({value}) / {ten})", f"(({{}}) * {ten})") if place < 0 else (f"(({value}) * {ten})", f"(({{}}) / {ten})")


def _where_fractions_are(value: str, steps: str, rounded: str) -> str:
    """`rounded` where a DOUBLE can have a fraction of a step: beyond, and of NaN and the infinities, the value."""
    return f"CASE WHEN abs{steps} < {_WHOLE_FROM} THEN {rounded} ELSE {value} END"


def _to_step(rounded: Callable[[str, str, str], str], back: str) -> Written:
    """ROUND(x, n) and TRUNC(x, n) of a DOUBLE."""

    def write(arguments: Sequence[str]) -> str:
        value, digits = arguments
        place = _whole_literal(digits)
        if place > _MOST_STEPS:
            return f"({value})"
        if place < -_MOST_STEPS:
            return f"CASE WHEN abs({value}) <= {_GREATEST} THEN 0e0 ELSE {value} END"
        return rounded(value, digits, back)

    return write


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


def _rounding(dialect: str) -> Written:
    back = _WHOLE_DOUBLE[dialect]
    of_digits = _to_step(_rounded, back)

    def write(arguments: Sequence[str]) -> str:
        if len(arguments) > 1:
            return of_digits(arguments)
        whole = _rounded(arguments[0], "0", back)
        return _BEYOND.format(whole) if dialect == "spark" else whole

    return write


def _cutting(dialect: str) -> Written:
    of_digits = _to_step(_cut, _WHOLE_DOUBLE[dialect])

    def write(arguments: Sequence[str]) -> str:
        if len(arguments) > 1:
            return of_digits(arguments)
        # Spark's CAST to BIGINT, which comes next, cuts.
        return _BEYOND.format(arguments[0]) if dialect == "spark" else f"trunc({arguments[0]})"

    return write


def _logarithm(name: str, types: Types) -> tuple[Types, SqlType]:
    """LOG(x), natural; LOG(base, x)."""
    return takes(t.DOUBLE, *([t.DOUBLE] * min(max(len(types), 1), 2)))(name, types)


def _logarithm_text(arguments: Sequence[str]) -> str:
    return f"nearest_{'ln' if len(arguments) == 1 else 'log'}({', '.join(arguments)})"


_RADIAN, _DEGREE = "1.7453292519943295e-2", "5.729577951308232e1"
"""One degree in radians, one radian in degrees."""
_EARTH = {
    **dict.fromkeys(("", "km", "kilometer", "kilometers", "kilometre", "kilometres"), 6371),
    **dict.fromkeys(("mi", "mile", "miles"), 3959),
}
"""Radius of the earth in each unit, as in ksqlDB."""


def _distance(name: str, types: Types) -> tuple[Types, SqlType]:
    return takes(t.DOUBLE, *([t.DOUBLE] * 4), t.VARCHAR, optional=1)(name, types)


def _distance_text(arguments: Sequence[str]) -> str:
    """Haversine."""
    lat1, lon1, lat2, lon2, *unit = arguments
    radius = _radius(unit[0].strip("'") if unit else "km")
    half = f"{_RADIAN} / 2"
    squares = (
        f"nearest_power(nearest_sin(({lat2} - ({lat1})) * {half}), 2e0)"
        f" + nearest_power(nearest_sin(({lon2} - ({lon1})) * {half}), 2e0)"
        f" * nearest_cos(({lat1}) * {_RADIAN}) * nearest_cos(({lat2}) * {_RADIAN})"
    )
    inside = f"abs({lat1}) <= 90 AND abs({lat2}) <= 90 AND abs({lon1}) <= 180 AND abs({lon2}) <= 180"
    return f"CASE WHEN {inside} THEN 2 * nearest_asin(sqrt({squares})) * {radius} END"


def _radius(unit: str) -> int:
    found = _EARTH.get(unit.strip().lower())
    if found is None:
        raise InvalidQuery(f"{unit!r} is not a unit of distance", hint="'KM' or 'MILES'")
    return found


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
    # Of two INTs an INT, of BIGINTs a BIGINT.
    Scalar("BITS_APART", takes_common(2, 2), "({0} ^ {1})", "xor({0}, {1})", hidden=True),
    Scalar("BITS_DOWN", takes(t.BIGINT, t.BIGINT, t.INT), "shiftright({0}, {1})", "({0} >> {1})", hidden=True),
    # The bits that are set: of a negative INT among 32, of a BIGINT among 64.
    # Euclid's way, in Spark step by step: 91 are the most for two BIGINTs.
    Scalar(
        "GCD",
        takes(t.BIGINT, t.BIGINT, t.BIGINT),
        "aggregate(sequence(1, 92), named_struct('a', abs(CAST({0} AS DECIMAL(20, 0))), 'b', abs(CAST({1} AS"
        " DECIMAL(20, 0)))), (__s, __i) -> if(__s.b = 0, __s, named_struct('a', __s.b, 'b',"
        " CAST(__s.a % __s.b AS DECIMAL(20, 0)))), __s -> __s.a)",
        "gcd({0}, {1})",
        exact=True,
        fails=no_opposite,
    ),
    Scalar(
        "BIT_COUNT",
        takes(t.INT, t.BIGINT),
        "bit_count({0})",
        "CAST(bit_count({0}) AS INTEGER)",
        instead=((BaseType.INT, "BIT_COUNT_OF_INT"),),
    ),
    Scalar(
        "BIT_COUNT_OF_INT",
        takes(t.INT, t.INT),
        "bit_count(CAST({0} AS BIGINT) & 4294967295)",
        "CAST(bit_count({0}) AS INTEGER)",
        hidden=True,
    ),
    Scalar("DECIMAL_PARTS", _parts, parts_in_spark, parts_in_duckdb, hidden=True),
    Scalar("ABS", _same, "abs"),
    # Of a DECIMAL that `is_wide`: as text, since Spark's own round to 34 digits.
    Scalar(
        "OPPOSITE",
        _same,
        "CASE WHEN CAST({0} AS STRING) LIKE '-%' THEN substring(CAST({0} AS STRING), 2)"
        " ELSE concat('-', CAST({0} AS STRING)) END",
        "(-({0}))",
        exact=True,
        hidden=True,
    ),
    Scalar("MAGNITUDE", _same, "trim(LEADING '-' FROM CAST({0} AS STRING))", "abs({0})", exact=True, hidden=True),
    # NaN has no sign: 0, as in ksqlDB.
    Scalar(
        "SIGN",
        takes(t.INT, t.DOUBLE),
        "CASE WHEN isnan({0}) THEN 0 ELSE CAST(sign({0}) AS INT) END",
        "CAST(sign({0}) AS INT)",
    ),
    *(
        made
        for name, aliases in (("FLOOR", ()), ("CEIL", ("CEILING",)))
        for made in (
            Scalar(
                name,
                _whole(1),
                name.lower(),
                aliases=aliases,
                exact=True,
                instead=((BaseType.DOUBLE, f"{name}_OF_DOUBLE"),),
            ),
            # 0e0: zero has no sign.
            Scalar(
                f"{name}_OF_DOUBLE",
                _DOUBLE,
                f"CASE WHEN abs({{0}}) < {_WHOLE_FROM} THEN CAST({name.lower()}({{0}}) AS DOUBLE) ELSE {{0}} END",
                f"({name.lower()}({{0}}) + 0e0)",
                hidden=True,
            ),
        )
    ),
    Scalar(
        "ROUND",
        _round,
        "round",
        exact=True,
        constant=(1,),
        instead=((BaseType.DECIMAL, "ROUND_OF_DECIMAL"), (BaseType.DOUBLE, "ROUND_OF_DOUBLE")),
    ),
    Scalar(
        "ROUND_OF_DOUBLE",
        _round,
        _rounding("spark"),
        _rounding("duckdb"),
        exact=True,
        constant=(1,),
        hidden=True,
    ),
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
        _cutting("spark"),
        _cutting("duckdb"),
        exact=True,
        constant=(1,),
        hidden=True,
    ),
    Scalar("SQRT", _DOUBLE, "CASE WHEN {0} >= 0 THEN sqrt({0}) WHEN {0} IS NOT NULL THEN CAST('NaN' AS DOUBLE) END"),
    # Computed by ourselves, on both engines (`state_store.duckdb.elementary`): their own differ in last digits.
    *(
        Scalar(name, _DOUBLE, f"nearest_{name.lower()}")
        for name in (
            *("EXP", "LN", "CBRT", "SIN", "COS", "TAN", "COT", "ASIN", "ACOS", "ATAN", "SINH", "COSH", "TANH"),
        )
    ),
    *(Scalar(name, takes(t.DOUBLE, t.DOUBLE, t.DOUBLE), f"nearest_{name.lower()}") for name in ("POWER", "ATAN2")),
    Scalar("LOG", _logarithm, _logarithm_text),
    Scalar("DEGREES", _DOUBLE, f"(({{0}}) * {_DEGREE})"),
    Scalar("RADIANS", _DOUBLE, f"(({{0}}) * {_RADIAN})"),
    Scalar("PI", _nothing, "pi"),
    Scalar("GEO_DISTANCE", _distance, _distance_text, constant=(4,), check=_check_unit),
    # Division of integers, towards zero; by zero it is NULL.
    Scalar("DIV", _integers, "(({0}) div nullif({1}, 0))", "(({0}) // nullif({1}, 0))", exact=True, hidden=True),
    # Before a CAST to a whole number: Spark's CAST cuts the fraction, DuckDB's rounds it.
    Scalar("CUT", _same, "({0})", "trunc({0})", hidden=True),
    Scalar("CUT_OF_DOUBLE", _DOUBLE, _BEYOND.format("{0}"), "trunc({0})", hidden=True),
)
