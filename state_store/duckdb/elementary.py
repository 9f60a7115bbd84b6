"""Elementary functions of DOUBLE that are the same on every engine and machine: the DOUBLE nearest to the exact value.

    nearest_ln(10.0)     2.302585092994046
    nearest_sin(1e22)    -0.8522008497671888

The libraries of C and of Java, and their versions, differ in last digits; a row that one engine inserts and the other
takes away would stay. So both engines call these, which do nothing but what IEEE 754 rounds in one way: + - * / and
the square root of arrays. A value is a pair (high, low), some 100 bits of the sum high + low, made of a table and a
polynomial; rounded once at the end it is the nearest DOUBLE (where the exact value is all but half way between two,
within 2^-90, either of them). The tables are computed by `decimal` when a function is first called.

docs/functions.md says what a call costs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]
"""high + low, of which low is at most half of the last digit of high."""

PREFIX: Final = "nearest_"
"""With which the names of the functions begin, on both engines."""

_DIGITS: Final = 60
"""Of the decimal numbers that tables are made of: twice those of a pair."""
_HALF_PI_DIGITS: Final = 420
"""Of pi / 2, to reduce the largest DOUBLE: 309 before the point, 110 behind it."""


# --- pairs


def _two_sum(a: Floats, b: Floats) -> Pair:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fast_two_sum(a: Floats, b: Floats) -> Pair:
    """The same where |a| >= |b|."""
    total = a + b
    return total, b - (total - a)


def _split(a: Floats) -> Pair:
    """Halves of 26 bits."""
    large = a * 134217729.0
    high = large - (large - a)
    return high, a - high


def _two_product(a: Floats, b: Floats) -> Pair:
    product = a * b
    (a1, a2), (b1, b2) = _split(a), _split(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _add(x: Pair, y: Pair) -> Pair:
    high, low = _two_sum(x[0], y[0])
    rest, least = _two_sum(x[1], y[1])
    high, low = _fast_two_sum(high, low + rest)
    return _fast_two_sum(high, low + least)


def _times(x: Pair, y: Pair) -> Pair:
    high, low = _two_product(x[0], y[0])
    return _fast_two_sum(high, low + (x[0] * y[1] + x[1] * y[0]))


def _over(x: Pair, y: Pair) -> Pair:
    first = x[0] / y[0]
    rest = _add(x, _negative(_times(y, _pair(first))))
    second = rest[0] / y[0]
    rest = _add(rest, _negative(_times(y, _pair(second))))
    high, low = _fast_two_sum(first, second)
    return _fast_two_sum(high, low + rest[0] / y[0])


def _root(x: Pair) -> Pair:
    """The square root; of zero, zero."""
    root = np.sqrt(x[0])
    rest = _add(x, _negative(_two_product(root, root)))
    return _fast_two_sum(root, np.where(root > 0, rest[0] / np.where(root > 0, root + root, 1.0), 0.0))


def _pair(high: Floats) -> Pair:
    return high, np.zeros_like(high)


def _negative(x: Pair) -> Pair:
    return -x[0], -x[1]


def _choice(condition: NDArray[np.bool_], x: Pair, y: Pair) -> Pair:
    return np.where(condition, x[0], y[0]), np.where(condition, x[1], y[1])


def _scaled(x: Pair, factor: Floats | float) -> Pair:
    """Times a power of two."""
    return x[0] * factor, x[1] * factor


def _constant(number: Decimal) -> Pair:
    high = float(number)
    return np.asarray(high), np.asarray(float(number - Decimal(high)))


def _table(numbers: Iterable[Decimal]) -> tuple[Floats, Floats]:
    pairs = [_constant(number) for number in numbers]
    return np.array([high for high, _ in pairs]), np.array([low for _, low in pairs])


def _polynomial(x: Pair, coefficients: Sequence[Decimal], exact: int) -> Pair:
    """c[0] + x·(c[1] + x·(…)), of which the terms from `exact` on are too small for the digits of a pair."""
    plain = float(coefficients[-1]) + np.zeros_like(x[0])
    for each in reversed(coefficients[exact:-1]):
        plain = plain * x[0] + float(each)
    total = _pair(plain)
    for each in reversed(coefficients[:exact]):
        total = _add(_times(total, x), _constant(each))
    return total


# --- decimal numbers


def _half_pi(digits: int) -> Decimal:
    """pi / 2, by Machin: pi / 4 = 4·atan(1/5) - atan(1/239)."""
    with localcontext() as context:
        context.prec = digits + 10

        def of_reciprocal(n: int) -> Decimal:
            power = total = Decimal(1) / n
            place = 1
            while abs(power) > Decimal(10) ** -(digits + 8):
                power /= -n * n
                place += 2
                total += power / place
            return total

        return (16 * of_reciprocal(5) - 4 * of_reciprocal(239)) / 2


def _decimal_sum(x: Decimal, first: Decimal, step: Callable[[int], int]) -> Decimal:
    """first + first·x²/step(1) + first·x²·x²/(step(1)·step(2)) + …"""
    term = total = first
    place = 0
    while term and abs(term) > Decimal(10) ** -(_DIGITS + 5):
        place += 1
        term = term * x * x / step(place)
        total += term
    return total


def _decimal_sin(x: Decimal) -> Decimal:
    return _decimal_sum(x, x, lambda n: -(2 * n) * (2 * n + 1))


def _decimal_cos(x: Decimal) -> Decimal:
    return _decimal_sum(x, Decimal(1), lambda n: -(2 * n) * (2 * n - 1))


def _decimal_atan(x: Decimal) -> Decimal:
    for _ in range(4):
        x = x / (1 + (1 + x * x).sqrt())
    power = total = x
    place = 1
    while power and abs(power) > Decimal(10) ** -(_DIGITS + 5):
        power = -power * x * x
        place += 2
        total += power / place
    return 16 * total


def _factorials(first: int, count: int, step: int = 1, sign: int = 1) -> list[Decimal]:
    """1/first!, sign/(first + step)!, 1/(first + 2·step)!, …"""
    made, value = [], 1
    for number in range(1, first + 1):
        value *= number
    for place in range(count):
        made.append(Decimal(sign**place) / value)
        for number in range(first + place * step + 1, first + (place + 1) * step + 1):
            value *= number
    return made


class _Tables:
    """What the functions look up."""

    def __init__(self) -> None:
        with localcontext() as context:
            context.prec = _DIGITS
            ln2 = Decimal(2).ln()
            half_pi = _half_pi(_DIGITS)
            self.ln2 = _constant(ln2)
            self.ln2_parts = _parts(ln2, bits=40, count=3)
            self.powers = _table((ln2 * place / 64).exp() for place in range(64))
            self.inverse = np.array([round(2**17 / place) / 1024 for place in range(90, 183)])
            self.logarithms = _table(-Decimal(float(each)).ln() for each in self.inverse)
            self.half_pi = _constant(half_pi)
            self.half_pi_parts = _parts(half_pi, bits=30, count=5)
            self.sines = _table(_decimal_sin(Decimal(place) / 64) for place in range(52))
            self.cosines = _table(_decimal_cos(Decimal(place) / 64) for place in range(52))
            self.arcs = _table(_decimal_atan(Decimal(place) / 64) for place in range(65))
            self.of_exp = _factorials(1, 12)
            self.of_log = [Decimal((-1) ** place) / (place + 1) for place in range(13)]
            self.of_sin = _factorials(3, 6, 2, -1)
            self.of_cos = _factorials(2, 7, 2, -1)
            self.of_sinh = _factorials(3, 8, 2)
            self.of_atan = [Decimal((-1) ** place) / (2 * place + 1) for place in range(1, 9)]


@cache
def _tables() -> _Tables:
    return _Tables()


def _parts(number: Decimal, bits: int, count: int) -> list[float]:
    """Doubles of so many bits that add up to the number, the last one of all of its bits."""
    made, rest = [], number
    for place in range(1, count):
        scale = Decimal(2) ** (bits * place)
        part = (rest * scale).to_integral_value() / scale
        made.append(float(part))
        rest -= part
    return [*made, float(rest)]


# --- functions of pairs


def _exp(x: Pair) -> tuple[Pair, NDArray[np.int64]]:
    """e^x as a pair times a power of two, for |x| < 2000."""
    tables = _tables()
    steps = np.rint(x[0] * (64 / tables.ln2[0]))
    rest = x
    for part in tables.ln2_parts:
        rest = _add(rest, _two_product(-steps, np.asarray(part / 64)))
    whole = steps.astype(np.int64)
    place = whole & 63
    power = _polynomial(rest, tables.of_exp, 4)
    table = (tables.powers[0][place], tables.powers[1][place])
    return _add(table, _times(table, _times(rest, power))), whole >> 6


def _ln(x: Floats) -> Pair:
    """ln x of positive, finite numbers."""
    tables = _tables()
    part, exponent = np.frexp(x)
    small = part < 0.7071067811865476
    part, exponent = np.where(small, part * 2, part), exponent - small
    place = np.rint(part * 128).astype(np.int64) - 90
    high, low = _two_product(part, tables.inverse[place])
    rest = _fast_two_sum(high - 1.0, low)
    of_rest = _times(rest, _polynomial(rest, tables.of_log, 6))
    power = exponent.astype(np.float64)
    of_power = _add(
        _two_product(power, tables.ln2[0]),
        _pair(power * tables.ln2[1]),
    )
    return _add(_add(of_power, (tables.logarithms[0][place], tables.logarithms[1][place])), of_rest)


def _reduced(x: Floats) -> tuple[Pair, NDArray[np.int64]]:
    """x - n·pi/2 between -pi/4 and pi/4, and n modulo 4, of finite numbers."""
    tables = _tables()
    large = np.abs(x) > 2.0**20
    near = np.where(large, 0.0, x)
    steps = np.rint(near / tables.half_pi[0])
    rest = _pair(near)
    for part in tables.half_pi_parts:
        rest = _add(rest, _two_product(-steps, np.asarray(part)))
    quarter = steps.astype(np.int64) & 3
    for place in np.flatnonzero(large):
        rest[0][place], rest[1][place], quarter[place] = _reduced_exactly(float(x[place]))
    return rest, quarter


@cache
def _long_half_pi() -> Decimal:
    return _half_pi(_HALF_PI_DIGITS)


def _reduced_exactly(x: float) -> tuple[Floats, Floats, int]:
    with localcontext() as context:
        context.prec = _HALF_PI_DIGITS
        steps = (Decimal(x) / _long_half_pi()).to_integral_value()
        high, low = _constant(Decimal(x) - steps * _long_half_pi())
        return high, low, int(steps) & 3


def _sin_cos(x: Floats) -> tuple[Pair, Pair]:
    """The sine and the cosine of finite numbers."""
    tables = _tables()
    rest, quarter = _reduced(x)
    sign = np.where(np.signbit(rest[0]), -1.0, 1.0)
    rest = _scaled(rest, sign)
    place = np.rint(rest[0] * 64).astype(np.int64)
    rest = _add(rest, _pair(place / -64.0))
    square = _times(rest, rest)
    sin = _add(rest, _negative(_times(_times(rest, square), _polynomial(square, tables.of_sin, 2))))
    less = _times(square, _polynomial(square, tables.of_cos, 3))  # 1 - cos
    own_sin = (tables.sines[0][place], tables.sines[1][place])
    own_cos = (tables.cosines[0][place], tables.cosines[1][place])
    sine = _add(own_sin, _add(_times(own_cos, sin), _negative(_times(own_sin, less))))
    cosine = _add(own_cos, _negative(_add(_times(own_sin, sin), _times(own_cos, less))))
    sine = _choice(place == 0, sin, sine)
    sine = _scaled(sine, sign)
    odd = (quarter & 1) == 1
    return (
        _scaled(_choice(odd, cosine, sine), np.where(quarter >= 2, -1.0, 1.0)),
        _scaled(_choice(odd, sine, cosine), np.where((quarter == 1) | (quarter == 2), -1.0, 1.0)),
    )


def _atan(y: Pair, x: Pair) -> Pair:
    """The arc whose tangent is y / x, of positive y and x (or one zero); in the first quarter."""
    tables = _tables()
    steep = y[0] > x[0]
    ratio = _over(_choice(steep, x, y), _choice(steep, y, x))
    place = np.rint(ratio[0] * 64).astype(np.int64)
    table = _pair(place / 64.0)
    one = _pair(np.ones_like(ratio[0]))
    rest = _over(_add(ratio, _negative(table)), _add(one, _times(ratio, table)))
    square = _times(rest, rest)
    arc = _add(rest, _times(_times(rest, square), _polynomial(square, tables.of_atan, 3)))
    arc = _choice(place == 0, arc, _add((tables.arcs[0][place], tables.arcs[1][place]), arc))
    quarter = (np.full_like(arc[0], tables.half_pi[0]), np.full_like(arc[0], tables.half_pi[1]))
    return _choice(steep, _add(quarter, _negative(arc)), arc)


def _sinh_cosh(x: Floats) -> tuple[Pair, Pair, NDArray[np.int64]]:
    """sinh and cosh of 0 <= x < 2000, as pairs times a power of two."""
    power, exponent = _exp(_pair(x))
    # Beyond 60, e^-x is nothing beside e^x.
    whole = np.where(exponent > 90, 0, exponent)
    grown = _scaled(power, np.ldexp(1.0, whole))
    shrunk = _over(_pair(np.ones_like(x)), grown)
    shrunk = _choice(exponent > 90, _pair(np.zeros_like(x)), shrunk)
    sinh, cosh = _scaled(_add(grown, _negative(shrunk)), 0.5), _scaled(_add(grown, shrunk), 0.5)
    small = np.where(x < 0.0625, x, 0.0)
    square = _two_product(small, small)
    near = _add(_pair(small), _times(_times(_pair(small), square), _polynomial(square, _tables().of_sinh, 5)))
    return _choice(x < 0.0625, near, sinh), cosh, exponent - whole


# --- functions of DOUBLE


def _rounded(x: Pair, exponent: NDArray[np.int64]) -> Floats:
    """A pair times a power of two, rounded once, also where it is less than the smallest normal DOUBLE."""
    exponent = np.maximum(exponent, -1100)  # all less is zero
    high = np.ldexp(x[0], exponent)
    tiny = np.abs(high) < 2.0**-1022
    if not tiny.any():
        return high
    # Added to 2^52 times the smallest one, a number is rounded to a multiple of that.
    unit = np.ldexp(np.where(tiny, 1.0, 0.0), np.where(tiny, -1022 - exponent, 0))
    total, low = _two_sum(unit, x[0])
    total, _ = _fast_two_sum(total, low + x[1])
    return np.where(tiny, np.ldexp(total - unit, exponent), high)


def exp(x: Floats) -> Floats:
    power, exponent = _exp(_pair(np.clip(np.nan_to_num(x, nan=0.0), -760.0, 720.0)))
    return np.where(np.isnan(x), x, _rounded(power, exponent))


def ln(x: Floats) -> Floats:
    usual = (x > 0) & np.isfinite(x)
    made = _ln(np.where(usual, x, 1.0))[0]
    return np.where(usual, made, np.where(x == 0, -np.inf, np.where(x > 0, x, np.nan)))


def log(base: Floats, x: Floats) -> Floats:
    """The logarithm to a base: ln x / ln base, rounded once."""
    usual = (x > 0) & np.isfinite(x) & (base > 0) & np.isfinite(base) & (base != 1)
    one, other = np.where(usual, x, 1.0), np.where(usual, base, 2.0)
    made = _over(_ln(one), _ln(other))[0]
    return np.where(usual, made, np.where((base > 0) & (base != 1), ln(x) / ln(base), np.nan))


def power(x: Floats, y: Floats) -> Floats:
    size = np.abs(x)
    usual = (size > 0) & np.isfinite(x) & np.isfinite(y) & (y != 0)
    exponent = np.where(usual, y, 1.0)
    # A product of more than 2000, or of less than -2000, is infinite, or zero, whatever its digits.
    halved = np.clip(exponent, -1e18, 1e18)
    high, low = _times(_ln(np.where(usual, size, 1.0)), _pair(halved))
    far = np.abs(high) > 1990
    made, two = _exp((np.where(far, np.copysign(1990.0, high), high), np.where(far, 0.0, low)))
    whole = np.rint(y) == y
    odd = whole & (np.abs(y) < 2.0**53) & (np.fmod(y, 2.0) != 0)
    sign = np.where(np.signbit(x) & odd, -1.0, 1.0)
    value = sign * _rounded(made, two)
    value = np.where((x < 0) & ~whole, np.nan, value)
    value = np.where(exponent == 2.0, x * x, np.where(exponent == 1.0, x, value))
    return np.where(usual, value, _power_of_others(x, y, size, sign))


def _power_of_others(x: Floats, y: Floats, size: Floats, sign: Floats) -> Floats:
    """The power where one is 0, NaN or infinite, by IEEE 754; but 1 to the power of an infinity is NaN, as in Java."""
    grows = (size > 1) == (y > 0)
    of_infinite = np.where(size == 1, np.nan, np.where(grows, np.inf, 0.0))
    of_others = sign * np.where((size == 0) == (y < 0), np.inf, 0.0)
    value = np.where(np.isinf(y), of_infinite, of_others)
    return np.where(y == 0, 1.0, np.where(np.isnan(x) | np.isnan(y), np.nan, value))


def cbrt(x: Floats) -> Floats:
    usual = np.isfinite(x) & (x != 0)
    part, exponent = np.frexp(np.where(usual, x, 1.0))
    third = exponent // 3
    part = np.ldexp(part, exponent - 3 * third)
    root = np.cbrt(part)
    cube = _times(_two_product(root, root), _pair(root))
    rest = _add(_pair(part), _negative(cube))[0] / (3 * root * root)
    return np.where(usual, np.ldexp(root + rest, third), x)


def sin(x: Floats) -> Floats:
    usual = np.isfinite(x) & (np.abs(x) > 2.0**-30)
    made = _sin_cos(np.where(usual, x, 1.0))[0][0]
    return np.where(usual, made, np.where(np.isfinite(x), _smaller(x, -1 / 6), np.nan))


def cos(x: Floats) -> Floats:
    return np.where(np.isfinite(x), _sin_cos(np.where(np.isfinite(x), x, 0.0))[1][0], np.nan)


def tan(x: Floats) -> Floats:
    usual = np.isfinite(x) & (np.abs(x) > 2.0**-30)
    sine, cosine = _sin_cos(np.where(usual, x, 1.0))
    return np.where(usual, _over(sine, cosine)[0], np.where(np.isfinite(x), _smaller(x, 1 / 3), np.nan))


def cot(x: Floats) -> Floats:
    usual = np.isfinite(x) & (np.abs(x) > 2.0**-30)
    sine, cosine = _sin_cos(np.where(usual, x, 1.0))
    tiny = np.where(x == 0, np.inf, 1 / np.where(x == 0, 1.0, x))
    return np.where(usual, _over(cosine, sine)[0], np.where(np.isfinite(x), tiny, np.nan))


def atan(x: Floats) -> Floats:
    return atan2(x, np.ones_like(x))


def atan2(y: Floats, x: Floats) -> Floats:
    """The angle of the point (x, y), by IEEE 754 where one of them is 0 or infinite."""
    rise, run = np.abs(y), np.abs(x)
    usual = np.isfinite(y) & np.isfinite(x) & (rise > 0) & (run > 0)
    # Of the same powers of two less, so that none of their products is too large or too small.
    _, one = np.frexp(np.where(usual, rise, 1.0))
    _, other = np.frexp(np.where(usual, run, 1.0))
    apart = one - other
    shallow, steep = usual & (apart < -60), usual & (apart > 60)
    usual &= ~(shallow | steep)
    up = np.where(usual, np.ldexp(rise, -other), 1.0)
    along = np.where(usual, np.ldexp(run, -other), 1.0)
    arc = _atan(_pair(up), _pair(along))
    pi = (np.full_like(arc[0], 2 * _tables().half_pi[0]), np.full_like(arc[0], 2 * _tables().half_pi[1]))
    arc = _choice(np.signbit(x), _add(pi, _negative(arc)), arc)
    behind = np.where(np.signbit(x), np.pi, 0.0)
    flat = np.where(np.signbit(x), np.pi, np.where(shallow, rise / np.where(shallow, run, 1.0), 0.0))
    diagonal = np.where(np.signbit(x), 0.75 * np.pi, 0.25 * np.pi)
    others = np.where(np.isinf(rise), np.where(np.isinf(run), diagonal, np.pi / 2), np.pi / 2)
    others = np.where((rise == 0) | (np.isinf(run) & ~np.isinf(rise)), behind, others)
    made = np.where(usual, arc[0], np.where(shallow, flat, others))
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.copysign(made, y))


def asin(x: Floats) -> Floats:
    size = np.abs(x)
    usual = (size <= 1) & (size > 2.0**-30)
    inside = np.where(usual, size, 0.5)
    made = _atan(_pair(inside), _cathetus(inside))[0]
    return np.where(usual, np.copysign(made, x), np.where(size <= 1, _smaller(x, 1 / 6), np.nan))


def acos(x: Floats) -> Floats:
    inside = np.where(np.abs(x) <= 1, x, 0.5)
    arc = _atan(_cathetus(np.abs(inside)), _pair(np.abs(inside)))
    pi = (np.full_like(arc[0], 2 * _tables().half_pi[0]), np.full_like(arc[0], 2 * _tables().half_pi[1]))
    arc = _choice(inside < 0, _add(pi, _negative(arc)), arc)
    return np.where(np.abs(x) <= 1, arc[0], np.nan)


def _cathetus(x: Floats) -> Pair:
    """The root of 1 - x²."""
    one = np.ones_like(x)
    return _root(_times(_two_sum(one, -x), _two_sum(one, x)))


def _smaller(x: Floats, cubes: float) -> Floats:
    """x + cubes·x³ of a small x, all but x itself: where x³ is nothing beside it, the nearest DOUBLE is x."""
    small = np.where(np.abs(x) <= 2.0**-30, x, 0.0)
    return np.where(x == 0, x, small + cubes * small * small * small)


def sinh(x: Floats) -> Floats:
    size = np.clip(np.nan_to_num(np.abs(x), nan=0.0), 0.0, 720.0)
    made, _, exponent = _sinh_cosh(size)
    value = np.where(np.abs(x) <= 2.0**-30, _smaller(x, 1 / 6), np.copysign(_rounded(made, exponent), x))
    return np.where(np.isnan(x), x, value)


def cosh(x: Floats) -> Floats:
    size = np.clip(np.nan_to_num(np.abs(x), nan=0.0), 0.0, 720.0)
    _, made, exponent = _sinh_cosh(size)
    return np.where(np.isnan(x), x, _rounded(made, exponent))


def tanh(x: Floats) -> Floats:
    size = np.clip(np.nan_to_num(np.abs(x), nan=0.0), 0.0, 40.0)
    sine, cosine, _ = _sinh_cosh(size)
    value = np.where(np.abs(x) <= 2.0**-30, _smaller(x, -1 / 3), np.copysign(_over(sine, cosine)[0], x))
    return np.where(np.isnan(x), x, value)


FUNCTIONS: Final[dict[str, Callable[..., Floats]]] = {
    f"{PREFIX}{made.__name__}": made
    for made in (exp, ln, log, power, cbrt, sin, cos, tan, cot, atan, atan2, asin, acos, sinh, cosh, tanh)
}
"""By the names that both engines know them by."""


class OfColumns:
    """A function of arrays as one of Arrow columns: NULL where an argument is."""

    def __init__(self, name: str) -> None:
        self.name = name
        passed = inspect.Parameter.POSITIONAL_ONLY
        count = len(inspect.signature(FUNCTIONS[name]).parameters)
        # DuckDB counts the parameters of a function that it is given.
        self.__signature__ = inspect.Signature([inspect.Parameter(f"a{i}", passed) for i in range(count)])
        self.arguments = count

    def __call__(self, *columns: pa.Array) -> pa.Array:
        import pyarrow as pa

        arrays = [np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64) for column in columns]
        with np.errstate(all="ignore"):
            values = FUNCTIONS[self.name](*arrays)
        missing = [column.is_null().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
        return pa.array(values, pa.float64(), mask=np.logical_or.reduce(missing) if missing else None)


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions known to a DuckDB, by that connection: it must be open as long as they are called."""
    from duckdb.func import ARROW, SPECIAL

    double: Any = "DOUBLE"
    for name in FUNCTIONS:
        function = OfColumns(name)
        parameters = [double] * function.arguments
        connection.create_function(name, function, parameters, double, type=ARROW, null_handling=SPECIAL)
