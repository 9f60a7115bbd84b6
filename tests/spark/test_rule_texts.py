"""A rule's text for Spark gives what its text for DuckDB gives: every kind of stage over the same small relations."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.ivm.rules.stored import stored_columns
from strandline.jobs.model.stage import Stage
from strandline.jobs.model.stage_columns import storage_of, visible_columns
from tests.support.rule_harness import RuleBench, multiset
from tests.unit.ivm.rules.test_delta_join import priced
from tests.unit.ivm.rules.test_join_sides import SHAPES, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def epochs(seed: int, count: int) -> list[list[tuple[str, int, tuple[int | None, int | None] | None]]]:
    """Rows of three tables that come, change and go."""
    chance = random.Random(seed)
    value = [None, 0, 1, 2]

    def one() -> tuple[str, int, tuple[int | None, int | None] | None]:
        row = (chance.choice(value), chance.choice(value)) if chance.random() < 0.8 else None
        return chance.choice("abc"), chance.randint(0, 5), row

    return [[one() for _ in range(12)] for _ in range(count)]


def same_on_spark(spark: SparkSession, bench: RuleBench, stage: Stage, changed: list[str] | None) -> None:
    """Run the text for Spark over the bench's relations, as they were when it ran its own."""
    session = spark.newSession()
    text = maintenance(stage, "spark", changed)
    for name, side, each in relations(stage, text, engine_of("spark")):
        kinds = [f"`{n}` {kind.spark()}" for n, kind in (*each.relation.columns, *each.relation.hidden)]
        weight = ["`__weight` BIGINT"] if side == "delta" else []
        rows = bench.query(f'SELECT * FROM "{side}_{each.alias}"')
        session.createDataFrame(rows, ", ".join([*kinds, *weight])).createOrReplaceTempView(name)
    stored = ", ".join(f"`{name}` {kind.spark()}" for name, kind in stored_columns(stage))
    before = session.createDataFrame(bench.query("SELECT * FROM before"), stored)
    before.selectExpr("*", "'a file' AS __file", "0L AS __position").createOrReplaceTempView("self_old")
    shown = [name for name, _ in visible_columns(stage)] + (["__exists"] if storage_of(stage) == "keyed" else [])
    columns = ", ".join(f"`{name}`" for name in shown)
    found = session.sql(f"SELECT {columns} FROM ({text})").collect()
    assert multiset(found) == multiset(bench.query(f"SELECT {columns.replace('`', chr(34))} FROM settled"))


@pytest.mark.parametrize("shape", ["left, more than equality", "full", "right of left", "anti", "self"])
def test_joins(spark: SparkSession, shape: str) -> None:
    stage, _ = SHAPES[shape]
    with duckdb.connect(config={"threads": 1}) as db:
        bench, tables = RuleBench(db, stage, initial=True), Tables()
        names = {each.alias: each.relation.name for each in stage.body[0].inputs}
        for batch, changed in zip(epochs(7, 2), (None, list(names)), strict=True):
            made = tables.changes(batch)
            db.execute("CREATE OR REPLACE TABLE before AS FROM self_old")
            bench.epoch({alias: made[name] for alias, name in names.items()})
            same_on_spark(spark, bench, stage, changed)


def test_a_table_as_of_an_event(spark: SparkSession) -> None:
    """The text is analyzed and runs over empty relations; what it gives is the unit test's."""
    stage = priced("left")
    session = spark.newSession()
    text = maintenance(stage, "spark", ["e"])
    for name, side, each in relations(stage, text, engine_of("spark")):
        kinds = [f"`{n}` {kind.spark()}" for n, kind in each.relation.columns]
        weight = ["`__weight` BIGINT"] if side == "delta" else []
        session.createDataFrame([], ", ".join([*kinds, *weight])).createOrReplaceTempView(name)
    rows: list[Any] = session.sql(text).collect()
    assert rows == []
