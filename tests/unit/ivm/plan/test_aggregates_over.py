"""Every aggregate OVER every frame: computed of the frame's rows as of a group's, equal to the engine's own."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest

from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import SqlError
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.lake_tables import NOON

if TYPE_CHECKING:
    import duckdb

    from strandline.jobs.catalog.catalog import Catalog

CALLS = {
    "spread": [
        "STDDEV(age)",
        "STDDEV_SAMP(age)",
        "VAR_POP(age)",
        "CORR(age, id)",
        "REGR_SLOPE(age, id)",
        "COVAR_POP(age, id)",
    ],
    "ranks": [
        "MEDIAN(age)",
        "PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY name DESC)",
        "MODE(age)",
        "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY age DESC)",
    ],
    "lists": ["ARRAY_AGG(age)", "COLLECT_SET(name)", "STRING_AGG(name, '|')", "ARRAY_AGG(age ORDER BY name DESC)"],
    "tops": ["TOPK(age, 2)", "TOPKDISTINCT(age, 2)", "MAX_BY(name, age)", "ANY_VALUE(name)", "HISTOGRAM(name)"],
    "distinct": [
        "SUM(DISTINCT age)",
        "AVG(DISTINCT age)",
        "COUNT(DISTINCT age, name)",
        "ARRAY_AGG(DISTINCT name)",
        "ATTR(name)",
    ],
    "bits": ["BIT_AND(age)", "BIT_XOR(age)", "COUNT_IF(age > 1)", "FIRST_VALUE(name ORDER BY age)"],
    "ends": [
        "FIRST_VALUE(name) IGNORE NULLS",
        "LAST_VALUE(name IGNORE NULLS)",
        "FIRST_VALUE(name)",
        "LAST_VALUE(age)",
        "NTH_VALUE(age, 1 + 1)",
    ],
    "filtered": ["MEDIAN(10 / age) FILTER (WHERE age > 0)", "STRING_AGG(name, '|') FILTER (WHERE age > 1)"],
}
FRAMES = {
    "all": "",
    "part": "PARTITION BY name",
    "so far": "PARTITION BY name ORDER BY age",
    "near": "PARTITION BY id % 2 ORDER BY age DESC ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    "before": "ORDER BY age, name ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
    "alike": "PARTITION BY id % 2 ORDER BY age RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    "spelled out": "PARTITION BY name ORDER BY age RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "from here": "ORDER BY id % 3 RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "whole": "PARTITION BY name ORDER BY age ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("family", CALLS)
def test_after_every_epoch_the_view_is_what_its_select_gives(
    family: str, frame: str, catalog: Catalog, duck: duckdb.DuckDBPyConnection
) -> None:
    calls = [
        call
        for call in CALLS[family]
        if not frame.startswith(("alike", "spelled", "from")) or not call.startswith("NTH")
    ]
    shown = ", ".join(f"{call} OVER ({FRAMES[frame]}) AS c{number}" for number, call in enumerate(calls))
    assert isinstance(run(f"CREATE MATERIALIZED VIEW v AS SELECT id, {shown} FROM users", catalog), View)
    chance, lake, offsets = random.Random(f"{family} {frame}"), DuckLake(catalog, catalog.definitions(), duck), count()
    for _ in range(4):
        rows = []
        for _ in range(chance.randint(1, 9)):
            at = next(offsets)
            place = {"_partition": 0, "_offset": at, "_timestamp": NOON, "_stream_time": NOON + timedelta(seconds=at)}
            person = {"id": chance.randint(0, 9), "name": chance.choice([None, "a", "b", "c"])}
            rows.append(
                {**person, "age": chance.choice([None, 0, 1, 2, 3]), "_tombstone": chance.random() < 0.2, **place}
            )
        lake.feed("users__log", rows)
        lake.refresh()
        assert lake.wrong("v") == ""
    lake.close()


def test_lists_are_in_the_order_of_the_window(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    text = (
        "CREATE MATERIALIZED VIEW v AS SELECT id, ARRAY_AGG(id) OVER (ORDER BY age DESC) AS l,"
        " ARRAY_AGG(id) OVER () AS e FROM users"
    )
    run(text, catalog)
    lake = DuckLake(catalog, catalog.definitions(), duck)
    place = {"_partition": 0, "_timestamp": NOON, "_stream_time": NOON}
    lake.feed("users__log", [{"id": at, "name": "a", "age": at % 2, "_offset": at, **place} for at in (1, 2, 3)])
    lake.refresh()
    found = {row["id"]: (row["l"], row["e"]) for row in lake.rows("v")}
    assert found == {1: ([1, 3], [1, 2, 3]), 3: ([1, 3], [1, 2, 3]), 2: ([1, 3, 2], [1, 2, 3])}
    lake.close()


@pytest.mark.parametrize("name", sorted(name for name in FUNCTIONS if "ORDER BY" not in name))
def test_every_aggregate_is_taken_over_a_window_or_refused_with_a_reason(name: str, catalog: Catalog) -> None:
    arguments = {
        **dict.fromkeys(("TOPK", "TOPKDISTINCT"), "age, 2"),
        **dict.fromkeys(("BOOL_AND", "BOOL_OR", "EVERY", "ANY"), "age > 1"),
        "HISTOGRAM": "name",
        "SUM_LIST": "ARRAY[age]",
        **dict.fromkeys(("MIN_BY", "MAX_BY", "CORRELATION", "COVAR_POP", "COVAR_SAMP"), "age, id"),
        **{each: "age, id" for each in FUNCTIONS if each.startswith("REGR_")},
    }.get(name, "age")
    within = " WITHIN GROUP (ORDER BY age)" if name.startswith("PERCENTILE") else ""
    call = f"{name}({'0.5' if within else arguments}){within}"
    text = f"CREATE MATERIALIZED VIEW v AS SELECT id, {call} OVER () AS c FROM users"
    if name in ("LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"):
        with pytest.raises(SqlError, match="unknown window function"):
            run(text, catalog)
        return
    assert isinstance(run(text, catalog), View)
