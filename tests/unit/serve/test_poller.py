"""What is followed is looked at when it is told of news, and goes on after a fault."""

from __future__ import annotations

import time
from threading import Event

import pytest

from strandline.jobs.serve import watch
from strandline.jobs.serve.watch import Poller
from tests.support.waiting import PATIENCE_SECONDS, wait_until


class Counted(Poller):
    """Fails at its first look, and ends itself at its third."""

    def __init__(self) -> None:
        super().__init__("counted")
        self.looks = 0
        self.looked = Event()
        self.begin()

    def look(self) -> bool:
        self.looks += 1
        self.looked.set()
        if self.looks == 1:
            raise ZeroDivisionError
        return self.looks < 3


def told(counted: Counted) -> None:
    counted.looked.clear()
    counted.wake()
    assert counted.looked.wait(PATIENCE_SECONDS)


def test_a_fault_is_logged_and_the_next_news_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    assert counted.looked.wait(PATIENCE_SECONDS)
    told(counted)
    assert "'counted' stands still" in caplog.text
    told(counted)
    counted.close()
    assert counted.ended
    assert counted.looks == 3


class Paused(Poller):
    """Looks whenever there is news, but for its pause."""

    def __init__(self, pause: float) -> None:
        super().__init__("paused", pause)
        self.looks = 0
        self.begin()

    def look(self) -> bool:
        self.looks += 1
        return True


def test_news_of_a_pause_are_looked_at_once_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 600.0)
    paused = Paused(600.0)
    wait_until(lambda: paused.looks == 1, "it did not look")
    for _ in range(20):
        paused.wake()
        time.sleep(0.01)
    assert paused.looks == 1
    paused.close()
    paused = Paused(0.5)
    wait_until(lambda: paused.looks == 1, "it did not look")
    paused.wake()
    wait_until(lambda: paused.looks == 2, "the news were lost")
    paused.close()


def test_a_pause_does_not_hold_an_end_up() -> None:
    paused = Paused(600.0)
    wait_until(lambda: paused.looks == 1, "it did not look")
    paused.close()
    assert paused.ended
