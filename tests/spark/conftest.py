"""A keyed table that holds four rows, and a bench for refreshes by each engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.spark.refresh_bench import Bench
from tests.spark.table_model import Model
from tests.support.table_model import FOUR_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def model(spark: SparkSession, lake: LakeLayout) -> Model:
    model = Model(spark, lake)
    model.apply(FOUR_ROWS)
    return model


@pytest.fixture(params=["kernel", "spark"])
def bench(request: pytest.FixtureRequest, lake: LakeLayout) -> Iterator[Bench]:
    if request.param == "spark":
        spark = request.getfixturevalue("spark")
        yield Bench(RunContext(SparkSessions(lambda: spark), lake, "tests/1"))
        return
    with DuckDBEngine("1GB", 2) as duckdb_engine:
        yield Bench(RunContext(None, lake, "tests/1", duckdb_engine=duckdb_engine))
