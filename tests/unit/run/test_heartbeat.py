"""The heartbeat of a run: beats while it works, says how it ended, and never stops the run itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.jobs.model.errors import TopicMissing
from strandline.jobs.model.report import EarlyEvents, RefreshCosts, TableReport
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.heartbeat import SILENT_SECONDS, Heartbeat, heartbeat, is_unread, read_beat
from strandline.jobs.run.stream import PipelineStream
from strandline.state_store.layout import LakeLayout
from tests.support.waiting import wait_until

EARLY = EarlyEvents("s", "products", 3, 7)
COSTS = RefreshCosts(refreshes=5, fixed_seconds=0.25, rows_seconds=0.125)
REPORT = TableReport(
    *("v", 3, 2, 10, 900, 4, 1, 0.5, {"s": 7}, {}, "delta", "few keys", "d:10"), early=(EARLY,), costs=COSTS
)


@pytest.fixture
def stream(lake: LakeLayout, settings: Settings) -> PipelineStream:
    """As much of a stream as a heartbeat looks at."""
    found: Any = SimpleNamespace(
        **{"pipeline": "shop", "lake": lake, "settings": settings, "sources": [], "failures": {}},
        **{"refreshed": None, "busy_since": None, "micro_batches": 0, "waiting": {}},
    )
    return cast(PipelineStream, found)


def beat_of(lake: LakeLayout) -> Heartbeat:
    found = read_beat(lake, "shop")
    assert found is not None
    return found


def test_it_beats_from_the_start_on_and_says_how_far_the_run_is(stream: PipelineStream, lake: LakeLayout) -> None:
    with heartbeat(stream, "continuous", lambda: (REPORT,), 0.02):
        first = beat_of(lake)
        assert (first.pipeline, first.mode, first.ended, first.refreshed) == ("shop", "continuous", False, None)
        assert first.is_running
        assert first.process.pid == os.getpid()
        stream.refreshed, stream.micro_batches = (12, 13), 5
        stream.failures["v"] = TopicMissing("gone")
        wait_until(lambda: beat_of(lake).micro_batches == 5, "it does not beat")
        later = beat_of(lake)
        assert (later.started, later.refreshed, later.settled) == (first.started, 12, 13)
        assert later.tables == (REPORT,)
        assert later.failures == {"v": "[source.topic_missing] gone"}
    last = beat_of(lake)
    assert (last.ended, last.error) == (True, None)
    assert not last.is_running


def test_a_run_that_fails_says_why_in_its_last_beat(stream: PipelineStream, lake: LakeLayout) -> None:
    with pytest.raises(TopicMissing), heartbeat(stream, "drain", tuple, 60):
        raise TopicMissing("topic 't' is not there", hint="create it")
    last = beat_of(lake)
    assert last.ended
    assert last.error == {
        "code": "source.topic_missing",
        "action": "stop",
        "message": "topic 't' is not there",
        "where": None,
        "hint": "create it",
    }


def test_a_beat_that_cannot_be_written_does_not_end_the_run(
    stream: PipelineStream, lake: LakeLayout, caplog: pytest.LogCaptureFixture
) -> None:
    Path(str(lake.root)).mkdir()
    (Path(str(lake.root)) / "runs").write_text("in the way")
    with heartbeat(stream, "drain", tuple, 60):
        pass
    assert "a heartbeat could not be written" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 3}', '{"format": 2}', '{"format": 1, "process": 7}'])
def test_a_beat_that_does_not_read_counts_as_none(text: str, lake: LakeLayout) -> None:
    path = Path(str(lake.run("shop")))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert read_beat(lake, "shop") is None


def test_no_flipped_bit_makes_another_beat(stream: PipelineStream, lake: LakeLayout) -> None:
    with heartbeat(stream, "drain", tuple, 60):
        pass
    path = Path(str(lake.run("shop")))
    whole, beat = path.read_bytes(), read_beat(lake, "shop")
    assert beat is not None
    for bit in range(len(whole) * 8):
        path.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        found = read_beat(lake, "shop")
        assert found in (None, beat)
        assert is_unread(lake, "shop") == (found is None)


def test_silence_is_of_runs_that_should_speak(stream: PipelineStream, lake: LakeLayout) -> None:
    with heartbeat(stream, "drain", tuple, 60):
        alive = beat_of(lake)
    assert not alive.is_silent(alive.at)
    assert past(alive, SILENT_SECONDS + 1).is_silent(alive.at)
    assert not past(beat_of(lake), SILENT_SECONDS + 1).is_silent(alive.at), "it has ended"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_makes_no_live_run_silent_and_no_silent_one_live(
    stream: PipelineStream, lake: LakeLayout, hours: int
) -> None:
    with heartbeat(stream, "continuous", tuple, 60):
        alive = beat_of(lake)
    now = alive.at + hours * 3_600_000
    assert alive.silent_seconds(now) < SILENT_SECONDS
    assert past(alive, SILENT_SECONDS + 1).is_silent(now)


def test_the_clocks_of_both_tell_the_silence_of_another_host(stream: PipelineStream, lake: LakeLayout) -> None:
    """Also of this one before its last boot: the monotonic clock began anew."""
    with heartbeat(stream, "continuous", tuple, 60):
        alive = beat_of(lake)
    other = replace(alive, process=replace(alive.process, host="another"))
    later = alive.at + int(SILENT_SECONDS * 1000)
    assert not other.is_silent(later)
    assert other.is_silent(later + 1)


def past(beat: Heartbeat, seconds: float) -> Heartbeat:
    """The beat, made so much earlier."""
    assert beat.ticked is not None
    return replace(beat, at=beat.at - int(seconds * 1000), ticked=beat.ticked - seconds)
