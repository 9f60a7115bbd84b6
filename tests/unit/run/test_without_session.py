"""A drain starts a JVM for what the driver may not take in; what is small, and views that are behind, need none."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.jobs.model.errors import SourceUnavailable, ViewsStopped
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import Settings
from strandline.jobs.run import stream
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.refresh_views import Refreshed, refresh_all
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.support.altered_lake import rows
from tests.support.invariants import assert_correct

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, MAX(qty) AS most FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW most AS SELECT MAX(most) AS m FROM by_shop;
"""


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setattr("strandline.jobs.run.spark.spark_session", refused)


def test_views_behind_their_logs_are_refreshed_by_duckdb(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 2}, {"shop": "b", "qty": 5}])
    report = drain(settings, "shop")
    assert {each.name: each.inserted for each in report.tables} == {"sales": 0, "by_shop": 2, "most": 1}
    assert_correct(lake, "shop")
    again = drain(settings, "shop")
    assert all(each.inserted == 0 for each in again.tables)


def test_what_is_small_is_taken_in_by_the_driver(settings: Settings, lake: LakeLayout) -> None:
    interpreter = Interpreter(settings, "shop")
    list(interpreter.run(SHOP))
    for count in (1, 2):
        list(interpreter.run("INSERT INTO sales VALUES ('a', 2), ('b', 5);"))
        report = drain(settings, "shop")
        assert (report.epochs, {each.name: each.inserted for each in report.tables}["sales"]) == (1, 2)
        assert_correct(lake, "shop")
        assert rows(lake, "by_shop") == [("a", count, 2), ("b", count, 5)]


def test_views_behind_are_refreshed_once_with_what_the_driver_takes_in(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed between its events and its views. Many views lag by changes of no row of theirs:
    to look at each of them before the events, too, takes as long as all the rest."""
    interpreter = Interpreter(settings, "shop")
    list(interpreter.run(SHOP + "INSERT INTO sales VALUES ('a', 2);"))
    refreshes = 0

    def counted(*asked: Any) -> Refreshed:
        nonlocal refreshes
        refreshes += 1
        if refreshes == 1:
            raise KeyboardInterrupt
        return refresh_all(*asked)

    monkeypatch.setattr(stream, "refresh_all", counted)
    with pytest.raises(KeyboardInterrupt):
        drain(settings, "shop")
    list(interpreter.run("INSERT INTO sales VALUES ('a', 3), ('c', 1);"))
    assert (drain(settings, "shop").epochs, refreshes) == (1, 2)
    assert rows(lake, "by_shop") == [("a", 2, 3), ("c", 1, 1)]
    assert_correct(lake, "shop")
    assert (drain(settings, "shop").epochs, refreshes) == (0, 3)


def test_views_are_refreshed_though_the_topics_do_not_answer(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 2}])

    def silent(*_: object) -> bool:
        raise SourceUnavailable("no broker answers", hint="start one")

    monkeypatch.setattr(stream, "behind", silent)
    with pytest.raises(SourceUnavailable):
        drain(settings, "shop")
    assert rows(lake, "by_shop") == [("a", 1, 2)]


def test_a_drain_ends_where_the_topics_ended_when_it_began(settings: Settings, lake: LakeLayout) -> None:
    interpreter = Interpreter(settings, "shop")
    list(interpreter.run(SHOP + "INSERT INTO sales VALUES ('a', 2);"))

    def one_more(batch: MicroBatch) -> None:
        if batch.number <= 3:
            list(interpreter.run("INSERT INTO sales VALUES ('b', 5);"))

    report = drain(settings, "shop", watch=one_more)
    assert (report.epochs, rows(lake, "by_shop")) == (1, [("a", 1, 2)])
    assert drain(settings, "shop").epochs == 1
    assert rows(lake, "by_shop") == [("a", 1, 2), ("b", 1, 5)]


def test_where_the_driver_takes_in_nothing_it_is_for_spark(settings: Settings, lake: LakeLayout) -> None:
    """Nothing of it is lost or taken in twice when Spark does not start."""
    interpreter = Interpreter(settings, "shop")
    list(interpreter.run(SHOP))
    list(interpreter.run("INSERT INTO sales VALUES ('a', 2), ('b', 5), ('c', 1);"))
    none = settings.model_copy(update={"ingest": settings.ingest.model_copy(update={"driver_rows": 0})})
    with pytest.raises(AssertionError, match="a JVM was started"):
        drain(none, "shop")
    assert drain(settings, "shop").epochs == 1
    assert_correct(lake, "shop")


def test_a_view_whose_rows_a_run_does_not_change_is_fresh(settings: Settings, lake: LakeLayout) -> None:
    """It commits nothing, so its vector stays behind; what the run has looked at does not wait any more."""
    nested = "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop"
    text = f"CREATE MATERIALIZED VIEW largest AS SELECT MAX(n) AS n FROM ({nested}) AS counted;"
    list(Interpreter(settings, "shop").run(SHOP + text))

    def stand() -> dict[object, tuple[object, object]]:
        return {row[1]: (row[6], row[9]) for row in status(settings).rows if row[2] == "view"}

    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 2}, {"shop": "a", "qty": 4}, {"shop": "b", "qty": 5}])
    drain(settings, "shop")
    lake_tables.events(lake, "sales", [{"shop": "b", "qty": 1}])
    assert stand()["largest"] == (1, "behind")
    report = drain(settings, "shop")
    assert {each.name: each.inserted for each in report.tables} == {"sales": 0, "by_shop": 1, "most": 0, "largest": 0}
    assert stand() == dict.fromkeys(("by_shop", "most", "largest"), (0, "fresh"))


def test_a_view_that_fails_is_reported(settings: Settings, lake: LakeLayout) -> None:
    text = "CREATE TABLE broken WITH (ERRORS = 'stop') AS SELECT shop, SUM(100 / qty) AS s FROM sales GROUP BY shop;"
    list(Interpreter(settings, "shop").run(SHOP + text))
    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 0}])
    with pytest.raises(ViewsStopped, match="'broken'") as stopped:
        drain(settings, "shop")
    assert stopped.value.failures["broken"].code == "pipeline.row_failed"


def test_only_spark_wanted_is_spark_started(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 2}])
    with pytest.raises(ViewsStopped, match="a JVM was started"):
        drain(settings.model_copy(update={"engine": "spark"}), "shop")
