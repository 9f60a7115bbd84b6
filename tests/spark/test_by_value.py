"""Aggregates over values that have rows of their own, by Spark and DuckDB in turn: each goes on from what the other has
stored."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.aggregates import of_values
from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.properties.on_delta import PIPELINE, feed, refreshed
from tests.support.catalog_from_sql import run
from tests.support.invariants import assert_correct
from tests.support.lake_tables import NOON

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

STATEMENTS = (
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR, age INT) WITH (PARTITIONS = 1)",
    "CREATE MATERIALIZED VIEW v AS SELECT id % 2 AS k, MEDIAN(age) AS m, PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY"
    " name DESC) AS p, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY age DESC) AS q, HISTOGRAM(name) AS h,"
    " COLLECT_LIST(age) AS l, ARRAY_AGG(age ORDER BY name DESC) AS o, STRING_AGG(name, '|' ORDER BY age) AS t,"
    " MODE(age) AS d, MAX(age) AS x, COUNT(DISTINCT name) AS n FROM users GROUP BY id % 2",
    "CREATE MATERIALIZED VIEW total AS SELECT MEDIAN(age) AS m, ARRAY_AGG(DISTINCT age ORDER BY age) AS o,"
    " LAST_VALUE(name ORDER BY age) AS f, MEDIAN(age) FILTER (WHERE name = 'a') AS a FROM users",
    "CREATE MATERIALIZED VIEW over AS SELECT id, MEDIAN(age) OVER (PARTITION BY name) AS m, STDDEV(age) OVER (ORDER BY"
    " age, id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS s, ARRAY_AGG(age) OVER (PARTITION BY id % 2 ORDER BY age"
    " DESC ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS l, STRING_AGG(name, '|') OVER (PARTITION BY id % 2 ORDER BY"
    " age) AS t, MODE(age) FILTER (WHERE name = 'a') OVER () AS d, TOPK(age, 2) OVER (ORDER BY age, id ROWS BETWEEN 4"
    " PRECEDING AND CURRENT ROW) AS k FROM users",
    "CREATE MATERIALIZED VIEW framed AS SELECT id, SUM(age) OVER (PARTITION BY id % 2 ORDER BY name DESC GROUPS BETWEEN"
    " 1 PRECEDING AND 1 FOLLOWING) AS s, MEDIAN(age) OVER (ORDER BY name GROUPS UNBOUNDED PRECEDING EXCLUDE GROUP) AS"
    " m, ARRAY_AGG(age) OVER (PARTITION BY id % 2 ORDER BY name RANGE UNBOUNDED PRECEDING EXCLUDE CURRENT ROW) AS l,"
    " COUNT(*) FILTER (WHERE age > 3) OVER (ORDER BY name ROWS BETWEEN 4 PRECEDING AND 4 FOLLOWING EXCLUDE TIES) AS c,"
    " FIRST_VALUE(id) OVER (ORDER BY name ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE GROUP) AS f FROM users",
    "CREATE MATERIALIZED VIEW bounded AS SELECT id, SUM(id) OVER (PARTITION BY id % 2 ORDER BY name ROWS BETWEEN age"
    " PRECEDING AND 1 FOLLOWING) AS s, ARRAY_AGG(id) OVER (ORDER BY age DESC RANGE BETWEEN id PRECEDING AND age"
    " FOLLOWING EXCLUDE TIES) AS l, COUNT(*) OVER (ORDER BY name GROUPS BETWEEN id PRECEDING AND CURRENT ROW) AS c"
    " FROM users WHERE age IS NOT NULL",
)


def test_both_engines_give_what_the_select_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_values, "_LEAST", 1)  # windows that are left all the time
    monkeypatch.setattr(of_values, "_STRETCH", 2)
    lake = LakeLayout(tmp_path / "lake")
    catalog = Catalog(lake)
    for statement in STATEMENTS:
        run(statement, catalog, PIPELINE)
    chance, offsets = random.Random(7), count()
    with DuckDBEngine("1GB", 2) as duckdb_engine:
        for epoch in range(6):
            rows = []
            for _ in range(chance.randint(1, 25)):
                at = next(offsets)
                place = {"_partition": 0, "_offset": at, "_timestamp": NOON, "_stream_time": NOON + timedelta(0, at)}
                person = {"id": chance.randint(0, 20), "name": chance.choice([None, "a", "b", "ü"])}
                age = chance.choice([None, chance.randint(0, 9) + 5 * epoch])
                rows.append({**person, "age": age, "_tombstone": chance.random() < 0.2, **place})
            feed(lake, {"users__log": rows}, epoch)
            by_spark = epoch % 2 == 0
            sessions = SparkSessions(lambda: spark) if by_spark else None
            context = RunContext(sessions, lake, f"{PIPELINE}/1", duckdb_engine=None if by_spark else duckdb_engine)
            assert not refreshed(context)
            assert_correct(lake, PIPELINE)
