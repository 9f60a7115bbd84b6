"""The campaign of equal engines: `python -m tests.campaigns.engine_equality --values 100000`.

Every scalar function, operator and CAST over nasty values, in every form, by DuckDB and by Spark; what differs and what
contradicts itself, is printed. `--only REGEX` computes the expressions that match, `--duckdb` without Spark.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.jobs.model.settings import SparkSettings
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.function_calls import calls
from tests.support.function_equality import by_duckdb, by_spark, contradictions, differences, shown
from tests.support.function_values import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.function_equality import Difference

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Compiling plans that run over a few rows costs more than running them."""


def campaign(
    spark: SparkSession | None, *, kinds: int, rows: int, seed: int, only: str = "", most: int | None = None
) -> tuple[int, list[Difference], str]:
    """The number of values that were compared, what differs, and that in words.

    Args:
        spark: None: DuckDB's forms alone, which must not contradict each other.
        kinds: of the arguments of each function and operator.
        only: a regular expression that the text of an expression must hold.
        most: at most so many expressions, drawn by the seed.
    """
    found = {text: typed for text, typed in calls(kinds, seed).items() if re.search(only, text)}
    if most is not None:
        found = dict(random.Random(seed).sample(list(found.items()), min(most, len(found))))
    values = table(rows, seed)
    with DuckDBEngine("1GB", 1) as duckdb_engine, duckdb_engine.connection() as connection:
        duck = by_duckdb(connection, values, found)
    wrong = list(contradictions(found, duck))
    if spark is not None:
        sparks = by_spark(spark, values, found)
        wrong += [*contradictions(found, sparks), *differences(found, sparks, duck)]
    return len(found) * values.num_rows, wrong, f"STRANDLINE_SEED={seed}: {shown(wrong, values)}"


def main() -> int:
    """Run the campaign as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=int, default=2, help="of the arguments of each function")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--values", type=int, default=1, help="at least so many, by one seed after the other")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--duckdb", action="store_true", help="without Spark")
    asked = parser.parse_args()
    begun, compared, failed, seed = time.monotonic(), 0, 0, asked.seed
    with _session(without=asked.duckdb) as spark:
        while compared < asked.values:
            count, wrong, words = campaign(spark, kinds=asked.kinds, rows=asked.rows, seed=seed, only=asked.only)
            compared, failed, seed = compared + count, failed + len(wrong), seed + 1
            if wrong:
                print(words)
    print(f"{compared:,} values, {failed:,} that differ, {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


@contextmanager
def _session(*, without: bool) -> Iterator[SparkSession | None]:
    if without:
        yield None
        return
    from strandline.jobs.run.spark import spark_session

    # A plan of hundreds of large expressions is itself large.
    settings = SparkSettings(master="local[2]", shuffle_partitions=2, driver_memory="4g")
    with spark_session(settings, "strandline-equality") as session:
        for name, value in INTERPRETED.items():
            session.conf.set(name, value)
        yield session


if __name__ == "__main__":
    sys.exit(main())
