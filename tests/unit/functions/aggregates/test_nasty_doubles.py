"""Aggregates over DOUBLEs that come, change and go: whatever was there before, the result is that of what is there.

The oracle is exact arithmetic in Python; it shares no code with the engine.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

import pytest
from duckdb import DuckDBPyConnection

from strandline.jobs.model.tables import TOMBSTONE
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.examples import AT_LENGTH, seed_of
from tests.support.memory_catalog import MemoryCatalog

INF, NAN, MOST = math.inf, math.nan, 1.7976931348623157e308
_AT = datetime(2024, 5, 1, tzinfo=UTC)
_KINDS: Final[dict[str, tuple[float | None, ...]]] = {
    "nasty": (0.0, -0.0, NAN, INF, -INF, 1e300, -1e300, MOST, -MOST, 5e-324, 1e17, 1.0, -1.0, 0.1, None),
    "far from zero": (*(1e9 + each for each in (1.0, 2.0, 3.0, 1.0, 0.5)), None),
    "plain, and NaN": (1.0, 2.5, -3.0, 0.1, 0.2, NAN, None),
    "plain, and infinite": (1.0, 2.5, -3.0, 0.1, 7.0, INF, None),
    "of all sizes": (1e-9, 1e-3, 1.0, 1e6, 1e12, -1e12, 3.25, None),
}
_SELECT: Final = """
    CREATE TABLE t (id INT PRIMARY KEY, g INT, x DOUBLE, y DOUBLE);
    CREATE MATERIALIZED VIEW v AS SELECT
      g, COUNT(x) AS n, SUM(x) AS total, AVG(x) AS mean, MIN(x) AS least, MAX(x) AS most,
      VAR_POP(x) AS spread, VARIANCE(x) AS variance, STDDEV_SAMPLE(x) AS deviation, CORRELATION(x, y) AS corr,
      COUNT_DISTINCT(x) AS different, TOPK(x, 2) AS top, MODE() WITHIN GROUP (ORDER BY x) AS mode,
      PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x) AS middle, COLLECT_LIST(x) AS items,
      COVAR_POP(x, y) AS r_cp, COVAR_SAMP(x, y) AS r_cs, REGR_AVGX(x, y) AS r_ax, REGR_AVGY(x, y) AS r_ay,
      REGR_SXX(x, y) AS r_xx, REGR_SYY(x, y) AS r_yy, REGR_SXY(x, y) AS r_xy, REGR_COUNT(x, y) AS r_n,
      REGR_SLOPE(x, y) AS r_slope, REGR_INTERCEPT(x, y) AS r_at, REGR_R2(x, y) AS r_2
      FROM t GROUP BY g;
"""

Row = dict[str, Any]


class _Oracle:
    """What the view has to show of the values of a group."""

    def __init__(self, rows: Sequence[tuple[float | None, float | None]]) -> None:
        self.x = [x for x, _ in rows if x is not None]
        self.pairs = [(x, y) for x, y in rows if x is not None and y is not None]
        self.items = [x for x, _ in rows]
        self.size = sum(abs(Fraction(x)) for x in self.x if math.isfinite(x))

    def total(self) -> float | None:
        if not self.x:
            return None
        if NAN_IN(self.x) or (INF in self.x and -INF in self.x):
            return NAN
        endless = [x for x in self.x if math.isinf(x)]
        return endless[0] if endless else as_double(sum(map(Fraction, self.x)))

    def moments(self, xs: Sequence[float]) -> tuple[Fraction, Fraction]:
        exact = [Fraction(x) for x in xs]
        mean = Fraction(sum(exact)) / len(exact)
        return mean, Fraction(sum((x - mean) ** 2 for x in exact))


def NAN_IN(values: Sequence[float]) -> bool:
    return any(map(math.isnan, values))


def as_double(number: Fraction | int) -> float:
    try:
        return float(number)
    except OverflowError:
        return INF if number > 0 else -INF


def _order(value: float) -> tuple[bool, float]:
    """NaN is the greatest; 0.0 and -0.0 are one."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return _order(one) == _order(other)


def _near(one: float | None, other: float | None, size: float) -> bool:
    """Equal but for rounding: within 1e-9, or what the digits of the values allow."""
    if one is None or other is None or not (math.isfinite(one) and math.isfinite(other)):
        return _same(one, other)
    return abs(one - other) <= size


def wrong(rows: Sequence[tuple[float | None, float | None]], shown: Row) -> list[str]:
    """The names of the columns that are not what the rows give."""
    oracle = _Oracle(rows)
    x, n = oracle.x, len(oracle.x)
    found: dict[str, bool] = {"n": shown["n"] == n}
    total, size = oracle.total(), as_double(oracle.size)
    found["total"] = _near(shown["total"], total, 1e-9 * min(size, MOST))
    exact = None if not n else total if not math.isfinite(total or 0.0) else (total or 0.0) / n
    found["mean"] = (n > 0 and math.isinf(size)) or _near(shown["mean"], exact, 1e-9 * min(size, MOST))
    found["least"] = _same(shown["least"], min(x, key=_order, default=None))
    found["most"] = _same(shown["most"], max(x, key=_order, default=None))
    found["different"] = shown["different"] == len({_order(each) for each in x})
    ordered = sorted(x, key=_order)
    found["top"] = [_order(each) for each in shown["top"]] == [_order(each) for each in reversed(ordered[-2:])]
    found["middle"] = _same(shown["middle"], ordered[(n + 1) // 2 - 1] if n else None)
    counted = Counter(map(_order, x))
    often = max(counted.values(), default=0)
    best = min((each for each, times in counted.items() if times == often), default=None)
    found["mode"] = (shown["mode"] is None) if best is None else _order(shown["mode"]) == best
    items = Counter(None if each is None else _order(each) for each in shown["items"])
    found["items"] = items == Counter(None if each is None else _order(each) for each in oracle.items)
    found |= _of_moments(oracle, shown)
    return [name for name, right in found.items() if not right]


LARGE: Final = 1e150
"""Beyond it a square may be no DOUBLE: there is no variance."""


def _of_moments(oracle: _Oracle, shown: Row) -> dict[str, bool]:
    n, names = len(oracle.x), ("spread", "variance", "deviation")
    least = {"spread": 1, "variance": 2, "deviation": 2}
    there = {name: n >= least[name] for name in names}
    found = {name: shown[name] is None for name in names if not there[name]}
    if n and not all(abs(each) <= LARGE for each in oracle.x):
        found |= {name: shown[name] is not None and math.isnan(shown[name]) for name in names if there[name]}
    elif n:
        mean, spread = oracle.moments(oracle.x)
        # Of values around 1e9 the last seven digits are all that tells them apart.
        off = 1e-9 * float(spread) + 1e-14 * math.sqrt(float(spread)) * float(abs(mean))
        exact = {"spread": float(spread) / n, "variance": float(spread) / max(n - 1, 1)}
        for name, value in exact.items():
            if there[name]:
                found[name] = _near(shown[name], value, off)
        if there["deviation"]:
            found["deviation"] = _near(shown["deviation"] ** 2, exact["variance"], 3 * off)
    return found | {"corr": _of_pairs(oracle, shown["corr"])}


def _of_pairs(oracle: _Oracle, shown: float | None) -> bool:
    xs, ys = [x for x, _ in oracle.pairs], [y for _, y in oracle.pairs]
    if not xs:
        return shown is None
    beyond = [not all(abs(each) <= LARGE for each in values) for values in (xs, ys)]
    if any(beyond):
        alike = [not far and len(set(map(_order, values))) == 1 for far, values in zip(beyond, (xs, ys), strict=True)]
        return shown is None if any(alike) else shown is not None and math.isnan(shown)
    (mean_x, spread_x), (mean_y, spread_y) = oracle.moments(xs), oracle.moments(ys)
    if not spread_x or not spread_y:
        return shown is None
    both = float(sum((Fraction(x) - mean_x) * (Fraction(y) - mean_y) for x, y in oracle.pairs))
    deviations = math.sqrt(float(spread_x)) * math.sqrt(float(spread_y))
    if not deviations:
        return True
    worse = sum(
        float(abs(mean)) / math.sqrt(float(spread)) for mean, spread in ((mean_x, spread_x), (mean_y, spread_y))
    )
    return _near(shown, both / deviations, 1e-9 + 1e-14 * worse)


def _kinds(rows: Sequence[tuple[float | None, float | None]], shown: Row) -> dict[str, str]:
    """Of each result over pairs whether it is a number, NaN or nothing; none of them where squares vanish."""
    pairs = [(x, y) for x, y in rows if x is not None and y is not None]
    if any(0 < abs(each) < 1e-150 for pair in pairs for each in pair):
        return {}
    found = {name: value for name, value in shown.items() if name.startswith("r_")}
    return {name: "nothing" if v is None else "NaN" if math.isnan(v) else "a number" for name, v in found.items()}


@pytest.mark.parametrize("kind", _KINDS)
def test_what_was_there_before_leaves_no_trace(duck: DuckDBPyConnection, kind: str) -> None:
    for seed in range(40 if AT_LENGTH else 1):
        _history(duck, _KINDS[kind], random.Random(seed_of(31) * 1000 + seed), epochs=25 if AT_LENGTH else 5)


def _history(duck: DuckDBPyConnection, values: Sequence[float | None], chance: random.Random, epochs: int) -> None:
    catalog = MemoryCatalog()
    run(_SELECT, catalog)
    lake = DuckLake(catalog, catalog.definitions(), duck)
    rows: dict[int, tuple[int, float | None, float | None]] = {}
    offset = 0
    event: Callable[[Row], Row] = lambda row: row | {"_partition": 0, "_timestamp": _AT, "_stream_time": _AT}  # noqa: E731
    for epoch in range(epochs):
        events = []
        for _ in range(chance.randint(1, 6)):
            offset += 1
            key = chance.randint(1, 8)
            # Towards the end rows go: what is left has no NaN beside it any more.
            if key in rows and chance.random() < (0.3 if epoch < epochs // 2 else 0.7):
                del rows[key]
                events.append(event({"id": key, TOMBSTONE: True, "_offset": offset}))
                continue
            rows[key] = (chance.randint(1, 2), chance.choice(values), chance.choice(values))
            g, x, y = rows[key]
            events.append(event({"id": key, "g": g, "x": x, "y": y, "_offset": offset}))
        lake.feed("t__log", events)
        lake.refresh()
        shown = {row["g"]: row for row in lake.rows("v")}
        recomputed = {row["g"]: row for row in lake.expected("v")}
        assert set(shown) == set(recomputed) == {g for g, _, _ in rows.values()}
        for g, row in shown.items():
            inside = [(x, y) for of, x, y in rows.values() if of == g]
            assert not wrong(inside, row), f"epoch {epoch}: {wrong(inside, row)} of {inside}: {row}"
            # What `verify` and a pull compute.
            plain = recomputed[g]
            assert not wrong(inside, plain), f"epoch {epoch}, recomputed: {wrong(inside, plain)} of {inside}: {plain}"
            assert _kinds(inside, row) == _kinds(inside, plain), f"epoch {epoch} of {inside}: {row}, {plain}"
    lake.close()
