"""Every aggregate function once or more, with DuckDB's own words for the same over all rows: the oracle of its rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AggregateCall, AggregateStage
from tests.support.rule_harness import append_log, call, core, output

COLUMNS = (
    ("k", t.VARCHAR),
    ("v", t.INT),
    ("s", t.VARCHAR),
    ("d", t.decimal(38, 18)),
    ("x", t.DOUBLE),
    ("y", t.BYTES),
    ("m", t.map_of(t.VARCHAR, t.INT)),
    ("l", t.array(t.INT)),
    ("z", t.DOUBLE),
)
LOG = append_log(COLUMNS)
AT = "(_stream_time, _partition, _offset)"
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

PAIR = t.struct(("sort_col", t.INT), ("col0", t.VARCHAR))
TWO, FALSE, DISTINCT = ("2", t.INT), ("false", t.BOOLEAN), {"distinct": True}


def _seen(items: str, *, skip_nulls: bool = False) -> str:
    """An aggregate over items in the order of events."""
    where = f" FILTER (WHERE {items} IS NOT NULL)" if skip_nulls else ""
    return f"coalesce(list({items} ORDER BY {AT}){where}, [])"


def _first_seen(items: str) -> str:
    """The different items (NULL is one) in the order in which they are first met."""
    met = "list_position(list_transform(seen, lambda other: {'is': other}), {'is': item})"
    return f"list_transform([{_seen(items)}], lambda seen: list_filter(seen, lambda item, nr: {met} = nr))[1]"


def _best(order: str) -> str:
    return f"coalesce(list({{'sort_col': v, 'col0': s}} ORDER BY {order}) FILTER (WHERE v IS NOT NULL), [])[:2]"


Case = tuple[str, list[tuple[str, t.SqlType]], str, dict[str, Any]]

CALLS: dict[str, Case] = {
    # name: (function, arguments, DuckDB's own words over all rows, options of the call)
    "n": ("COUNT", [], "count(*)", {}),
    "nv": ("COUNT", [("v", t.INT)], "count(v)", {}),
    "nd": ("COUNT", [("s", t.VARCHAR)], "count(DISTINCT s)", DISTINCT),
    "n2": (
        "COUNT",
        [("s", t.VARCHAR), ("v", t.INT)],
        "count(DISTINCT {'s': s, 'v': v}) FILTER (WHERE s || v > '')",
        DISTINCT,
    ),
    "nx": ("COUNT_DISTINCT", [("x", t.DOUBLE)], "count(DISTINCT x)", {}),
    "nm": ("COUNT_DISTINCT", [("m", COLUMNS[6][1])], "count(DISTINCT m)", {}),
    "sv": ("SUM", [("v", t.INT)], "sum(v)", {}),
    "sd": ("SUM", [("d", t.decimal(38, 18))], "sum(d)", {}),
    "ss": ("SUM", [("d", t.decimal(38, 18))], "sum(DISTINCT d)", DISTINCT),
    "sl": ("SUM_LIST", [("l", t.array(t.INT))], "sum(coalesce(list_sum(l), 0)) FILTER (WHERE l IS NOT NULL)", {}),
    "av": ("AVG", [("v", t.INT)], "avg(v)", {}),
    "ab": ("AVG", [("v", t.BIGINT)], "avg(v)", {}),
    "ad": ("AVG", [("v", t.INT)], "avg(DISTINCT v)", DISTINCT),
    "ax": ("AVG", [("x", t.DOUBLE)], "fsum(x) / count(x)", {}),
    "yes": ("BOOL_AND", [("v > 0", t.BOOLEAN)], "bool_and(v > 0)", {}),
    "any": ("BOOL_OR", [("v > 0", t.BOOLEAN)], "bool_or(v > 0)", {}),
    "lo": ("MIN", [("s", t.VARCHAR)], "min(s)", {}),
    "by": ("MAX", [("y", t.BYTES)], "max(y)", {}),
    "hi": ("MAX", [("d", t.decimal(38, 18))], "max(d)", {}),
    "hx": ("MAX", [("x", t.DOUBLE)], "max(x)", DISTINCT),
    "lb": (
        "MIN_BY",
        [("s", t.VARCHAR), ("v", t.INT)],
        "(min({'v': v, 'p': s IS NOT NULL, 's': s}) FILTER (WHERE v IS NOT NULL)).s",
        {},
    ),
    "hb": (
        "MAX_BY",
        [("s", t.VARCHAR), ("v", t.INT)],
        "(max({'v': v, 'p': s IS NOT NULL, 's': s}) FILTER (WHERE v IS NOT NULL)).s",
        {},
    ),
    "top": ("TOPK", [("v", t.INT), TWO], "coalesce(list(v ORDER BY v DESC) FILTER (WHERE v IS NOT NULL), [])[:2]", {}),
    "tops": ("TOPK", [("v", t.INT), ("s", t.VARCHAR), TWO], _best("v DESC, s DESC NULLS LAST"), {}),
    "topd": (
        "TOPKDISTINCT",
        [("s", t.VARCHAR), TWO],
        "coalesce(list(DISTINCT s ORDER BY s DESC) FILTER (WHERE s IS NOT NULL), [])[:2]",
        {},
    ),
    "dev": ("STDDEV_SAMPLE", [("x", t.DOUBLE)], "stddev_samp(x)", {}),
    "dp": ("STDDEV_POP", [("v", t.INT)], "stddev_pop(v)", {}),
    "va": ("VARIANCE", [("x", t.DOUBLE)], "var_samp(x)", {}),
    "vp": ("VAR_POP", [("v", t.INT)], "var_pop(v)", {}),
    "cor": (
        "CORRELATION",
        [("x", t.DOUBLE), ("z", t.DOUBLE)],
        "CASE WHEN count(DISTINCT x) FILTER (WHERE z IS NOT NULL) > 1"
        " AND count(DISTINCT z) FILTER (WHERE x IS NOT NULL) > 1 THEN corr(x, z) END",
        {},
    ),
    "hist": ("HISTOGRAM", [("s", t.VARCHAR)], "coalesce(histogram(s), map {})", {}),
    "attr": (
        "ATTR",
        [("s", t.VARCHAR)],
        "CASE WHEN count(DISTINCT {'s': s}) = 1 THEN min(s) END",
        {},
    ),
    "all": ("COLLECT_LIST", [("s", t.VARCHAR)], _seen("s"), {}),
    "maps": ("COLLECT_LIST", [("m", COLUMNS[6][1])], _seen("m"), {}),
    "set": ("COLLECT_SET", [("s", t.VARCHAR)], _first_seen("s"), {}),
    "sets": ("COLLECT_LIST", [("v", t.INT)], _first_seen("v"), DISTINCT),
    "setm": ("COLLECT_SET", [("m", COLUMNS[6][1])], _first_seen("m"), {}),
    "l": ("LATEST_BY_OFFSET", [("s", t.VARCHAR)], f"{_seen('s', skip_nulls=True)}[-1]", {}),
    "ln": ("LATEST_BY_OFFSET", [("s", t.VARCHAR), FALSE], f"{_seen('s')}[-1]", {}),
    "lm": ("LATEST_BY_OFFSET", [("m", COLUMNS[6][1])], f"{_seen('m', skip_nulls=True)}[-1]", {}),
    "l2": ("LATEST_BY_OFFSET", [("s", t.VARCHAR), TWO], f"{_seen('s', skip_nulls=True)}[-2:]", {}),
    "e": ("EARLIEST_BY_OFFSET", [("x", t.DOUBLE)], f"{_seen('x', skip_nulls=True)}[1]", {}),
    "e3": ("EARLIEST_BY_OFFSET", [("v", t.INT), ("3", t.INT), FALSE], f"{_seen('v')}[:3]", {}),
}

ORDERED = {name for name, (function, *_) in CALLS.items() if FUNCTIONS[function].ordered}

values = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b"]),
        "v": st.none() | st.integers(-5, 5) | st.sampled_from([2**31 - 1, -(2**31)]),
        "s": st.none() | st.sampled_from(["", "p", "q", "ü"]),
        "d": st.none() | st.decimals(-(10**9), 10**9, places=18),
        "x": st.none() | st.sampled_from([0.0, 0.1]) | st.floats(-1e6, 1e6).map(lambda value: round(value, 3)),
        "y": st.sampled_from([None, b"", b"a", b"\xff"]),
        "m": st.sampled_from([None, {}, {"a": 1}, {"a": None, "b": 2}]),
        "l": st.sampled_from([None, [], [1, 2], [None, 3]]),
        "z": st.none() | st.integers(-3, 3).map(float),
    }
)


@st.composite
def logs(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Events in batches: partitions interleave, stream times run backwards between batches, batches may be empty."""
    rows = draw(st.lists(st.tuples(values, st.integers(0, 2), st.integers(0, 3)), max_size=14))
    events = [
        {**row, "_partition": partition, "_offset": offset, "_stream_time": BEGIN + timedelta(seconds=second)}
        for offset, (row, partition, second) in enumerate(rows)
    ]
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), max_size=3)))
    return [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def called(alias: str, name: str, **options: Any) -> AggregateCall:
    """One of `CALLS`, as the planner makes it."""
    function, arguments, _, own = CALLS[name]
    return call(alias, function, arguments, **{**own, **options})


def rounded(value: str, name: str) -> str:
    """Sums and coefficients of DOUBLE that are near zero have few digits that mean something."""
    return f"round({value}, 6)" if name in ("cor", "ax") else value


def grouped(*names: str, where: str | None = None, hidden: bool = False) -> tuple[AggregateStage, str]:
    """A stage GROUP BY k with these calls, and the query over `history` that it must equal."""
    calls = tuple(called(f"__a{i}", name) for i, name in enumerate(names))
    key = "__k0" if hidden else "k"
    outputs = [output("k", "k", t.VARCHAR)] * (not hidden)
    outputs += [output(name, rounded(c.name, name), c.type) for name, c in zip(names, calls, strict=True)]
    stage = AggregateStage(
        table="view",
        body=(core(LOG, where),),
        group=(output(key, "k", t.VARCHAR),),
        aggregates=calls,
        outputs=tuple(outputs),
        key=(key,),
    )
    shown = ", ".join([*(["k"] * (not hidden)), *(rounded(CALLS[name][2], name) for name in names)])
    return stage, f"SELECT {shown} FROM history {f'WHERE {where}' if where else ''} GROUP BY k"
