"""Refreshes on Spark share sessions: one for each that runs at a time, however many there were."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from strandline.jobs.ivm.refresh.context import SparkSessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Opened:
    """In place of a Spark session: counts those that are opened beside it."""

    def __init__(self) -> None:
        self.count = 0

    def newSession(self) -> _Opened:
        self.count += 1
        return _Opened()


@pytest.fixture
def first() -> _Opened:
    return _Opened()


@pytest.fixture
def sessions(first: _Opened) -> SparkSessions:
    return SparkSessions(lambda: cast("SparkSession", first))


def test_one_after_the_other_uses_the_same(first: _Opened, sessions: SparkSessions) -> None:
    with sessions.lent() as one:
        pass
    with sessions.lent() as other:
        pass
    assert (one is other, first.count) == (True, 1)


def test_two_at_a_time_have_one_each(first: _Opened, sessions: SparkSessions) -> None:
    with sessions.lent() as one, sessions.lent() as other:
        assert one is not other
    with sessions.lent(), sessions.lent():
        assert first.count == 2


def test_one_in_which_something_failed_is_not_used_again(first: _Opened, sessions: SparkSessions) -> None:
    with pytest.raises(RuntimeError), sessions.lent():
        raise RuntimeError
    with sessions.lent():
        assert first.count == 2


def test_without_a_refresh_no_jvm_starts() -> None:
    def started() -> SparkSession:
        raise AssertionError

    SparkSessions(started)
