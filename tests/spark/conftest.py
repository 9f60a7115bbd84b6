"""A keyed table that holds four rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state_store.layout import Lake
from tests.spark.table_model import Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def model(spark: SparkSession, lake: Lake) -> Model:
    model = Model(spark, lake)
    model.apply({(1, "a"): (1, {"x": 1}, 1), (1, "b"): (2, None, 1), (None, "a"): (3, {}, 1), (2, None): (4, None, 1)})
    return model
