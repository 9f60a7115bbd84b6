"""The texts that compute touched parts again give on Spark what they give on DuckDB."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tests.spark.test_rule_texts import same_on_spark
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
