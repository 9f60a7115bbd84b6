"""The swap of a view's definition as Spark reads it: our reader, Delta's own, and a refresh of what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation
from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.standby import catch_up, next_to, standby_of
from strandline.jobs.session.define.analyze import define
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import CreateView
from strandline.state_store.delta import log
from strandline.state_store.spark.table import SparkTable
from tests.support import shared_lake
from tests.support.invariants import assert_correct
from tests.support.replaced_lake import AFTER, NEXT, PIPELINE, events, made, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIFFERENCE = [("a", 1, 5, 5, 1), ("a", 2, 6, None, -1), ("b", 1, 2, None, -1), ("b", 1, 2, 2, 1), ("c", 1, 1, None, -1)]


def test_spark_reads_the_difference_and_what_reads_the_view_follows(settings: Settings, spark: SparkSession) -> None:
    lake = made(settings)
    by_spark = settings.model_copy(update={"engine": "spark"})
    events(lake, [{"shop": "d", "item": "x", "qty": 1}], first=4, epoch=1)
    drain(settings, PIPELINE)
    path = lake.table("by_shop")
    list(Interpreter(settings, PIPELINE).run(NEXT))
    assert rows(lake, "by_shop") == AFTER
    swap = log.newest_version(path)
    assert swap is not None
    wanted = sorted([*DIFFERENCE, ("d", 1, 1, None, -1)], key=repr)

    table = SparkTable(spark, path, spec_of_input(relation("by_shop", Catalog(lake))))
    listed = ["shop", "n", "total", "most"]
    found = table.changes(swap - 1, swap).select(*listed, "__weight").collect()
    assert sorted((tuple(row) for row in found), key=repr) == wanted
    both = table.changes(swap - 2, swap).select(*listed, "__weight").collect()
    before = ("d", 1, 1, None)
    assert sorted((tuple(row) for row in both), key=repr) == sorted([*wanted, (*before, 1)], key=repr)

    # The same rows once more: a commit whose feed is empty, as Delta sees it too.
    list(Interpreter(settings, PIPELINE).run(NEXT.replace("qty > 1", "qty > 1 AND qty < 1000")))
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", swap)
    theirs = [tuple(row) for row in feed.load(str(path)).select(*listed, "_change_type").collect()]
    signed = [(*row[:-1], 1 if row[-1] == "insert" else -1) for row in theirs]
    assert sorted(signed, key=repr) == wanted

    drain(by_spark, PIPELINE, spark)
    assert_correct(lake, PIPELINE)


def test_spark_makes_shared_stages_apart(settings: Settings, spark: SparkSession) -> None:
    """One stage that stands and two that nobody has, of which one reads both others."""
    lake = shared_lake.made(settings)
    catalog = Catalog(lake)
    [statement] = parse(shared_lake.statement("a", "of both"))
    assert isinstance(statement, CreateView)
    present, definition = catalog.get("a"), define(statement, catalog, PIPELINE)
    assert isinstance(present, View)
    assert isinstance(definition, View)
    standby = standby_of(next_to(present, definition, catalog), catalog)
    before = shared_lake.shared_in(lake)
    catch_up(RunContext(SparkSessions(lambda: spark), lake, "tests/1", engine="spark"), standby)
    assert len(standby.apart(lake)) == 2
    assert shared_lake.shared_in(lake) == before
    assert shared_lake.rows(lake, "a__standby") == [("a", 1), ("b", 1), ("c", 1)]
