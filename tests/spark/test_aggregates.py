"""Every aggregate function, maintained by Spark's text of the rule, gives what DuckDB's text gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import duckdb

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.ivm.rules.stored import stored_columns
from tests.support.aggregate_cases import CALLS, called
from tests.support.rule_harness import RuleBench, multiset
from tests.unit.functions.aggregates.test_retraction import Table, body, some_operations, stage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plain(value: Any) -> Any:
    """A value of either engine as plain lists, dicts and bytes."""
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {name: plain(inner) for name, inner in value.asDict().items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def test_every_function_on_both_engines(spark: SparkSession) -> None:
    """In one query; first all rows, then a batch in which rows come, change and go."""
    stage = stage_of(body(places=True), [called(f"__a{n}", name) for n, name in enumerate(CALLS)], list(CALLS))
    chance, table = random.Random(11), Table()
    stored = stored_columns(stage)
    with duckdb.connect(config={"threads": 1}) as duck:
        duck.execute("SET TimeZone = 'UTC'")
        bench = RuleBench(duck, stage, initial=True)
        bench.epoch(table.changes(some_operations(chance, 40)))
        before = bench.query("SELECT * FROM self_old")
        bench.epoch(table.changes(some_operations(chance, 12)))
        session = spark.newSession()
        text = maintenance(stage, "spark", ["s"])
        for name, side, each in relations(stage, text, engine_of("spark")):
            kinds = [f"`{n}` {kind.spark()}" for n, kind in (*each.relation.columns, *each.relation.hidden)]
            weight = ["`__weight` BIGINT"] if side == "delta" else []
            rows = bench.query(f'SELECT * FROM "{side}_{each.alias}"')
            session.createDataFrame(rows, ", ".join([*kinds, *weight])).createOrReplaceTempView(name)
        kinds = [f"`{name}` {kind.spark()}" for name, kind in stored]
        stored_rows = session.createDataFrame(before, ", ".join(kinds))
        stored_rows.selectExpr("*", "'a file' AS __file", "0L AS __position").createOrReplaceTempView("self_old")
        shown = ", ".join(f"`{name}`" for name in ("k", *CALLS, "__exists"))
        by_spark = session.sql(f"SELECT {shown} FROM ({text})").collect()
        by_duckdb = bench.query(f"SELECT {shown.replace('`', chr(34))} FROM settled")
    names = ("k", *CALLS, "__exists")
    left = {row[0]: dict(zip(names, map(plain, row), strict=True)) for row in by_spark}
    right = {row[0]: dict(zip(names, row, strict=True)) for row in by_duckdb}
    different = [
        (key, name, left[key][name], right[key][name])
        for key in right
        for name in names
        if multiset([[left[key][name]]]) != multiset([[right[key][name]]])
    ]
    assert left.keys() == right.keys() == {None, "a", "b"}
    assert not different
