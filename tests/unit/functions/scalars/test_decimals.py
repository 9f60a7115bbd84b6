"""Arithmetic of DECIMALs in DuckDB: Python's exact numbers say what each operator gives, at the ends of all types."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import duckdb
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from sqlglot import exp

from strandline.jobs.functions.failing import lenient
from strandline.jobs.functions.render import lower
from strandline.jobs.functions.scalars import decimals
from strandline.jobs.model import types as t
from strandline.jobs.query.expressions.arithmetic import arithmetic
from strandline.jobs.query.expressions.scope import Typed
from tests.support.examples import examples, seed_of

_TYPES: Final = (
    *((10, 2), (18, 8), (38, 0), (38, 18), (38, 38), (10, 0), (19, 0), (1, 1), (37, 16), (3, 2), (38, 30), (38, 6)),
    (20, 10),
)
_OPERATORS: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_EXACT: Final = Context(prec=300, rounding=ROUND_HALF_UP)
_TO_39_DIGITS: Final = Context(prec=39, rounding=ROUND_HALF_UP)


@pytest.mark.parametrize("left", _TYPES)
def test_each_operator_gives_the_exact_value_rounded_to_the_type_of_its_result(
    duck: DuckDBPyConnection, left: tuple[int, int]
) -> None:
    chance = random.Random(seed_of(left[0] * 100 + left[1]))
    for right in _TYPES:
        pairs = [(a, b) for a in _values(chance, *left) for b in _values(chance, *right)]
        kinds = {"a": t.decimal(*left), "b": t.decimal(*right)}
        texts = {"a": [format(a, "f") for a, _ in pairs], "b": [format(b, "f") for _, b in pairs]}
        duck.register("texts", pa.table({"nr": range(len(pairs)), **texts}))
        cast = ", ".join(f"{name}::{kind.duckdb()} AS {name}" for name, kind in kinds.items())
        one, other = (Typed(exp.column(name), kind) for name, kind in kinds.items())
        made = [arithmetic(operator, one, other) for operator in _OPERATORS]
        listed = ", ".join(lower(lenient(each.expression), "duckdb") for each in made)
        found = duck.execute(f"SELECT {listed} FROM (SELECT nr, {cast} FROM texts) ORDER BY nr").fetchall()
        for operator, typed, values in zip(_OPERATORS, made, zip(*found, strict=True), strict=True):
            expected = [_expected(operator, a, b, typed.type) for a, b in pairs]
            assert list(values) == expected, (operator.__name__, left, right)


@pytest.mark.parametrize(
    ("operator", "marked", "few", "many"),
    [
        (exp.Mul, (21, 2, 19, 7, 38, 6), ("12.34", "0.05"), ("9999999999999999999.99", "0.05")),
        (exp.Mul, (38, 6, 38, 6, 38, 6), ("-123456.789", "7.5"), ("12345678901234567890.5", "12345678.5")),
        (exp.Div, (10, 2, 10, 2, 23, 13), ("99.99", "-3.10"), None),
        (exp.Div, (38, 6, 38, 6, 38, 6), ("-123456.789", "7.5"), ("99999999999999999999999999999999.5", "3")),
    ],
)
def test_values_of_few_digits_are_not_computed_in_halves(
    duck: DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
    operator: type[exp.Expr],
    marked: tuple[int, ...],
    few: tuple[str, str],
    many: tuple[str, str] | None,
) -> None:
    for name in ("_wide_product", "_wide_quotient"):
        monkeypatch.setattr(decimals, name, lambda *_: "CAST(error('in halves') AS HUGEINT)")
    p1, s1, p2, s2, *_ = marked
    text = decimals.in_duckdb(operator, "a", "b", marked)
    query = f"SELECT {text} FROM (SELECT $1::DECIMAL({p1}, {s1}) AS a, $2::DECIMAL({p2}, {s2}) AS b)"
    [(value,)] = duck.execute(query, few).fetchall()
    assert value is not None
    if many is not None:
        with pytest.raises(duckdb.Error, match="in halves"):
            duck.execute(query, many).fetchall()


def _expected(operator: type[exp.Expr], a: Decimal, b: Decimal, result: t.SqlType) -> Decimal | None:
    if operator in (exp.Div, exp.Mod) and b == 0:
        return None
    values: dict[type[exp.Expr], Callable[[], Decimal]] = {
        exp.Add: lambda: _EXACT.add(a, b),
        exp.Sub: lambda: _EXACT.subtract(a, b),
        exp.Mul: lambda: _TO_39_DIGITS.multiply(a, b),
        exp.Div: lambda: _EXACT.quantize(_EXACT.divide(a, b), Decimal("1e-39")),
        exp.Mod: lambda: _EXACT.remainder(a, b),
    }
    rounded = _EXACT.quantize(values[operator](), Decimal(f"1e-{result.scale}"))
    most = Decimal(10) ** (result.precision - result.scale)
    return rounded if rounded.copy_abs() < most else None


def _values(chance: random.Random, precision: int, scale: int) -> list[Decimal]:
    """The ends of a type, small and round numbers, and any, of either sign."""
    most = 10**precision - 1
    wholes = [0, 1, most, most // 3, most // 2 + 1, 10**scale, 5 * 10 ** max(scale - 1, 0), 3]
    wholes += [chance.randrange(10 ** chance.randint(1, precision)) for _ in range(examples(2))]
    return [Decimal(f"{chance.choice(['', '-'])}{min(whole, most)}e-{scale}") for whole in wholes]
