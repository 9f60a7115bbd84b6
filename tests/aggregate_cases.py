"""Every aggregate function once or more, with DuckDB's own words for the same over all rows: the oracle of its rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from jobs.ivm.stage import AggregateStage
from jobs.sql import types as t
from tests.rule_harness import append_log, call, output, parse

COLUMNS = (
    ("k", t.VARCHAR),
    ("v", t.INT),
    ("s", t.VARCHAR),
    ("d", t.decimal(38, 18)),
    ("x", t.DOUBLE),
    ("y", t.BYTES),
    ("m", t.map_of(t.VARCHAR, t.INT)),
)
LOG = append_log(COLUMNS)
AT = "(_stream_time, _partition, _offset)"
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

CALLS: dict[str, tuple[str, list[tuple[str, t.SqlType]], str]] = {
    # name: (function, arguments, DuckDB's own words over the whole history)
    "n": ("COUNT", [], "count(*)"),
    "nv": ("COUNT", [("v", t.INT)], "count(v)"),
    "sv": ("SUM", [("v", t.INT)], "sum(v)"),
    "sd": ("SUM", [("d", t.decimal(38, 18))], "sum(d)"),
    "av": ("AVG", [("v", t.INT)], "avg(v)"),
    "ab": ("AVG", [("v", t.BIGINT)], "avg(v)"),
    "ax": ("AVG", [("x", t.DOUBLE)], "fsum(x) / count(x)"),
    "lo": ("MIN", [("s", t.VARCHAR)], "min(s)"),
    "by": ("MAX", [("y", t.BYTES)], "max(y)"),
    "hi": ("MAX", [("d", t.decimal(38, 18))], "max(d)"),
    "dev": ("STDDEV_SAMPLE", [("x", t.DOUBLE)], "stddev_samp(x)"),
    "hist": ("HISTOGRAM", [("s", t.VARCHAR)], "coalesce(histogram(s), map {})"),
    "all": ("COLLECT_LIST", [("s", t.VARCHAR)], f"list(s ORDER BY {AT})"),
    "l": ("LATEST_BY_OFFSET", [("s", t.VARCHAR)], f"(arg_max({{'v': s}}, {AT}) FILTER (WHERE s IS NOT NULL)).v"),
    "ln": ("LATEST_BY_OFFSET", [("s", t.VARCHAR), ("false", t.BOOLEAN)], f"(arg_max({{'v': s}}, {AT})).v"),
    "l2": (
        "LATEST_BY_OFFSET",
        [("s", t.VARCHAR), ("2", t.INT)],
        f"coalesce(list(s ORDER BY {AT}) FILTER (WHERE s IS NOT NULL), [])[-2:]",
    ),
    "e": ("EARLIEST_BY_OFFSET", [("x", t.DOUBLE)], f"(arg_min({{'v': x}}, {AT}) FILTER (WHERE x IS NOT NULL)).v"),
    "e3": ("EARLIEST_BY_OFFSET", [("v", t.INT), ("3", t.INT), ("false", t.BOOLEAN)], f"list(v ORDER BY {AT})[:3]"),
}

_values = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b"]),
        "v": st.none() | st.integers(-5, 5) | st.sampled_from([2**31 - 1, -(2**31)]),
        "s": st.none() | st.sampled_from(["", "p", "q", "ü"]),
        "d": st.none() | st.decimals(-(10**9), 10**9, places=18),
        "x": st.none() | st.floats(-1e6, 1e6),
        "y": st.sampled_from([None, b"", b"a", b"\xff"]),
    }
)


@st.composite
def logs(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Events in batches: partitions interleave, stream times run backwards between batches, batches may be empty."""
    rows = draw(st.lists(st.tuples(_values, st.integers(0, 2), st.integers(0, 3)), max_size=14))
    events = [
        {**row, "_partition": partition, "_offset": offset, "_stream_time": BEGIN + timedelta(seconds=second)}
        for offset, (row, partition, second) in enumerate(rows)
    ]
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), max_size=3)))
    return [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def grouped(*names: str, where: str | None = None, hidden: bool = False) -> tuple[AggregateStage, str]:
    """A stage GROUP BY k with these calls, and the query over `history` that it must equal."""
    calls = tuple(call(f"__a{i}", *CALLS[name][:2]) for i, name in enumerate(names))
    key = "__k0" if hidden else "k"
    outputs = [output("k", "k", t.VARCHAR)] * (not hidden)
    outputs += [output(name, c.name, c.type) for name, c in zip(names, calls, strict=True)]
    stage = AggregateStage(
        table="view",
        input=LOG,
        where=parse(where) if where else None,
        group=(output(key, "k", t.VARCHAR),),
        aggregates=calls,
        outputs=tuple(outputs),
        key=(key,),
    )
    shown = ", ".join([*(["k"] * (not hidden)), *(CALLS[name][2] for name in names)])
    return stage, f"SELECT {shown} FROM history {f'WHERE {where}' if where else ''} GROUP BY k"
