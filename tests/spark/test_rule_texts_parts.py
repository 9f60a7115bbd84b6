"""The texts that compute touched parts again give on Spark what they give on DuckDB."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from strandline.jobs.ivm.plan.plan import plan
from tests.spark.test_rule_texts import same_on_spark
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog
from tests.support.rule_harness import RuleBench
from tests.unit.ivm.rules import test_analytic as analytic
from tests.unit.ivm.rules import test_session as session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from strandline.jobs.model.stage import Stage


def play(spark: SparkSession, stage: Stage, states: Sequence[list[dict[str, Any]]]) -> None:
    """The first refresh, and one with changes, on both engines."""
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute("SET TimeZone = 'UTC'")
        bench = RuleBench(db, stage, initial=True)
        for number, state in enumerate(states):
            db.execute("CREATE OR REPLACE TABLE before AS FROM self_old")
            bench.state(state)
            same_on_spark(spark, bench, stage, ["s"] if number else None)


def employees(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    values = {"k": (None, "a", "b"), "v": (None, 0, 1, 2), "s": (None, "p", "q"), "d": (None, Decimal("1.25"))}
    chosen = sorted(chance.sample(range(8), 6))
    return [{"id": number, **{name: chance.choice(given) for name, given in values.items()}} for number in chosen]


@pytest.mark.parametrize(
    "stage",
    [
        analytic.stage_of(*analytic.CALLS),
        analytic.stage_of("number", "rank", shown="s", partition="__k0", keep="__w0 <= 2"),
        analytic.stage_of("number", "sum", partition=None),
    ],
    ids=["every function", "the best of a hidden partition", "one partition"],
)
def test_window_functions(spark: SparkSession, stage: Stage) -> None:
    play(spark, stage, [employees(3), employees(4)])


@pytest.mark.parametrize(
    "stage",
    [session.stage_of(session.LOG, grace=5), session.stage_of(session.LOG, shown="", skip=True)],
    ids=["late rows", "hidden groups and bounds"],
)
def test_sessions(spark: SparkSession, stage: Stage) -> None:
    """Sessions grow, merge and begin; a row of long ago is late."""
    rows = session.logged(("a", 0), ("a", 20), ("b", 0), ("a", 10), ("b", 300), ("a", 100), ("a", 295))
    play(spark, stage, [rows[:3], rows])


NESTED = "CREATE TABLE s (id INT PRIMARY KEY, k VARCHAR, l ARRAY<INT>, r STRUCT<x INT, y ARRAY<DOUBLE>>);"
VALUES: Sequence[dict[str, Any]] = [
    {"l": [1, None], "r": {"x": 1, "y": None}},
    {"l": [1, 2], "r": {"x": 1, "y": [0.0]}},
    {"l": [1], "r": {"x": None, "y": [-0.0]}},
    {"l": [], "r": {"x": 2, "y": [float("nan")]}},
    {"l": [None], "r": None},
    {"l": None, "r": {"x": 2, "y": [None]}},
]


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id, ROW_NUMBER() OVER (ORDER BY l, r DESC) AS n, RANK() OVER (ORDER BY r NULLS LAST) AS m FROM s",
        "SELECT id, MAX(l) OVER (PARTITION BY k ORDER BY id) AS m, MIN(r) OVER (PARTITION BY k) AS n FROM s",
        "SELECT k, MAX(l) AS a, MIN(l) AS b, MAX(r) AS c, MIN(r) AS d, MIN_BY(id, r) AS e, MAX_BY(l, id) AS f"
        " FROM s GROUP BY k",
        "SELECT k, ARRAY_AGG(id ORDER BY l DESC, r DESC) AS a, ARRAY_AGG(l ORDER BY k) AS b FROM s GROUP BY k",
        "SELECT id, l < ARRAY[1, 2] AS a, r >= STRUCT(x := 1, y := ARRAY[0e0]) AS b, l BETWEEN ARRAY[1]"
        " AND ARRAY[2] AS c FROM s WHERE l <> ARRAY[7]",
    ],
    ids=["over", "extremes over", "extremes", "lists", "comparisons"],
)
def test_nested_values_have_one_order(spark: SparkSession, select: str) -> None:
    catalog = MemoryCatalog()
    run(NESTED, catalog)
    stages = plan(run(f"CREATE MATERIALIZED VIEW v AS {select};", catalog), catalog).stages
    chance = random.Random(1)
    rows = [{"id": number, "k": chance.choice("ab"), **each} for number, each in enumerate([*VALUES, *VALUES])]
    play(spark, stages[-1], [rows[2:], rows[:-3]])
