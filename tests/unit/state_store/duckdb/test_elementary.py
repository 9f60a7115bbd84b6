"""Elementary functions give the DOUBLE nearest to the exact value; `decimal` and mathematics say which that is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal, localcontext

import duckdb
import numpy as np
import pytest

from strandline.state_store.duckdb import elementary
from tests.support.examples import AT_LENGTH, seed_of

_NUMBERS = 20_000 if AT_LENGTH else 300


def _of(name: str, *arguments: float) -> float:
    with np.errstate(all="ignore"):
        return float(elementary.FUNCTIONS[f"nearest_{name}"](*(np.array([each]) for each in arguments))[0])


@pytest.mark.parametrize(
    ("name", "exactly", "low", "high"),
    [
        ("exp", Decimal.exp, -745.2, 709.7),
        ("ln", Decimal.ln, 1e-300, 1e300),
        ("cbrt", lambda x: x ** (1 / Decimal(3)), 1e-5, 1e5),
        ("sinh", lambda x: (x.exp() - (-x).exp()) / 2, 0.0, 30.0),
        ("cosh", lambda x: (x.exp() + (-x).exp()) / 2, 0.0, 30.0),
        ("tanh", lambda x: 1 - 2 / ((2 * x).exp() + 1), 0.0, 20.0),
    ],
)
def test_a_function_is_rounded_to_the_nearest(
    name: str, exactly: Callable[[Decimal], Decimal], low: float, high: float
) -> None:
    chance = random.Random(seed_of(29))
    numbers = np.array([chance.uniform(low, high) for _ in range(_NUMBERS)])
    with np.errstate(all="ignore"), localcontext() as context:
        context.prec = 80
        found = elementary.FUNCTIONS[f"nearest_{name}"](numbers)
        wrong = [
            x for x, y in zip(numbers, found, strict=True) if (float(exactly(Decimal(float(x)))) or 0.0) != float(y)
        ]
    assert not wrong


def test_powers_and_logarithms_are_rounded_to_the_nearest() -> None:
    chance = random.Random(seed_of(29))
    bases = np.array([chance.uniform(0.001, 1000) for _ in range(_NUMBERS)])
    others = np.array([chance.uniform(-90, 90) for _ in range(_NUMBERS)])
    powers, logarithms = elementary.power(bases, others), elementary.log(bases, np.abs(others))
    with localcontext() as context:
        context.prec = 60
        for x, y, power, logarithm in zip(bases, others, powers, logarithms, strict=True):
            base, other = Decimal(float(x)), Decimal(float(y))
            assert float((other * base.ln()).exp()) == power
            assert float(abs(other).ln() / base.ln()) == logarithm


def test_angles_of_every_size_are_those_of_the_exact_number() -> None:
    """The identities hold to the last digit for arguments that a DOUBLE's pi is no use for."""
    chance = random.Random(seed_of(29))
    large = np.array([chance.uniform(1, 10) * 10.0 ** chance.randint(0, 307) for _ in range(100)])
    sines, cosines = elementary.sin(large), elementary.cos(large)
    assert np.all(np.abs(sines * sines + cosines * cosines - 1) < 1e-15)
    assert np.allclose(elementary.tan(large), sines / cosines, rtol=1e-15)
    assert _of("sin", 1e22) == -0.8522008497671888  # known to be right, and far from what a DOUBLE's pi gives
    assert _of("cos", 2.0**1000) == math.cos(2.0**1000)
    angles = np.array([chance.uniform(-1.5, 1.5) for _ in range(_NUMBERS)])
    assert np.allclose(elementary.atan(elementary.tan(angles)), angles, rtol=1e-15)
    assert np.allclose(elementary.asin(elementary.sin(angles)), angles, rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("exp", (math.inf,), math.inf),
        ("exp", (-math.inf,), 0.0),
        ("exp", (710.0,), math.inf),
        ("exp", (-745.2,), 0.0),
        ("exp", (-745.1,), 5e-324),
        ("ln", (0.0,), -math.inf),
        ("ln", (-0.0,), -math.inf),
        ("ln", (-1.0,), math.nan),
        ("ln", (5e-324,), -744.4400719213812),
        ("log", (2.0, 8.0), 3.0),
        ("log", (10.0, 1000.0), 3.0),
        ("log", (1.0, 8.0), math.nan),
        ("power", (10.0, 22.0), 1e22),
        ("power", (-2.0, 3.0), -8.0),
        ("power", (-2.0, 0.5), math.nan),
        ("power", (0.0, -1.0), math.inf),
        ("power", (-0.0, -3.0), -math.inf),
        ("power", (math.nan, 0.0), 1.0),
        ("power", (0.5, math.inf), 0.0),
        ("cbrt", (-27.0,), -3.0),
        ("sin", (-0.0,), -0.0),
        ("sin", (math.inf,), math.nan),
        ("atan2", (0.0, -1.0), math.pi),
        ("atan2", (-0.0, -0.0), -math.pi),
        ("atan2", (math.inf, -math.inf), 0.75 * math.pi),
        ("asin", (1.0,), math.pi / 2),
        ("asin", (1.5,), math.nan),
        ("acos", (-1.0,), math.pi),
        ("sinh", (-711.0,), -math.inf),
        ("sinh", (710.4,), 1.6663642832806496e308),
        ("tanh", (-math.inf,), -1.0),
        ("cot", (0.0,), math.inf),
    ],
)
def test_the_edges_are_those_of_ieee_754(name: str, arguments: tuple[float, ...], value: float) -> None:
    found = _of(name, *arguments)
    assert repr(found) == repr(value)


def test_duckdb_calls_them_and_null_stays_null() -> None:
    with duckdb.connect() as connection:
        elementary.register(connection)
        rows = connection.sql(
            "SELECT nearest_ln(x), nearest_power(x, y) FROM (VALUES (1.0, 2.0), (NULL, 2.0), (3.0, NULL)) AS t(x, y)"
        ).fetchall()
    assert rows == [(0.0, 1.0), (None, None), (pytest.approx(math.log(3)), None)]
