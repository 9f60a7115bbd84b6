"""No function fails on a row without saying so: Spark's lenient texts and guards, all in one query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.functions.failing import failing, lenient
from jobs.functions.render import lower
from tests.support.function_cases import COLUMNS
from tests.support.function_domains import ROWS, calls, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_computes_every_lenient_text_and_guard_at_the_ends_of_all_types(spark: SparkSession) -> None:
    frame = spark.createDataFrame(table(), schema=", ".join(f"`{name}` {kind.spark()}" for name, kind in COLUMNS))
    frame.createOrReplaceTempView("cases")
    parts = []
    for typed in calls().values():
        condition = failing(typed.expression)
        parts.append(f"({lower(lenient(typed.expression), 'spark')}) IS NULL")
        parts += [lower(condition, "spark")] if condition is not None else []
    columns = ", ".join(f"({part}) AS c{number}" for number, part in enumerate(parts))
    assert len(spark.sql(f"SELECT {columns} FROM cases").collect()) == len(ROWS)
