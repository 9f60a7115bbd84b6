"""Spark itself binds every text of the views that come with the project: its analyzer finds all names and functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.binding import BoundText
from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.support.bound_texts import PIPELINES, all_texts, pipeline
from tests.support.memory_catalog import MemoryCatalog


def analyzed(session: SparkSession, text: BoundText) -> None:
    """Analyze a text over empty relations."""
    engine = engine_of("spark")
    for name, columns in text.relations.items():
        if name in text.text:
            schema = ", ".join(f"{engine.name(column)} {engine.type(sql_type)}" for column, sql_type in columns)
            session.createDataFrame([], schema).createOrReplaceTempView(engine.name(name))
    # A data frame is analyzed when it is made; nothing is run.
    assert session.sql(text.text).columns


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_the_texts_of_the_pipelines_are_analyzed(spark: SparkSession, path: Path) -> None:
    session = spark.newSession()
    for text in all_texts(pipeline(path), "spark"):
        analyzed(session, text)


def test_the_texts_of_random_views_are_analyzed(spark: SparkSession) -> None:
    session, catalog = spark.newSession(), MemoryCatalog()
    scenario(Picker.seeded(5), 8, Tally(), catalog=catalog)
    for text in all_texts(catalog, "spark"):
        analyzed(session, text)
