"""The run that keeps a stream alive: real child processes that beat as streams do, without a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.assurance import DayCosts
from strandline.jobs.run.heartbeat import Heartbeat, read_beat
from strandline.orchestration import stream as stream_module
from strandline.orchestration import streaming as streaming_module
from strandline.orchestration.launch import ProcessGroup
from strandline.orchestration.stream import Event, Pace
from strandline.orchestration.streaming import KEEPER_TAG
from strandline.orchestration.translator import Translator
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.unit.orchestration.child_drains import alive

SQL = """CREATE STREAM checkins (id BIGINT KEY, place VARCHAR) WITH (KAFKA_TOPIC = 't');
CREATE TABLE locations AS SELECT id, LATEST_BY_OFFSET(place) AS place FROM checkins GROUP BY id;"""

BEATS = """
import json, os, signal, sys, time
from pathlib import Path
from strandline.state_store.layout import LakeLayout
from strandline.state_store.processes import process
lake, what = LakeLayout(Path(sys.argv[1])), sys.argv[2]
starts = Path(sys.argv[1]) / 'starts'
number = len(starts.read_text().split()) + 1 if starts.exists() else 1
with starts.open('a') as file: file.write(f'{os.getpid()} ')
stop, topics, ago = [], ['t'], 0
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
started = int(time.time() * 1000)
def table(name, version, rows):
    return dict(name=name, version=version, epoch=version, rows=rows, bytes=100, inserted=version * 3, deleted=0,
                seconds=0.5 * version, vector={}, offsets={}, mode='delta', reason='few keys',
                digest=f'd:{rows}', late=None, early=())
def beat(version, ended=False, error=None):
    path = lake.run('packages'); path.parent.mkdir(parents=True, exist_ok=True)
    now = int(time.time() * 1000)
    content = dict(format=1, pipeline='packages', mode='continuous', process=process(os.getpid()).as_json(),
        started=started, at=now - ago, ticked=time.monotonic(), refreshed=now, busy_since=None, micro_batches=version,
        lag=dict.fromkeys(topics, version), failures={},
        tables=[table('checkins', version, 3), table('locations', 1, 2)], ended=ended, error=error)
    new = path.with_suffix('.new'); new.write_text(json.dumps(content)); new.replace(path)
beat(1)
"""
GOES_ON = """
version = 1
while not stop:
    time.sleep(0.05); version = min(version + 1, 4); beat(version)
beat(version, ended=True)
"""
UNTIL_REPORTED = """
while not (Path(sys.argv[1]) / 'reported').exists(): time.sleep(0.02)
"""
WITH_A_NEW_TOPIC = "topics.append('later')\n" + GOES_ON
DIES_ONCE = "if number == 1: os.kill(os.getpid(), signal.SIGKILL)\n" + GOES_ON
REFUSES = """
beat(1, True, dict(code='source.topic_missing', action='stop', message='no topic', where=None, hint='create it'))
sys.exit(1)
"""
ANOTHER_S_BEAT = """
path = lake.run('packages'); beat(1, ended=True); content = json.loads(path.read_text())
content['process']['started'] = '1'; path.write_text(json.dumps(content))
sys.exit(3)
"""
WHILE_ITS_CLOCK_IS_BEHIND = "ago = 3_600_000\n" + GOES_ON
STAYS_AFTER_ITS_END = REFUSES.replace("sys.exit(1)", "time.sleep(600)")
SAYS_NOTHING = "time.sleep(600)"
ALWAYS_DIES = "os.kill(os.getpid(), signal.SIGKILL)"


def command(lake: LakeLayout, body: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(BEATS) + textwrap.dedent(body), str(lake.root), ""]


def starts(lake: LakeLayout) -> list[int]:
    file = Path(str(lake.root)) / "starts"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


Report = Callable[[stream_module.Watch, Heartbeat], Iterator[Event]]


class Bench:
    """A pipeline whose stream is another program."""

    def __init__(self, lake: LakeLayout, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake, self.settings, self.monkeypatch = lake, settings, monkeypatch
        self.instance = dg.DagsterInstance.ephemeral()
        self.reported = Path(str(lake.root)) / "reported"
        """A file that is there once a run has reported what it saw at its first look."""
        monkeypatch.setattr(stream_module.Watch, "_report", noting(self.reported, stream_module.Watch._report))
        catalog = catalog_of(lake, SQL, pipeline="packages")
        self.definitions = catalog.pipeline("packages")

    def run(self, body: str, pace: Pace | None = None) -> dg.ExecuteInProcessResult:
        pace = pace or Pace(poll=0.02, report=0.1, restart=0.01, silence=PATIENCE_SECONDS, ask=0.05, grace=1.0)
        self.monkeypatch.setattr(streaming_module, "stream_command", lambda _pipeline: command(self.lake, body))
        translator = Translator(self.definitions, self.lake)
        specs = [spec for each in self.definitions for spec in translator.specs(each)]
        job = streaming_module.stream_job("packages", specs, {"t": specs[0].key}, self.definitions, self.settings, pace)
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def materialized(self, key: dg.AssetKey) -> list[Mapping[str, dg.MetadataValue[Any]]]:
        """The metadata of what was told of an asset's rows, the oldest first."""
        found = self.instance.fetch_materializations(key, limit=100, ascending=True).records
        return [each.asset_materialization.metadata for each in found if each.asset_materialization is not None]

    def observed(self) -> list[dg.AssetObservation]:
        """What was told of the topic, the oldest first."""
        key = dg.AssetKey(["topics", "t.topic"])
        found = self.instance.fetch_observations(key, limit=100, ascending=True).records
        return [each.asset_observation for each in found if each.asset_observation is not None]

    def beat(self) -> Heartbeat | None:
        return read_beat(self.lake, "packages")

    def stop_when(self, pids: int, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the newest stream, once as many have begun and it has beaten four times."""

        def send() -> None:
            wait_until(lambda: len(starts(self.lake)) >= pids, "it did not start")
            wait_until(lambda: (found := self.beat()) is not None and found.micro_batches >= 4, "it did not beat")
            # A stream of another run would otherwise end before this run has found it.
            wait_until(self.reported.exists, "the run reported nothing")
            os.kill(starts(self.lake)[-1], number)

        threading.Thread(target=send, daemon=True).start()


def noting(reported: Path, report: Report) -> Report:
    """A report that notes its end in a file."""

    def noted(watch: stream_module.Watch, beat: Heartbeat) -> Iterator[Event]:
        yield from report(watch, beat)
        reported.touch()

    return noted


@pytest.fixture
def bench(lake: LakeLayout, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(lake, settings, monkeypatch)
    yield made
    for pid in starts(lake):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_progress_reaches_the_asset_pages_while_it_runs(bench: Bench) -> None:
    """Each table that changed, with the counts since the last report; each topic's lag."""
    bench.stop_when(1)
    result = bench.run(UNTIL_REPORTED + GOES_ON)
    assert result.success
    logs = bench.materialized(dg.AssetKey(["logs", "checkins__log"]))
    assert len(logs) >= 2
    assert sum(int(str(each["rows inserted"].value)) for each in logs) == 12, "3 rows for each of 4 versions"
    assert logs[-1]["delta version"].value == 4
    assert logs[-1]["seconds per epoch"].value == 0.5
    assert len(bench.materialized(dg.AssetKey(["projections", "locations"]))) == 1, "it changed once"
    assert bench.observed()[-1].metadata["lag"].value == 4
    run = bench.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[KEEPER_TAG].startswith(f"{os.getpid()} ")


def test_what_a_view_costs_a_day_is_plotted_with_what_it_would_cost_at_other_targets() -> None:
    costs = DayCosts(1_440.0, {"none": 1_440.0, "60": 24.0, "600": 3.0}, {"get": 8.0, "put": 4.0})
    assert stream_module.costs_metadata(costs) == {
        "refresh seconds a day": 1_440.0,
        "refresh requests a day: get": 8.0,
        "refresh requests a day: put": 4.0,
        "refresh seconds a day at FRESHNESS 60 s": 24.0,
        "refresh seconds a day at FRESHNESS 600 s": 3.0,
    }
    assert stream_module.costs_metadata(DayCosts()) == {}, "a run of some seconds says little of a day"


def test_a_topic_that_dagster_does_not_know_yet_is_left_out(bench: Bench) -> None:
    """A source that was added since the code location was loaded: the stream has it from its next start on."""
    bench.stop_when(1)
    result = bench.run(WITH_A_NEW_TOPIC)
    assert result.success
    assert len({event.asset_key for event in bench.observed()}) == 1


def test_the_last_beat_of_another_process_of_that_pid_is_not_the_stream_s(bench: Bench) -> None:
    """As in a container that was started again: its pids begin where they began before."""
    result = bench.run(ANOTHER_S_BEAT)
    assert "ended with exit code 3" in failure(result)
    assert len(starts(bench.lake)) == 5


def test_a_stream_that_dies_is_started_again_by_the_same_run(bench: Bench) -> None:
    bench.stop_when(2)
    assert bench.run(DIES_ONCE).success
    assert len(starts(bench.lake)) == 2


def test_a_stream_that_dies_at_every_start_fails_the_run(bench: Bench) -> None:
    result = bench.run(ALWAYS_DIES)
    assert not result.success
    assert len(starts(bench.lake)) == 5
    assert "was killed (5 times in a row)" in failure(result)


def test_a_stream_that_never_begins_says_why(bench: Bench) -> None:
    """Another process holds the lock: there is no heartbeat of this one."""
    result = bench.run("lake.run('packages').unlink()\nprint('[store.writer_busy] process 7 writes it')\nsys.exit(1)")
    assert "ended with exit code 1" in failure(result)
    assert "[store.writer_busy] process 7 writes it" in failure(result)


def test_an_error_that_only_a_person_mends_fails_the_run_at_once_with_its_hint(bench: Bench) -> None:
    result = bench.run(REFUSES)
    assert failure(result) == "[source.topic_missing] no topic\nhint: create it"
    assert len(starts(bench.lake)) == 1


def test_a_stream_that_ended_and_stays_is_ended_for_its_own_reason(bench: Bench) -> None:
    """As one whose JVM does not end. It says nothing any more, but that is not why the run fails."""
    result = bench.run(STAYS_AFTER_ITS_END)
    assert failure(result) == "[source.topic_missing] no topic\nhint: create it"
    assert len(starts(bench.lake)) == 1
    assert not any(alive(pid) for pid in starts(bench.lake))


def test_a_silent_stream_is_ended_and_the_run_says_so(bench: Bench) -> None:
    result = bench.run(SAYS_NOTHING, Pace(poll=0.02, report=0.1, restart=0.01, silence=1.0, ask=0.05, grace=1.0))
    assert "has been silent for" in failure(result)
    assert not any(alive(pid) for pid in starts(bench.lake))


def test_a_clock_that_is_set_forward_by_an_hour_fails_no_run(bench: Bench) -> None:
    """Until the next beat the last one seems as old."""
    bench.stop_when(1)
    assert bench.run(WHILE_ITS_CLOCK_IS_BEHIND).success


def test_a_cancelled_run_ends_its_stream(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In between its looks: a look that is cut off leaves Dagster's database in memory locked."""

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        beat = bench.beat()
        if beat is not None and beat.micro_batches >= 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(stream_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    assert not bench.run(GOES_ON).success
    assert len(starts(bench.lake)) == 1
    assert not any(alive(pid) for pid in starts(bench.lake)), "the stream outlived its run"


def test_a_run_that_is_cancelled_while_an_event_is_stored_ends_its_stream(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster raises it outside the op's generator, which nothing closes."""
    store = dg.DagsterInstance.handle_new_event

    def cancel_and_store(instance: dg.DagsterInstance, event: dg.EventLogEntry, **options: Any) -> None:
        kind = event.dagster_event.event_type if event.dagster_event is not None else None
        if kind is dg.DagsterEventType.ASSET_MATERIALIZATION:
            os.kill(os.getpid(), signal.SIGINT)
        store(instance, event, **options)

    monkeypatch.setattr(dg.DagsterInstance, "handle_new_event", cancel_and_store)
    assert not bench.run(GOES_ON).success
    assert len(starts(bench.lake)) == 1
    assert not any(alive(pid) for pid in starts(bench.lake)), "the stream outlived its run"


def test_a_run_that_is_cancelled_while_it_starts_its_stream_ends_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[int] = []

    class Cancelled(ProcessGroup):
        """Its child is there, and nobody knows of it yet."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            children.append(self.pid)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(stream_module, "ProcessGroup", Cancelled)
    assert not bench.run(GOES_ON).success
    assert len(children) == 1
    assert not alive(children[0]), "the stream outlived its run"


def test_a_run_that_is_marked_as_ended_ends_its_stream(bench: Bench) -> None:
    """As a forced termination does, when the code server is gone that could pass a cancel on."""

    def mark() -> None:
        wait_until(lambda: bench.beat() is not None, "it did not beat")
        (run,) = bench.instance.get_runs()
        bench.instance.report_run_canceling(run)

    threading.Thread(target=mark, daemon=True).start()
    bench.run(GOES_ON)
    assert not any(alive(pid) for pid in starts(bench.lake))


def test_a_stream_that_ends_while_it_is_looked_at_is_started_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = subprocess.Popen(command(bench.lake, GOES_ON), start_new_session=True)
    wait_until(lambda: bench.beat() is not None, "it did not beat")
    session_of = os.getsid

    def ended_before(pid: int) -> int:
        first.kill()
        first.wait()
        return session_of(pid)

    monkeypatch.setattr(os, "getsid", ended_before)
    bench.stop_when(2)
    assert bench.run(GOES_ON).success
    assert len(starts(bench.lake)) == 2


KEEPS = """
import sys
import dagster as dg
from pathlib import Path
from strandline.jobs.model.settings import load_settings
from strandline.orchestration import streaming
from strandline.orchestration.launch import ProcessGroup
from strandline.orchestration.stream import Event
from strandline.orchestration.stream import Pace
command = sys.argv[2:]
streaming.stream_command = lambda _pipeline: command
job = streaming.stream_job('packages', [], {}, [], load_settings(lake=Path(sys.argv[1])), Pace(poll=0.02))
job.execute_in_process(instance=dg.DagsterInstance.ephemeral())
"""


def test_a_stream_outlives_a_killed_run_and_the_next_run_finds_it(bench: Bench) -> None:
    """The run's process is killed as a code server is: nothing is left that could tell the stream to end."""
    keeper = subprocess.Popen([sys.executable, "-c", KEEPS, str(bench.lake.root), *command(bench.lake, GOES_ON)])
    wait_until(lambda: bench.beat() is not None, "the stream did not start")
    keeper.kill()
    keeper.wait()
    (stream,) = starts(bench.lake)
    assert alive(stream)
    bench.stop_when(1)
    result = bench.run(GOES_ON)
    assert result.success
    assert starts(bench.lake) == [stream], "no second one was started"


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = result.get_step_failure_events()
    data = event.step_failure_data.user_failure_data
    assert data is not None
    return data.description or ""
