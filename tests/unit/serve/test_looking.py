"""What is followed is looked at when it is told of news, and goes on after a fault."""

from __future__ import annotations

from threading import Event

import pytest

from jobs.serve.looking import Looking


class Counted(Looking):
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
    assert counted.looked.wait(10)


def test_a_fault_is_logged_and_the_next_news_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    assert counted.looked.wait(10)
    told(counted)
    assert "'counted' stands still" in caplog.text
    told(counted)
    counted.close()
    assert counted.ended
    assert counted.looks == 3
