"""A stream whose session is still starting: what comes meanwhile is in, once, and what is too much waits for Spark."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.ingest import while_starting
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import IngestSettings, Settings, load_settings
from strandline.jobs.run.heartbeat import read_beat
from strandline.jobs.run.pipeline import drain, follow
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.errors import SettingsError
from strandline.state_store.layout import LakeLayout
from tests.support.invariants import assert_correct
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.warm_process import exit_code

SHOP = """
CREATE STREAM sales (shop VARCHAR KEY, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, MAX(qty) AS most FROM sales GROUP BY shop;
"""
SALES = "INSERT INTO sales VALUES ('a', 1); INSERT INTO sales VALUES ('b', 2); INSERT INTO sales VALUES ('a', 3);"


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    made = Interpreter(settings, "shop")
    list(made.run(SHOP))
    return made


def _session_that(starts: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions take as long as `starts`, and then fail: a run ends with it, and no JVM is needed."""

    def never(*_: object, **__: object) -> NoReturn:
        starts()
        raise SettingsError("no JVM here")

    monkeypatch.setattr("strandline.jobs.run.spark.spark_session", never)


def by_one(settings: Settings, cores: int) -> Settings:
    """More than one event is not small, and tasks have so many cores."""
    spark = settings.spark.model_copy(update={"master": f"local[{cores}]"})
    return settings.model_copy(update={"ingest": IngestSettings(driver_rows=1), "spark": spark})


def _events(lake: LakeLayout) -> int:
    head = reader.head(lake.table("sales"))
    return 0 if head is None else head.record.rows


def _wait_for(lake: LakeLayout, events: int) -> None:
    wait_until(lambda: _events(lake) >= events, lambda: f"{_events(lake)} events, not {events}")


def test_what_waits_and_what_comes_is_in_before_the_session_is_there(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(session.run(SALES))

    def starts() -> None:
        _wait_for(lake, 3)
        list(Interpreter(settings, "shop").run(SALES))
        _wait_for(lake, 6)

    _session_that(starts, monkeypatch)
    batches: list[int] = []
    with pytest.raises(SettingsError, match="no JVM here"):
        follow(settings, "shop", Event(), watch=lambda batch: batches.append(batch.events))
    assert sum(batches) == 6
    assert_correct(lake, "shop")
    rows = {(row["shop"], row["n"], row["most"]) for row in reader.read_rows(lake.table("by_shop")).to_pylist()}
    assert rows == {("a", 4, 3), ("b", 2, 2)}


def test_everything_waits_for_spark_where_the_driver_takes_in_nothing(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(session.run(SALES))
    _session_that(lambda: time.sleep(1.0), monkeypatch)
    with pytest.raises(SettingsError):
        follow(settings.model_copy(update={"ingest": IngestSettings(driver_rows=0)}), "shop", Event())
    assert _events(lake) == 0


@pytest.mark.parametrize(("run", "alone"), [(drain, 12), (drain, 11), (follow, 1)])
def test_more_than_is_small_is_taken_in_by_parts(
    session: Interpreter,
    settings: Settings,
    lake: LakeLayout,
    monkeypatch: pytest.MonkeyPatch,
    run: object,
    alone: int,
) -> None:
    """Until the session is there; a drain that is done before does not wait for it, or starts none."""
    monkeypatch.setattr(while_starting, "_ROWS_ALONE", alone)
    for _ in range(4):
        list(session.run(SALES))
    _session_that(lambda: _wait_for(lake, 12), monkeypatch)
    batches: list[int] = []
    one = by_one(settings, cores=4)

    def watch(batch: MicroBatch) -> None:
        batches.append(batch.events)

    if run is drain:
        drain(one, "shop", watch=watch)
    else:
        with pytest.raises(SettingsError, match="no JVM here"):
            follow(one, "shop", Event(), watch=watch)
    assert batches == [5, 7], "each part is larger than the one before"
    assert_correct(lake, "shop")


def test_a_session_that_does_not_start_ends_a_drain_of_what_is_left(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is lost or taken in twice."""
    for _ in range(4):
        list(session.run(SALES))
    started, taken = Event(), Event()

    def starts() -> None:
        started.set()
        taken.wait(PATIENCE_SECONDS)

    _session_that(starts, monkeypatch)

    def watch(batch: MicroBatch) -> None:
        started.wait(PATIENCE_SECONDS)
        taken.set()
        time.sleep(0.5)

    one = by_one(settings, cores=4)
    monkeypatch.setattr(while_starting, "_ROWS_ALONE", 1)
    with pytest.raises(SettingsError, match="no JVM here"):
        drain(one, "shop", watch=watch)
    assert _events(lake) == 5
    assert drain(settings, "shop").epochs == 1
    assert _events(lake) == 12
    assert_correct(lake, "shop")


def test_a_run_that_is_to_stop_does_not_wait_for_the_session(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(session.run(SALES))
    stop, over = Event(), Event()
    _session_that(lambda: over.wait(PATIENCE_SECONDS), monkeypatch)
    report = follow(settings, "shop", stop, watch=lambda _batch: stop.set())
    over.set()
    assert {table.name: table.rows for table in report.tables} == {"sales": 3, "by_shop": 2}
    beat = read_beat(lake, "shop")
    assert beat is not None
    assert (beat.ended, beat.error) == (True, None)


@pytest.mark.parametrize("driver_rows", [0, 20_000])
def test_a_stop_while_nothing_is_to_be_done_is_heard(
    session: Interpreter, settings: Settings, monkeypatch: pytest.MonkeyPatch, driver_rows: int
) -> None:
    """Also while Spark is waited for."""
    list(session.run(SALES if not driver_rows else ""))
    stop, over = Event(), Event()
    _session_that(lambda: over.wait(PATIENCE_SECONDS), monkeypatch)
    threading.Timer(0.5, stop.set).start()
    follow(settings.model_copy(update={"ingest": IngestSettings(driver_rows=driver_rows)}), "shop", stop)
    over.set()


def test_what_comes_after_a_source_got_a_column_waits_for_the_query(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver decodes by the columns that the source had when the run began."""
    list(session.run(SALES))

    def starts() -> None:
        _wait_for(lake, 3)
        others = Interpreter(settings, "shop")
        altered = threading.Thread(target=lambda: list(others.run("ALTER STREAM sales ADD COLUMN coupon VARCHAR;")))
        altered.start()
        wait_until(lambda: intents.begun_replacements(lake), "the intent does not come")
        list(session.run("INSERT INTO sales (shop, qty) VALUES ('b', 4);"))
        altered.join(PATIENCE_SECONDS)
        list(Interpreter(settings, "shop").run("INSERT INTO sales (shop, qty, coupon) VALUES ('a', 5, 'x');"))
        time.sleep(1.5)  # longer than a look for what has come
        assert _events(lake) == 4

    _session_that(starts, monkeypatch)
    with pytest.raises(SettingsError, match="no JVM here"):
        follow(settings, "shop", Event())
    _session_that(lambda: _wait_for(lake, 5), monkeypatch)
    with pytest.raises(SettingsError, match="no JVM here"):
        follow(settings, "shop", Event())
    found = {(row["qty"], row["coupon"]) for row in reader.read_rows(lake.table("sales")).to_pylist()}
    assert found == {(1, None), (2, None), (3, None), (4, None), (5, "x")}
    assert_correct(lake, "shop")


def follow_once(root: Path) -> None:
    """A stream that ends when it has taken in what waits."""
    lake = LakeLayout(root)
    with pytest.MonkeyPatch.context() as patched:
        _session_that(lambda: _wait_for(lake, 3), patched)
        with pytest.raises(SettingsError):
            follow(load_settings(lake=root), "shop", Event())


def test_a_drain_of_any_size_is_the_drivers_where_tasks_have_two_cores(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(session.run(SALES))
    _session_that(lambda: pytest.fail("two cores read no faster in tasks"), monkeypatch)
    monkeypatch.setattr(while_starting, "_ROWS_ALONE", 1)
    drain(by_one(settings, cores=2), "shop")
    assert _events(lake) == 3


def drain_in_parts(root: Path) -> None:
    """Of 48 events, in parts of 5, 20 and 23: each is read while the one before it is committed."""
    with pytest.MonkeyPatch.context() as patched:
        _session_that(lambda: pytest.fail("it is not worth a session"), patched)
        drain(load_settings(lake=root, ingest=IngestSettings(driver_rows=1)), "shop")


@pytest.mark.kill
@pytest.mark.parametrize("place", ["before-log-commit:2", "after-log-commit:2", "inside-refresh:2", "after-staging:5"])
def test_a_drain_that_is_killed_between_its_parts_loses_and_doubles_nothing(
    session: Interpreter, lake: LakeLayout, place: str
) -> None:
    for _ in range(16):
        list(session.run(SALES))
    assert exit_code(drain_in_parts, lake.root, failpoint=place) == -signal.SIGKILL
    assert _events(lake) < 48
    assert exit_code(drain_in_parts, lake.root) == 0
    assert _events(lake) == 48
    assert_correct(lake, "shop")


@pytest.mark.kill
@pytest.mark.parametrize("place", ["before-log-commit", "after-log-commit", "inside-refresh"])
def test_a_driver_that_is_killed_meanwhile_loses_and_doubles_nothing(
    session: Interpreter, lake: LakeLayout, place: str
) -> None:
    list(session.run(SALES))
    assert exit_code(follow_once, lake.root, failpoint=place) == -signal.SIGKILL
    assert exit_code(follow_once, lake.root) == 0
    assert _events(lake) == 3
    assert_correct(lake, "shop")
