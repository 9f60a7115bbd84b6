"""A blocking expectation: the view is fresh, nothing is computed from a version that breaks it, and what waits goes on
by itself."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event, Thread

from strandline.jobs.expect.expectations import read_approval
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.watch import alerts
from strandline.jobs.run.pipeline import drain, follow
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.delta.log import now_ms
from strandline.state_store.layout import LakeLayout
from tests.support.begun_lake import begins_with
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import PIPELINE, SALES, events, rows
from tests.support.waiting import wait_until
from tests.support.warm_process import exit_code

BY_SHOP = """CREATE {} TABLE by_shop WITH (EXPECT = '[{{expect_column_values_to_be_between:
  {{column: total, max_value: {}}}, blocking: true}}]')
  AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop;"""
MOST = "CREATE MATERIALIZED VIEW most AS SELECT MAX(total) AS m FROM by_shop;"
ELSEWHERE = "CREATE MATERIALIZED VIEW least AS SELECT MIN(total) AS m FROM by_shop;"
GOOD = {"shop": "a", "item": "x", "qty": 5}
BAD = {"shop": "a", "item": "x", "qty": 100}
CORRECTION = {"shop": "a", "item": "x", "qty": -98}


def made(settings: Settings) -> None:
    """A lake in which everything is approved: total 5."""
    lake = LakeLayout(settings.lake)
    list(Interpreter(settings, "sales").run(SALES))
    list(Interpreter(settings, PIPELINE).run(BY_SHOP.format("", 10) + MOST))
    list(Interpreter(settings, "elsewhere").run(ELSEWHERE))
    events(lake, [GOOD])
    assert not drain(settings, PIPELINE).held
    drain(settings, "elsewhere")


template, lake = begins_with(made)


def seen(lake: LakeLayout) -> tuple[object, object, object]:
    """The total of the shop, and what the two views that read it say of it."""
    return rows(lake, "by_shop")[0][2], rows(lake, "most")[0][0], rows(lake, "least")[0][0]


def test_what_reads_the_view_waits_in_every_pipeline_and_goes_on_by_itself(
    settings: Settings, lake: LakeLayout
) -> None:
    assert seen(lake) == (5, 5, 5)
    events(lake, [BAD], first=1, epoch=1)
    held = drain(settings, PIPELINE).held
    drain(settings, "elsewhere")
    assert seen(lake) == (105, 5, 5)
    assert "1 of 1 rows are unexpected: 105; what reads it stays at its version 1" in held["by_shop"]
    assert_correct(lake, "elsewhere")
    (alert,) = alerts(settings, now_ms())
    assert (alert.kind, alert.subject) == ("held", "by_shop")
    assert drain(settings, PIPELINE).held, "it is said again as long as it is so"
    events(lake, [CORRECTION], first=2, epoch=2)
    assert not drain(settings, PIPELINE).held
    drain(settings, "elsewhere")
    assert seen(lake) == (7, 7, 7)
    assert alerts(settings, now_ms()) == []
    assert_correct(lake, PIPELINE)


def test_an_expectation_that_was_changed_is_asked_again(settings: Settings, lake: LakeLayout) -> None:
    events(lake, [BAD], first=1, epoch=1)
    drain(settings, PIPELINE)
    list(Interpreter(settings, PIPELINE).run(BY_SHOP.format("", 1000)))
    assert not drain(settings, PIPELINE).held
    assert seen(lake)[:2] == (105, 105)


def test_a_new_expectation_holds_for_rows_that_are_there(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, PIPELINE).run(BY_SHOP.format("", 4)))
    assert "stays at its version 1" in drain(settings, PIPELINE).held["by_shop"]
    events(lake, [{**GOOD, "qty": -1}], first=1, epoch=1)
    assert not drain(settings, PIPELINE).held
    assert seen(lake)[:2] == (4, 4)


def test_rows_that_a_replacement_brings_are_asked_about_too(settings: Settings, lake: LakeLayout) -> None:
    next_one = BY_SHOP.format("OR REPLACE", 10).replace("SUM(qty)", "SUM(qty) * 100")
    list(Interpreter(settings, PIPELINE).run(next_one))
    assert drain(settings, PIPELINE).held
    assert seen(lake)[:2] == (500, 5)


def test_a_view_that_never_was_right_is_not_read_at_all(settings: Settings, lake: LakeLayout) -> None:
    text = """CREATE TABLE twice WITH (EXPECT =
      '[{expect_table_row_count_to_be_between: {min_value: 2}, blocking: true}]')
      AS SELECT shop, SUM(qty) AS total FROM sales GROUP BY shop;
      CREATE MATERIALIZED VIEW shops AS SELECT COUNT(*) AS n FROM twice;"""
    list(Interpreter(settings, PIPELINE).run(text))
    assert "what reads it waits" in drain(settings, PIPELINE).held["twice"]
    assert reader.head(lake.table("shops")) is None
    events(lake, [{**GOOD, "shop": "b"}], first=1, epoch=1)
    drain(settings, PIPELINE)
    assert rows(lake, "shops") == [(2,)]


def _drained(folder: Path, pipeline: str) -> None:
    drain(load_settings(lake=folder), pipeline)


def test_a_kill_before_the_approval_lets_nobody_read_what_was_not_validated(
    settings: Settings, lake: LakeLayout
) -> None:
    folder = on_disk(lake.root)
    events(lake, [BAD], first=1, epoch=1)
    assert exit_code(_drained, folder, PIPELINE, failpoint="before-approval:1") == -signal.SIGKILL
    drain(settings, "elsewhere")
    assert seen(lake) == (105, 5, 5)
    assert read_approval(lake, "by_shop").refused is None
    assert drain(settings, PIPELINE).held


def test_a_continuous_run_holds_and_releases(settings: Settings, lake: LakeLayout) -> None:
    stop = Event()
    run = Thread(target=follow, args=(settings, PIPELINE, stop))
    run.start()
    try:
        events(lake, [BAD], first=1, epoch=1)
        wait_until(lambda: read_approval(lake, "by_shop").refused is not None, "nothing is refused")
        assert seen(lake)[:2] == (105, 5)
        events(lake, [CORRECTION], first=2, epoch=2)
        wait_until(lambda: seen(lake)[1] == 7, "what reads the view still waits")
    finally:
        stop.set()
        run.join()
    assert_correct(lake, PIPELINE)
