"""The decision of a pipeline's keeper: when a run is lost, when a stream is ended, when a run is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from strandline.jobs.run.heartbeat import SILENT_SECONDS, Heartbeat
from strandline.orchestration.streaming import KEEPER_TAG, Found, Run, Start, Wait, decide, free_slots
from strandline.state_store.processes import Process, process

NOW = 1_000_000_000
ME = process(os.getpid())
assert ME is not None
GONE = replace(ME, started="1")
ELSEWHERE = replace(ME, host="another")


def tags_of(keeper: Process | None) -> Mapping[str, str]:
    return {} if keeper is None else {KEEPER_TAG: f"{keeper.pid} {keeper.started} {keeper.boot} {keeper.host}"}


def run(status: DagsterRunStatus, keeper: Process | None = ME, seconds_ago: float = 1.0) -> Run:
    made = DagsterRun("stream_packages", status=status, tags=dict(tags_of(keeper)))
    return Run(made, NOW - int(seconds_ago * 1000))


def beat(silent: float = 0.0, by: Process = ME, *, ended: bool = False) -> Heartbeat:
    at = NOW - int(silent * 1000)
    return Heartbeat("packages", "continuous", by, at, at, at, None, 1, {}, {}, (), ended)


STARTED, FAILED = DagsterRunStatus.STARTED, DagsterRunStatus.FAILURE


def test_a_pipeline_that_nobody_launched_is_not_kept() -> None:
    """A stream is a JVM: whoever wants one launches it once."""
    assert decide(Found([], None), NOW).then == Wait("it was never launched")


@pytest.mark.parametrize("status", [DagsterRunStatus.STARTING, STARTED, DagsterRunStatus.CANCELING])
def test_a_run_that_keeps_it_is_left_alone(status: DagsterRunStatus) -> None:
    decision = decide(Found([run(status)], beat(5)), NOW)
    assert (decision.lost, decision.end) == ((), None)
    assert isinstance(decision.then, Wait)
    assert "heartbeat is 5 s old" in decision.then.reason


def test_a_run_whose_process_is_gone_is_lost_and_its_stream_is_not_touched() -> None:
    """The next run finds the stream: it goes on meanwhile."""
    lost = run(STARTED, GONE)
    decision = decide(Found([lost], beat()), NOW)
    assert [each for each, _ in decision.lost] == [lost.run]
    assert "is gone" in decision.lost[0][1]
    assert decision.end is None
    assert isinstance(decision.then, Start)


def test_a_run_of_another_host_is_not_known_by_its_pid() -> None:
    assert decide(Found([run(STARTED, ELSEWHERE)], beat(by=ELSEWHERE)), NOW).lost == ()


def test_a_run_that_never_noted_its_process_is_lost_after_two_minutes() -> None:
    assert decide(Found([run(STARTED, None, 60)], None), NOW).lost == ()
    (lost,) = decide(Found([run(STARTED, None, 121)], None), NOW).lost
    assert "never began" in lost[1]


def test_a_silent_stream_loses_its_run_and_is_ended() -> None:
    decision = decide(Found([run(STARTED)], beat(2 * SILENT_SECONDS + 1)), NOW)
    assert "silent for 121 s" in decision.lost[0][1]
    assert decision.end == os.getpid()
    assert isinstance(decision.then, Start)


def test_a_silent_process_that_is_not_ours_by_now_is_never_ended() -> None:
    """Its pid may be another's: after a reboot, or on another host."""
    for other in (GONE, ELSEWHERE):
        assert decide(Found([run(STARTED)], beat(2 * SILENT_SECONDS + 1, other)), NOW).end is None


def test_what_a_person_stopped_stays_stopped() -> None:
    decision = decide(Found([run(DagsterRunStatus.CANCELED), run(FAILED)], None), NOW)
    assert isinstance(decision.then, Wait)
    assert "stopped by a person" in decision.then.reason


@pytest.mark.parametrize(("failures", "delay"), [(1, 15), (2, 30), (3, 60), (8, 900)])
def test_what_fails_again_and_again_is_started_later_and_later(failures: int, delay: int) -> None:
    def after(seconds: float) -> Start | Wait:
        runs = [run(FAILED, seconds_ago=seconds) for _ in range(failures)]
        return decide(Found(runs, beat(ended=True)), NOW).then

    assert isinstance(after(delay - 1), Wait)
    assert isinstance(after(delay + 1), Start)


def test_a_stream_that_was_killed_with_its_run_is_started_at_once() -> None:
    """Dagster has marked the run failed before the tick. The slot of the run is free then; a second time in a row
    may have a reason."""
    killed = run(FAILED, GONE)
    decision = decide(Found([killed], beat(5, GONE)), NOW)
    assert decision.then == Start("no run keeps it")
    assert decision.free == (killed.run.run_id,)
    assert isinstance(decide(Found([killed, run(FAILED, GONE)], beat(5, GONE)), NOW).then, Wait)


def test_only_a_run_whose_process_is_gone_gives_its_slot_back() -> None:
    for other in (run(FAILED, ME), run(FAILED, ELSEWHERE), run(FAILED, None), run(DagsterRunStatus.SUCCESS, GONE)):
        assert decide(Found([other], None), NOW).free == ()
    assert decide(Found([run(STARTED, GONE)], None), NOW).free != ()


def test_the_slots_of_these_runs_are_free(tmp_path: Path) -> None:
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        storage = instance.event_log_storage
        storage.set_concurrency_slots("stream:packages", 1)
        storage.claim_concurrency_slot("stream:packages", "killed", "step")
        storage.claim_concurrency_slot("stream:packages", "next", "step")
        free_slots(instance, ["killed", "unknown"])
        assert storage.get_concurrency_run_ids() == {"next"}


def test_a_run_that_went_well_ends_the_chain_of_failures() -> None:
    runs = [run(FAILED, seconds_ago=16), run(DagsterRunStatus.SUCCESS), *[run(FAILED)] * 5]
    assert isinstance(decide(Found(runs, None), NOW).then, Start)
