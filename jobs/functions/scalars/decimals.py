"""Arithmetic of DECIMALs as DuckDB writes it: the exact value, rounded once to the scale of the result's type.

DuckDB divides decimals as DOUBLE, and refuses products and sums whose exact value has more than 38 digits. So where the
types say that the exact value fits, its own operator computes it; else an operand is a whole number, a HUGEINT, of its
last digits, computed in halves. Types are wide and values are small: where those of a row have room, its own operators
do that too, in an eighth of the time for a product and less than half for a quotient.

    99999999.99 / 3     9999999999 * 10^11 // 3, and a DECIMAL(21, 13) of it
    100.5 * 0.00000001  1005 * 1, of which as many digits are dropped as the result's scale has too few

A text is NULL where an operand is, where the divisor is 0, and where the value does not fit into the result's type.
Halves are rounded away from zero. As in Spark, a product is rounded to 39 digits first, and a quotient to 39 digits
after the point: that decides the last digit of results with more than 32 digits alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from strandline.jobs.model.types import MAX_PRECISION, BaseType, SqlType, decimal

OPERANDS: Final = "operands"
"""The mark on the node of an operator between DECIMALs: precision and scale of the left, the right and the result."""

_ROUNDED_FIRST: Final = MAX_PRECISION + 1
"""Digits to which Spark rounds a product, and places to which it rounds a quotient, before the result's scale."""
# Above that width DuckDB computes with 128 bits. Below it a result never has more than 18 digits.
_WIDE: Final = 19
_HALF: Final = 10**19
_FEWEST_BEFORE: Final = 4
"""Digits before the points of two operands, together, for which it is worth asking whether a row has no more."""


@dataclass(frozen=True)
class Operation:
    """An operator between two DECIMALs, as text: the operands with their types, and the type of the result."""

    left: str
    right: str
    p1: int
    s1: int
    p2: int
    s2: int
    result: SqlType

    @property
    def scale(self) -> int:
        """The places of the result."""
        return self.result.scale

    def fitting(self, value: str) -> str:
        """The value as the result's type, NULL where it does not fit."""
        return f"TRY_CAST({value} AS {self.result.duckdb()})"

    def of_last_digits(self, whole: str) -> str:
        """The result whose last digits make that HUGEINT."""
        if self.scale == 0:
            return self.fitting(whole)
        step = f"CAST('0.{'0' * (self.scale - 1)}1' AS DECIMAL({self.scale}, {self.scale}))"
        return self.fitting(f"TRY_CAST({whole} AS DECIMAL(38, 0)) * {step}")


_SPARK_KEEPS: Final = 34
"""Digits of a DECIMAL that -x and abs(x) of Spark keep: they round to IEEE 754's decimal128."""


def is_wide(sql_type: SqlType) -> bool:
    """True of a DECIMAL whose opposite Spark rounds."""
    return sql_type.base is BaseType.DECIMAL and sql_type.precision > _SPARK_KEEPS


def in_duckdb(operator: type[exp.Expr], left: str, right: str, marked: Sequence[int]) -> str:
    """DuckDB's text of an operator, of the type of its result; `marked` is the node's mark.

    Args:
        operator: one of `+ - * / %`.
    """
    p1, s1, p2, s2, precision, scale = marked
    operation = Operation(left, right, p1, s1, p2, s2, decimal(precision, scale))
    return _TEXTS[operator](operation)


def in_spark(operator: type[exp.Expr], left: str, right: str) -> str:
    """Spark's text of the same: its own functions have these types and values."""
    return f"{_SPARK[operator]}({left}, {right})"


def parts_in_duckdb(arguments: Sequence[str]) -> str:
    """What stands before and behind the point of a DECIMAL, as whole numbers; by value, precision and scale."""
    value, precision, scale = arguments[0], int(arguments[1]), int(arguments[2])
    digits = _last_digits(value, precision, scale)
    rest = f"__d % {_ten(scale)} * {_ten(MAX_PRECISION - scale)}"
    pair = _struct({"whole": f"__d // {_ten(scale)}", "rest": rest})
    return f"CASE WHEN {value} IS NOT NULL THEN {_named(digits, '__d', pair)} END"


def parts_in_spark(arguments: Sequence[str]) -> str:
    """The same as DECIMALs; by value, precision and scale. Spark compares a small one with 0 as if it were 0."""
    value = arguments[0]
    whole = f"CAST(CASE WHEN sign({value}) < 0 THEN ceil({value}) ELSE floor({value}) END AS DECIMAL(38, 0))"
    pair = f"named_struct('whole', {whole}, 'rest', CAST({value} % 1 AS DECIMAL(38, 38)))"
    return f"CASE WHEN {value} IS NOT NULL THEN {pair} END"


def sum_text(operation: Operation, sign: str) -> str:
    """`left + right`, or `left - right` where the sign is `-`."""
    o = operation
    scale = max(o.s1, o.s2)
    digits = max(o.p1 - o.s1, o.p2 - o.s2) + scale + 1
    width = min(digits, MAX_PRECISION)
    own = f" {sign} ".join(f"CAST({each} AS DECIMAL({width}, {scale}))" for each in (o.left, o.right))
    if digits <= MAX_PRECISION:
        return o.fitting(own)
    return _let(_whole_pair(o), lambda a, b: o.of_last_digits(_wide_sum(o, a, f"{sign}({b})", scale - o.scale)))


def product_text(operation: Operation) -> str:
    """`left * right`."""
    o = operation
    if o.p1 + o.p2 <= MAX_PRECISION:
        width = max(o.p1, _WIDE) if o.p2 <= MAX_PRECISION - _WIDE else o.p1
        return o.fitting(f"CAST({o.left} AS DECIMAL({width}, {o.s1})) * CAST({o.right} AS DECIMAL({o.p2}, {o.s2}))")
    dropped = o.s1 + o.s2 - o.scale
    widths = _narrowed_widths(o)
    if widths is None:
        return _let(_whole_pair(o), lambda a, b: o.of_last_digits(_wide_product(a, b, dropped)))
    operands = _struct(
        {"l": f"CAST({o.left} AS DECIMAL({o.p1}, {o.s1}))", "r": f"CAST({o.right} AS DECIMAL({o.p2}, {o.s2}))"}
    )
    named = replace(o, left="__f.l", right="__f.r")
    few = f"TRY_CAST(__f.l AS DECIMAL({widths[0]}, {o.s1})) * TRY_CAST(__f.r AS DECIMAL({widths[1]}, {o.s2}))"
    wide = _let(_whole_pair(named), lambda a, b: o.of_last_digits(_wide_product(a, b, dropped)))
    # DuckDB computes what stands behind for those rows alone for which the first gives NULL.
    return _named(operands, "__f", f"coalesce({o.fitting(few)}, {wide})")


def _narrowed_widths(o: Operation) -> tuple[int, int] | None:
    """Digits of both operands with which DuckDB's own operator has room for their product: most values have no more.
    None: the places after the points leave too few."""
    before, room = [o.p1 - o.s1, o.p2 - o.s2], MAX_PRECISION - o.s1 - o.s2
    if room < _FEWEST_BEFORE:
        return None
    less, more = sorted((0, 1), key=lambda each: before[each])
    before[less] = min(before[less], room // 2)
    before[more] = room - before[less]
    return before[0] + o.s1, before[1] + o.s2


def quotient_text(operation: Operation) -> str:
    """`left / right`."""
    o = operation
    more = o.scale + o.s2 - o.s1
    if not 0 <= more <= MAX_PRECISION - _FEWEST_BEFORE:
        return _let(_whole_pair(o), lambda a, b: o.of_last_digits(_wide_quotient(o, a, b, more)))

    def divided(a: str, b: str) -> str:
        # Twice the dividend and the divisor have room, and the divisor is too small to turn anything into a half.
        few = f"abs({a}) < {_ten(MAX_PRECISION - 1 - more)} AND abs({b}) BETWEEN 1 AND {_ten(_small(o) - 1)}"
        half = f"CASE WHEN ({a}) < 0 THEN -abs({b}) ELSE abs({b}) END"
        own = f"(({a}) * {_ten(more)} * 2 + {half}) // (({b}) * 2)"
        return f"CASE WHEN {few} THEN {own} ELSE {_wide_quotient(o, a, b, more)} END"

    return _let(_whole_pair(o), lambda a, b: o.of_last_digits(divided(a, b)))


def _small(o: Operation) -> int:
    """Digits of a divisor of which a step of the 39th place is less than 1, and twice which has room."""
    return min(_ROUNDED_FIRST - o.scale, MAX_PRECISION - 1)


def remainder_text(operation: Operation) -> str:
    """`left % right`, of the sign of `left`."""
    o = operation
    scale = max(o.s1, o.s2)
    width = max(o.p1 - o.s1, o.p2 - o.s2) + scale
    if width <= MAX_PRECISION:
        left, right = (f"CAST({each} AS DECIMAL({width}, {scale}))" for each in (o.left, o.right))
        return o.fitting(f"{left} % nullif({right}, 0)")
    return _let(_whole_pair(o), lambda a, b: o.of_last_digits(_wide_remainder(a, b, o.s1, o.s2)))


def _wide_sum(o: Operation, a: str, b: str, dropped: int) -> str:
    """The sum of the last digits of both, each cut to the result's scale, and of what was cut off."""
    step = 10**dropped
    t, e = (" + ".join(pair) for pair in zip(*(_cut(o, *each) for each in ((a, o.s1), (b, o.s2))), strict=True))
    # By the sum's sign all is counted from zero; what was cut off is less than two steps.
    sign = f"CASE WHEN abs(__t) >= 2 THEN sign(__t) ELSE sign(__t * {step} + __e) END"
    rounded = f"__s * (__s * __t + ((__s * __e + {step // 2 + 2 * step}) // {step} - 2))"
    inner = _named(sign, "__s", rounded)
    return _named(f"TRY({t})", "__t", _named(e, "__e", inner))


def _cut(o: Operation, digits: str, scale: int) -> tuple[str, str]:
    """A number of that scale, cut to the result's, and what was cut off in the places of the larger scale."""
    larger = max(o.s1, o.s2)
    if scale <= o.scale:
        return f"({digits}) * {_ten(o.scale - scale)}", "CAST(0 AS HUGEINT)"
    step = _ten(scale - o.scale)
    return f"({digits}) // {step}", f"({digits}) % {step} * {_ten(larger - scale)}"


def _wide_product(a: str, b: str, dropped: int) -> str:
    """The product without its last `dropped` digits, by halves of nineteen digits: it has up to 76."""
    cut, whole = _unsigned(_HALF), _unsigned(10**MAX_PRECISION)
    halves = {
        f"{name}{place}": f"{_magnitude(value)} {operator} {cut}"
        for name, value in (("a", a), ("b", b))
        for place, operator in ((1, "//"), (0, "%"))
    }
    middle = "__p.a1 * __p.b0 + __p.a0 * __p.b1"
    low = f"__m % {cut} * {cut} + __p.a0 * __p.b0"
    high = f"__p.a1 * __p.b1 + __m // {cut} + __l // {whole}"
    rounded = _without_digits(high, f"__l % {whole}", dropped)
    made = _named(_struct(halves), "__p", _named(middle, "__m", _named(low, "__l", rounded)))
    return f"CAST({made} AS HUGEINT) * {_sign(a)} * {_sign(b)}"


def _without_digits(high: str, low: str, dropped: int) -> str:
    """A number of two parts, the lower one of 38 digits, without its last digits; NULL where more than 38 are left."""
    zero, one, two = (_unsigned(each) for each in range(3))
    if dropped > MAX_PRECISION:
        # The last digit of the higher part goes too, and decides: what is below it counts where 39 digits are rounded.
        most, nearly = _unsigned(10 ** (MAX_PRECISION - 1)), _unsigned(5 * 10 ** (MAX_PRECISION - 1))
        quotient, digit = f"__h // {_unsigned(10)}", f"__h % {_unsigned(10)}"
        half = f"{digit} >= {_unsigned(5)} OR __q >= {most} AND {digit} = {_unsigned(4)} AND __w >= {nearly}"
        fits = "TRUE"
    else:
        step = 10**dropped
        quotient = f"__h * {_unsigned(10 ** (MAX_PRECISION - dropped))} + __w // {_unsigned(step)}"
        # Rounding to 39 digits first makes a half of what is up to half a step of the 39th digit below it.
        beyond = f"length(CAST(__q AS VARCHAR)) + {dropped - _ROUNDED_FIRST}"
        ten = f"CAST('1' || repeat('0', {beyond}) AS UHUGEINT)"
        first = f"CASE WHEN __q > {zero} AND {beyond} > 0 THEN {ten} // {two} ELSE {zero} END"
        half = f"__w % {_unsigned(step)} + {first} >= {_unsigned(step // 2)}" if dropped else "FALSE"
        fits = f"__h < {_unsigned(step)}"
    rounded = _named(quotient, "__q", f"__q + CASE WHEN {half} THEN {one} ELSE {zero} END")
    return _named(high, "__h", _named(low, "__w", f"CASE WHEN {fits} THEN {rounded} END"))


def _wide_quotient(o: Operation, a: str, b: str, more: int) -> str:
    """The quotient of the last digits, `more` of which are zeros behind those of the dividend."""
    begun = _struct({"q": "__n // __d", "r": "__n % __d"})
    if o.p1 + more <= MAX_PRECISION:
        divided = _named(f"{_magnitude(a)} * {_unsigned(10**more)}", "__n", begun)
    else:
        divided = _named(_magnitude(a), "__n", _more_digits(begun, more))
    # Rounding to 39 places first makes a half of what is up to half a step of the 39th place below it.
    half = f"__q.r + __d // {_unsigned(10 ** (_ROUNDED_FIRST - o.scale))} >= __d - __q.r"
    rounded = f"__q.q + CASE WHEN {half} THEN {_unsigned(1)} ELSE {_unsigned(0)} END"
    made = _named(_magnitude(f"nullif({b}, 0)"), "__d", _named(divided, "__q", rounded))
    return f"TRY_CAST({made} AS HUGEINT) * {_sign(a)} * {_sign(b)}"


def _wide_remainder(a: str, b: str, s1: int, s2: int) -> str:
    """The remainder of the last digits, at the larger of both scales."""
    if s1 >= s2:
        # A divisor of more than 38 digits is larger than any dividend.
        most = _ten(MAX_PRECISION - (s1 - s2))
        left = f"CASE WHEN abs({b}) < {most} THEN ({a}) % (({b}) * {_ten(s1 - s2)}) ELSE {a} END"
        return f"CASE WHEN ({b}) <> 0 THEN {left} END"
    begun = _struct({"q": _unsigned(0), "r": "__n % __d"})
    left = _named(_magnitude(a), "__n", _more_digits(begun, s2 - s1, counted=False))
    made = _named(_magnitude(f"nullif({b}, 0)"), "__d", f"({left}).r")
    return f"CAST({made} AS HUGEINT) * {_sign(a)}"


def _more_digits(begun: str, count: int, *, counted: bool = True) -> str:
    """A quotient `q` and remainder `r` of `__d`, taken on by `count` digits; q is NULL where it gets more than 38.

    Ten times a remainder may have no room: it is doubled, and that taken five times, modulo the divisor each time.

    Args:
        counted: the quotient is wanted.
    """
    two = _unsigned(2)
    digit = f"{_unsigned(5)} * __t.q + {two} * __u.q + __v.q + (__v.r + __t.r) // __d"
    most = _unsigned(10 ** (MAX_PRECISION - 1))
    grown = f"CASE WHEN __x.q < {most} THEN __x.q * {_unsigned(10)} + {digit} END" if counted else "__x.q"
    step = _struct({"q": grown, "r": "(__v.r + __t.r) % __d"})
    for name, value in (("__v", f"__u.r * {two}"), ("__u", f"__t.r * {two}"), ("__t", f"__x.r * {two}")):
        step = _named(_struct({"q": f"({value}) // __d", "r": f"({value}) % __d"}), name, step)
    return f"list_reduce(range({count}), lambda __x, __i: {step}, {begun})"


def _magnitude(whole: str) -> str:
    return f"CAST(abs({whole}) AS UHUGEINT)"


def _sign(whole: str) -> str:
    return f"CASE WHEN ({whole}) < 0 THEN CAST(-1 AS HUGEINT) ELSE CAST(1 AS HUGEINT) END"


def _whole_pair(o: Operation) -> tuple[str, str]:
    return _last_digits(o.left, o.p1, o.s1), _last_digits(o.right, o.p2, o.s2)


def _last_digits(value: str, precision: int, scale: int) -> str:
    """The HUGEINT of all digits of a DECIMAL, without its point."""
    if scale == 0:
        return f"CAST({value} AS HUGEINT)"
    if precision + scale <= MAX_PRECISION:
        wide = f"CAST({value} AS DECIMAL({max(precision, _WIDE)}, {scale}))"
        # A factor of 128 bits: a narrow one would make a narrow product.
        return f"CAST({wide} * CAST({10**scale} AS DECIMAL({scale + 1}, 0)) AS HUGEINT)"
    return f"CAST(replace(CAST({value} AS VARCHAR), '.', '') AS HUGEINT)"


def _let(pair: tuple[str, str], body: Callable[[str, str], str]) -> str:
    """`body` of the names of two values, which are computed once."""
    return _named(_struct({"a": pair[0], "b": pair[1]}), "__o", body("__o.a", "__o.b"))


def _named(value: str, name: str, body: str) -> str:
    return f"list_transform([{value}], lambda {name}: {body})[1]"


def _struct(fields: dict[str, str]) -> str:
    return f"struct_pack({', '.join(f'{name} := {value}' for name, value in fields.items())})"


def _ten(exponent: int) -> str:
    return f"CAST({10**exponent} AS HUGEINT)"


def _unsigned(number: int) -> str:
    return f"CAST({number} AS UHUGEINT)"


_TEXTS: Final[Mapping[type[exp.Expr], Callable[[Operation], str]]] = {
    exp.Add: lambda operation: sum_text(operation, "+"),
    exp.Sub: lambda operation: sum_text(operation, "-"),
    exp.Mul: product_text,
    exp.Div: quotient_text,
    exp.Mod: remainder_text,
}
_SPARK: Final[Mapping[type[exp.Expr], str]] = {
    **{exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply", exp.Div: "try_divide", exp.Mod: "try_mod"},
}
