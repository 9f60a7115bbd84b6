"""The steps of a long operation, as a log and a terminal show them."""

from __future__ import annotations

import io
import re
import threading
import time

import pytest

from strandline.jobs.cli.output import ShownSteps, shown_steps
from strandline.jobs.model.report import MicroBatch
from tests.support.waiting import wait_until


class Clock:
    """A clock that stands still until it is set on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_a_step_tells_what_it_reads_and_by_the_one_before_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines = Clock(monkeypatch), list[str]()
    steps = ShownSteps(lines.append, lines.append)
    steps.begin("computing 'a' (stage 1 of 2)", 1000)
    clock.now += 4
    steps.done("'a': +3 −1 rows")
    steps.begin("computing 'b' (stage 2 of 2)", 500)
    clock.now += 1
    steps.again()
    steps.done("'b': +0 −0 rows")
    steps.again()
    steps.begin("storing what differs")
    assert lines == [
        "computing 'a' (stage 1 of 2): 1,000 rows to read",
        "'a': +3 −1 rows (4.0 s)",
        "computing 'b' (stage 2 of 2): 500 rows to read, about 2 s by the rate so far",
        "still computing 'b' (stage 2 of 2), for 1 s",
        "'b': +0 −0 rows (1.0 s)",
        "storing what differs",
    ]


def test_a_topic_that_is_read_again_tells_the_seconds_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own rate, which says nothing of the steps after it."""
    clock, lines = Clock(monkeypatch), list[str]()
    steps = ShownSteps(lines.append, lines.append)
    steps.begin("reading the topic 't' from its beginning", 3000)
    clock.now += 10
    steps.micro_batch(MicroBatch(1, 1000, 0.5))
    steps.done("3,000 events are in 's'")
    steps.begin("computing 'v'", 10)
    assert lines[1:] == [
        "epoch 1: 1,000 events in, 2,000.0 rows/s, 2,000 to go, about 20 s left",
        "3,000 events are in 's' (10.0 s)",
        "computing 'v': 10 rows to read",
    ]


def until_said(capsys: pytest.CaptureFixture[str], words: str, times: int) -> str:
    """What is said until these words have been said so many times."""
    said: list[str] = []

    def heard() -> bool:
        said.append(capsys.readouterr().err)
        return "".join(said).count(words) >= times

    wait_until(heard, lambda: "".join(said))
    return "".join(said)


def test_a_log_hears_of_a_long_step_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    with shown_steps(again_seconds=0.05) as steps:
        steps.begin("computing 'v'", 10)
        said = until_said(capsys, "now computing 'v'", 2)
        steps.done("'v': +1 −0 rows")
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= before
    lines = (said + capsys.readouterr().err).splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)
    assert re.search(r"'v': \+1 −0 rows \(\d+\.\d s\)$", lines[-1])


def test_a_log_that_is_told_no_begins_hears_of_what_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_steps(again_seconds=0.1, begins=False) as steps:
        steps.begin("verifying 'a', table 1 of 2")
        steps.begin("verifying 'b', table 2 of 2")
        said = until_said(capsys, "now verifying", 1)
    lines = said.splitlines()
    assert all(line.endswith("now verifying 'b', table 2 of 2") for line in lines)


def test_a_terminal_has_one_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with shown_steps() as steps:
        steps.begin("computing '[v]'", 10)
        wait_until(lambda: "computing" in shown.getvalue(), "no line")
        steps.done("'[v]': +1 −0 rows")
    text = shown.getvalue()
    assert "computing '[v]': 10 rows to read" in text
    assert re.search(r"'\[v\]': \+1 −0 rows \(\d+\.\d s\)", text)
