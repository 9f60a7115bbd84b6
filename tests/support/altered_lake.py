"""A lake with sources that are to get columns: a stream and a keyed table, views over both, and one of all columns.

Its events are taken in and its views refreshed by DuckDB, as a run of the pipeline does it, without a JVM.
"""

from __future__ import annotations

from typing import Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Message
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from tests.support.example_lakes import drained

PIPELINE = "shop"
SALES = "CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);"
SHOPS = "CREATE TABLE shops (id VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC = 'shops', PARTITIONS = 1);"
VIEWS = """
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW named AS SELECT s.name, b.n FROM by_shop b JOIN shops s ON s.id = b.shop;
CREATE MATERIALIZED VIEW everything AS SELECT * FROM sales;
CREATE MATERIALIZED VIEW all_shops AS SELECT * FROM shops;
"""
WIDE_SALES = SALES.replace("qty INT", "qty INT, coupon VARCHAR")
ALTER = "ALTER STREAM sales ADD COLUMN coupon VARCHAR; ALTER TABLE shops ADD town VARCHAR, ADD COLUMN size INT;"
WITH_COUPON = """CREATE OR REPLACE TABLE by_shop AS
  SELECT shop, COUNT(*) AS n, SUM(qty) AS total, COUNT(coupon) AS coupons FROM sales GROUP BY shop;"""
BEFORE = """
INSERT INTO sales (shop, qty) VALUES ('a', 1), ('a', 5), ('b', 2);
INSERT INTO shops (id, name) VALUES ('a', 'Anna'), ('b', 'Bert');
"""
AFTER = """
INSERT INTO sales (shop, qty, coupon) VALUES ('a', 3, 'x'), ('c', 4, NULL);
INSERT INTO shops (id, name, town, size) VALUES ('b', 'Bert', 'Ulm', 3), ('c', 'Cleo', NULL, 4);
"""

Rows = list[tuple[Any, ...]]


def made(settings: Settings) -> LakeLayout:
    """The lake with its first events, and the views fresh."""
    run(settings, SALES + SHOPS + VIEWS + BEFORE)
    take_in(settings)
    return LakeLayout(settings.lake)


def run(settings: Settings, text: str) -> list[str]:
    """What the statements say."""
    results = Interpreter(settings, PIPELINE).run(text)
    return [result.text if isinstance(result, Message) else str(result) for result in results]


def take_in(settings: Settings) -> None:
    """All events of the topics, a few an epoch, with a refresh after each; then a run that finds nothing new there."""
    with DuckDBEngine("256MB", 1) as duckdb_engine:
        drained(PIPELINE, settings, duckdb_engine)
    drain(settings, PIPELINE)


def alter(folder: LakePath) -> None:
    """ALTER, as a process makes it."""
    run(load_settings(lake=folder), "ALTER TABLE shops ADD town VARCHAR, ADD COLUMN size INT;")


def rows(lake: LakeLayout, name: str) -> Rows:
    """The rows that a reader sees: the columns of the definition that stands, at the head."""
    found = Catalog(lake).get(name)
    assert isinstance(found, View | Source)
    names = [column.name for column in found.columns]
    answers = reader.read_rows(lake.table(name), columns=names).to_pylist()
    return sorted((tuple(row.values()) for row in answers), key=str)


def columns(lake: LakeLayout, name: str) -> list[str]:
    """The columns of the definition that stands."""
    found = Catalog(lake).get(name)
    assert isinstance(found, View | Source)
    return [column.name for column in found.columns]
