"""The progress of a run, as lines."""

from __future__ import annotations

import re
import threading

import pytest

from strandline.jobs.cli.output import IntakeProgress, shown
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import Outlook, outlook
from strandline.jobs.session.interpreter import Interpreter
from tests.unit.session.statements import STREAM, VIEW, run


def test_a_line_tells_what_is_done_and_what_is_left() -> None:
    progress = IntakeProgress(waiting=3000, views=2, began=100.0)
    line = progress.line(MicroBatch(1, 1000, 0.5), now=110.0)
    assert line == "epoch 1: 1,000 events in, 2,000.0 rows/s, 2 views fresh, 2,000 to go, about 20 s left"
    assert (
        progress.line(MicroBatch(2, 2000, 0.5), now=111.0) == "epoch 2: 3,000 events in, 4,000.0 rows/s, 2 views fresh"
    )


def test_a_line_calls_no_view_fresh_while_a_table_has_stopped() -> None:
    progress = IntakeProgress(waiting=1, views=2, began=100.0)
    assert (
        progress.line(MicroBatch(1, 1, 1.0, stopped=1), now=101.0) == "epoch 1: 1 event in, 1.0 rows/s, 1 table stopped"
    )


def test_what_was_estimated_to_be_left_is_counted_while_it_is() -> None:
    """One row that is updated in a file of many waits as all of the file's rows."""
    progress = IntakeProgress(waiting=301, views=None, began=100.0)
    line = progress.line(MicroBatch(1, 3, 1.0, left=lambda: 5), now=101.0)
    assert line == "epoch 1: 3 events in, 3.0 rows/s, 5 to go, about 2 s left"
    assert progress.line(MicroBatch(2, 1, 1.0, left=lambda: 0), now=101.0) == "epoch 2: 4 events in, 1.0 rows/s"
    assert progress.line(MicroBatch(3, 1, 1.0, left=lambda: 1 // 0), now=101.0) == "epoch 3: 5 events in, 1.0 rows/s"


def test_what_waits_is_known_before_anything_starts(settings: Settings) -> None:
    session = Interpreter(settings)
    run(session, STREAM + VIEW + "INSERT INTO s (id) VALUES (1), (2);")
    found = outlook(settings, "default")
    assert found == Outlook("default", {"s": 2}, ("v",))
    assert str(found) == "pipeline 'default': 2 events to take in\n  sources: s (2)\n  views: v"


def test_of_many_views_the_first_are_named() -> None:
    views = tuple(f"v{number}" for number in range(200))
    assert str(Outlook("shop", {}, views)).splitlines()[-1] == f"  views: {', '.join(views[:12])} and 188 more"
    assert str(Outlook("shop", {}, views[:20])).splitlines()[-1] == f"  views: {', '.join(views[:20])}"


def test_a_log_gets_a_line_for_each_epoch_and_no_thread(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with shown(Outlook("shop", {"s": 2}, ("v",))) as watch:
        watch(MicroBatch(1, 2, 1.0))
        assert threading.active_count() == before
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "pipeline 'shop': 2 events to take in"
    assert re.fullmatch(r"\d\d:\d\d:\d\d epoch 1: 2 events in, 2\.0 rows/s, 1 view fresh", said[-1])
