"""Whole pipelines on the local log: every kind of view, in many epochs, checked against the oracle after each."""

from __future__ import annotations

import random
import shutil

import pytest
from pyspark.sql import SparkSession

from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import PipelineMissing
from strandline.jobs.model.settings import IngestSettings, Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.errors import StrandlineError
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk

SHOP = """
CREATE STREAM sales (shop VARCHAR KEY, product VARCHAR, amount DECIMAL(10, 2), qty INT, score DOUBLE)
  WITH (PARTITIONS = 3);
CREATE TABLE shops (shop VARCHAR PRIMARY KEY, city VARCHAR, staff INT) WITH (PARTITIONS = 2);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(amount) AS total, AVG(score) AS mean, STDDEV_SAMPLE(score) AS sd
  FROM sales GROUP BY shop;
CREATE TABLE extremes AS SELECT product, MIN(amount) AS low, MAX(score) AS high, EARLIEST_BY_OFFSET(qty) AS first,
  LATEST_BY_OFFSET(qty, 2) AS last_two, LATEST_BY_OFFSET(score, false) AS newest, COLLECT_LIST(qty) AS all_qty,
  HISTOGRAM(shop) AS shops FROM sales WHERE qty <> 3 GROUP BY product;
CREATE TABLE busy AS SELECT product, COUNT(*) AS n, SUM(qty) / COUNT(*) AS mean FROM sales
  GROUP BY product HAVING COUNT(*) > 8;
CREATE STREAM large AS SELECT shop, UCASE(product) AS product, qty * 2 AS twice FROM sales WHERE qty > 4 EMIT CHANGES;
CREATE TABLE large_by_product AS SELECT product, SUM(twice) AS s FROM large GROUP BY product;
CREATE TABLE staff_by_city AS SELECT city, COUNT(*) AS shops, SUM(staff) AS staff, AVG(staff) AS mean FROM shops
  GROUP BY city;
CREATE TABLE big_shops AS SELECT shop, staff + 1 AS staff FROM shops WHERE staff > 5;
CREATE MATERIALIZED VIEW shops_per_count AS SELECT n, COUNT(*) AS shops FROM by_shop GROUP BY n;
CREATE MATERIALIZED VIEW everything AS SELECT COUNT(*) AS n, SUM(qty) AS q FROM sales;
"""


def _insert(settings: Settings, interpreter: Interpreter, rng: random.Random, count: int) -> None:
    sales, shops = interpreter.catalog.get("sales"), interpreter.catalog.get("shops")
    assert isinstance(sales, Source)
    assert isinstance(shops, Source)
    events = [
        {
            "shop": rng.choice(["a", "b", "c", "d", None]),
            "product": rng.choice(["x", "y", "z", None]),
            "amount": rng.choice([None, f"{rng.randrange(10_000)}.{rng.randrange(100):02d}"]),
            "qty": rng.choice([None, rng.randrange(8)]),
            "score": rng.choice([None, rng.random() * 100]),
            "rowtime": 1_700_000_000_000 + rng.randrange(1_000_000),
        }
        for _ in range(count)
    ]
    insert_rows(sales, events, settings, interpreter.lake)
    changes = []
    for _ in range(count // 2):
        row: dict[str, object] = {"shop": rng.choice("abcdef")}
        if rng.random() < 0.3:
            changes.append(row | {"__tombstone": True})
        else:
            changes.append(row | {"city": rng.choice(["Rome", "Oslo", None]), "staff": rng.choice([None, 3, 8, 12])})
    insert_rows(shops, changes, settings, interpreter.lake)


def _versions(interpreter: Interpreter) -> dict[str, int]:
    heads = {name: reader.head(interpreter.lake.table(name)) for name in interpreter.catalog.relations()}
    return {name: head.version for name, head in heads.items() if head}


def test_every_view_equals_its_sql_recomputed_after_every_drain(settings: Settings, spark: SparkSession) -> None:
    """Two drains, the second in two epochs: hydration, then changes with updates, deletes and NULL keys."""
    rng = random.Random(11)
    interpreter = Interpreter(settings, "shop")
    list(interpreter.run(SHOP))
    for count, cut in ((40, 1000), (30, 30)):
        _insert(settings, interpreter, rng, count)
        drain(settings.model_copy(update={"ingest": IngestSettings(max_rows_per_epoch=cut)}), "shop", spark)
        assert_correct(interpreter.lake, "shop")
    before = _versions(interpreter)

    shutil.rmtree(on_disk(interpreter.lake.checkpoint("shop")))
    idle = drain(settings, "shop", spark)
    assert idle.epochs == 0
    assert _versions(interpreter) == before, "nothing new, and yet something was committed"


def test_views_of_another_pipeline_and_queries_into_a_stream(settings: Settings, spark: SparkSession) -> None:
    """A pipeline without topics of its own reads the first one's tables as they stand."""
    first = Interpreter(settings, "first")
    list(first.run("CREATE STREAM a (k VARCHAR KEY, v INT); CREATE STREAM b (k VARCHAR KEY, v INT);"))
    list(first.run("CREATE STREAM merged (k VARCHAR KEY, v INT);"))
    list(
        first.run("INSERT INTO merged SELECT k, v FROM a WHERE v > 1; INSERT INTO merged SELECT k, v + 10 AS v FROM b;")
    )
    second = Interpreter(settings, "second")
    list(second.run("CREATE TABLE newest AS SELECT k, LATEST_BY_OFFSET(v) AS v, SUM(v) AS s FROM merged GROUP BY k;"))
    for values in ("('x', 1), ('x', 2), ('y', 3)", "('x', 7)"):
        list(first.run(f"INSERT INTO a (k, v) VALUES {values}; INSERT INTO b (k, v) VALUES ('z', 1);"))
        drain(settings, "first", spark)
        drain(settings, "second", spark)
        assert_correct(first.lake, "second")
    rows = reader.read_rows(first.lake.table("newest"), columns=["k", "v", "s"]).to_pylist()
    assert {(r["k"], r["v"], r["s"]) for r in rows} == {("x", 7, 9), ("y", 3, 3), ("z", 11, 22)}


def test_a_view_that_fails_stops_and_the_others_go_on(settings: Settings, spark: SparkSession) -> None:
    """Overflow is an error, never a wrap: the view keeps its last rows, the drain says so, its neighbours are fresh."""
    interpreter = Interpreter(settings, "faulty")
    list(
        interpreter.run(
            "CREATE STREAM n (k VARCHAR KEY, v BIGINT); CREATE TABLE fine AS SELECT k, COUNT(*) AS c FROM n GROUP BY k;"
        )
    )
    list(interpreter.run("CREATE TABLE total AS SELECT k, SUM(v) AS s FROM n GROUP BY k;"))
    list(interpreter.run("CREATE TABLE over AS SELECT s, COUNT(*) AS c FROM total GROUP BY s;"))
    list(interpreter.run("INSERT INTO n VALUES ('a', 1);"))
    drain(settings, "faulty", spark)
    list(interpreter.run("INSERT INTO n VALUES ('a', 9223372036854775807);"))
    with pytest.raises(StrandlineError, match="total"):
        drain(settings, "faulty", spark)
    stands = {name: reader.read_rows(interpreter.lake.table(name)).to_pylist() for name in ("fine", "total", "over")}
    assert stands == {"fine": [{"k": "a", "c": 2}], "total": [{"k": "a", "s": 1}], "over": [{"s": 1, "c": 1}]}


def test_an_unknown_pipeline_is_named_before_a_session_starts(settings: Settings) -> None:
    list(Interpreter(settings, "packages").run("CREATE STREAM p (k INT KEY);"))
    with pytest.raises(PipelineMissing, match="packages"):
        drain(settings, "package")
