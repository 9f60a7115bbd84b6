"""The log of a run without end."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from strandline.jobs.run import dagster_child
from strandline.jobs.run.dagster_child import RateLimitedLog


class Clock:
    """What `time` is to the module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(dagster_child, "time", SimpleNamespace(monotonic=lambda: self.now))


def said(kept: RateLimitedLog, message: str, *arguments: object, level: int = logging.INFO) -> str | None:
    """What of a message comes through; None: nothing."""
    record = logging.LogRecord("strandline", level, __file__, 1, message, arguments, None)
    return record.getMessage() if kept.filter(record) else None


def test_news_of_a_kind_is_said_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, kept = Clock(monkeypatch), RateLimitedLog()
    assert said(kept, "micro-batch %d", 1) == "micro-batch 1"
    assert [said(kept, "micro-batch %d", number) for number in range(2, 300)] == [None] * 298
    assert said(kept, "topic '%s'", "t") == "topic 't'"
    clock.now = 60.0
    assert said(kept, "micro-batch %d", 300) == "micro-batch 300 (298 more since the last such line)"
    clock.now = 120.0
    assert said(kept, "micro-batch %d", 301) == "micro-batch 301"


def test_warnings_are_always_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    kept = RateLimitedLog()
    assert [said(kept, "view '%s' stopped", "v", level=logging.ERROR) for _ in range(3)] == ["view 'v' stopped"] * 3


def test_messages_without_a_template_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    kept = RateLimitedLog()
    for number in range(5_000):
        assert said(kept, f"object {number}") is not None
    assert len(kept._said) <= 1_000
