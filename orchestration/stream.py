"""The continuous mode: one run per pipeline that keeps its streaming query alive.

    run ── step: watch(pipeline) ──> the stream, a process of its own ──> heartbeat in the lake
                     │  starts it, or finds the one that is alive          │
                     └──────── progress, plots, its end and why <──────────┘

The stream does not end with whoever watches it. When the run's process dies, or the code server with it, the stream
goes on, and the next run finds it by its heartbeat. Only a run that is stopped, or finds the stream silent, ends it.
The writer's lock of the lake sees to it that there are never two.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model import tables
from strandline.jobs.model.report import counted_since
from strandline.jobs.operate.assurance import DayCosts, day_costs
from strandline.jobs.operate.health_checks import Waiting
from strandline.jobs.run.dagster_child import table_metadata
from strandline.jobs.run.heartbeat import SILENT_SECONDS, Heartbeat, read_beat
from strandline.orchestration.assets import ChangelogTopics, Role, from_pipes, role_of, table_of
from strandline.orchestration.launch import GRACE_SECONDS, Group, ProcessGroup, last_lines, signals_held_back
from strandline.orchestration.told_rows import LastTold, Provenance, with_definition_once
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import Action, StrandlineError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.processes import process

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.report import TableReport
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.processes import Process


# The progress of a stream, as Dagster's events: what each table and topic has done since the last report.
#
# Labels are those of a drain's report, so that Dagster plots both on one line. Rows are counted by the commits since
# the version that was reported last, by whichever run: what a stream committed in the moment before it was killed is
# counted with what the next one does.

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
Beside = Callable[[Sequence[dg.AssetKey]], Iterable[dg.AssetCheckEvaluation]]
"""What is told of checks beside these assets, which are materialized."""


@dataclass(frozen=True)
class Telling:
    """How Dagster is told of a stream.

    Attributes:
        last: what it was told last.
        every: seconds between two materializations of one table.
        beside: the checks that are told of beside what is materialized.
    """

    last: LastTold
    provenance: Provenance
    every: float
    beside: Beside


class Progress:
    """Turns the beats of one pipeline's streams into events.

    Args:
        specs: the assets of the pipeline, and of its topics.
        topics: {topic that it reads: its asset}.
        definitions: those of the pipeline.
    """

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[dg.AssetSpec],
        topics: Mapping[str, dg.AssetKey],
        definitions: Sequence[Definition],
        telling: Telling,
    ) -> None:
        self._settings, self._specs, self._topics, self._telling = settings, specs, topics, telling
        of_tables = {table_of(spec): spec.key for spec in reversed(specs) if role_of(spec) is not Role.TOPIC}
        versions = {table: telling.last.version(key) for table, key in of_tables.items()}
        self._told = {table: version for table, version in versions.items() if version is not None}
        self._defined: set[dg.AssetKey] = set()
        self._at: dict[str, float] = {}
        self._published = ChangelogTopics(settings, definitions)
        self._run: tuple[int, int] | None = None
        self._tables: dict[str, TableReport] = {}
        self._lag: dict[str, int | None] = {}

    def said(self, beat: Heartbeat) -> str:
        """One line for the run's log."""
        before = self._before(beat)
        changed = [each for each in beat.tables if _changed(each, before.get(each.name))]
        waiting = ", ".join(f"{topic}: {'?' if n is None else n} waiting" for topic, n in beat.lag.items())
        busy = f"; at work since {(now_ms() - beat.busy_since) / 1000:.0f} s" if beat.busy_since is not None else ""
        stopped = f"; stopped: {', '.join(beat.failures)}" if beat.failures else ""
        what = ", ".join(f"{each.name} at version {each.version}" for each in changed) or "nothing changed"
        return f"{what} ({beat.micro_batches} micro-batches so far; {waiting or 'no topics'}{busy}{stopped})"

    def events(self, beat: Heartbeat) -> Iterator[Event]:
        """The events since the last call: a materialization of each table that changed, unless there was one a moment
        ago, what its checks come to, each topic's lag, and how far each changelog topic is."""
        before = self._before(beat)
        waiting = self._waiting()
        materialized: list[dg.AssetKey] = []
        for table in beat.tables:
            last, now = before.get(table.name), time.monotonic()
            early = not beat.ended and now - self._at.get(table.name, -self._telling.every) < self._telling.every
            if not _changed(table, last) or early:
                continue
            epochs = table.epoch - (last.epoch if last is not None else 0)
            costs = costs_metadata(day_costs(beat, table.name))
            for event in self._materialized(self._counted(_since(table, last)), epochs, waiting, costs):
                materialized.append(event.asset_key)
                yield event
            self._told[table.name], self._at[table.name], before[table.name] = table.version, now, table
        yield from self._telling.beside(materialized)
        for topic, lag in beat.lag.items():
            # A topic that was added after Dagster has loaded its definitions has no asset yet.
            asset = self._topics.get(topic)
            if asset is not None and lag is not None and lag != self._lag.get(topic, -1):
                yield dg.AssetObservation(asset, metadata={"lag": lag})
        yield from self._published.events()
        self._run, self._tables, self._lag = (beat.process.pid, beat.started), before, dict(beat.lag)

    def _counted(self, table: TableReport) -> TableReport:
        """The report with the rows by the commits since the version that was reported last."""
        try:
            return counted_since(table, LakeLayout(self._settings.lake).table(table.name), self._told.get(table.name))
        except StrandlineError:
            return table  # what is broken is told by the run

    def _before(self, beat: Heartbeat) -> dict[str, TableReport]:
        """What was reported last. A new process counts from nothing again, at the versions that are known."""
        if self._run == (beat.process.pid, beat.started):
            return dict(self._tables)
        return {name: replace(each, inserted=0, deleted=0, seconds=0.0) for name, each in self._tables.items()}

    def _materialized(
        self, table: TableReport, epochs: int, waiting: Waiting, costs: Mapping[str, float]
    ) -> Iterator[dg.AssetMaterialization]:
        for spec in self._specs:
            role = role_of(spec)
            if role is Role.TOPIC or table_of(spec) != table.name:
                continue
            metadata: dict[str, Any] = from_pipes(table_metadata(table, role))
            if role is Role.PROJECTION:
                metadata |= costs
            if epochs > 0:
                metadata["seconds per epoch"] = round(table.seconds / epochs, 4)
            with suppress(StrandlineError):  # a definition that was dropped meanwhile, a broker that does not answer
                metadata["stale seconds"] = round(waiting.seconds(tables.definition_of(table.name), now_ms()), 3)
            yield dg.AssetMaterialization(
                spec.key,
                description="Told while the stream runs.",
                metadata=self._with_definition(metadata, spec),
                tags=self._telling.provenance.tags(spec, table),
            )

    def _with_definition(self, metadata: Mapping[str, Any], spec: dg.AssetSpec) -> dict[str, Any]:
        if spec.key in self._defined:
            return dict(metadata)
        self._defined.add(spec.key)
        return with_definition_once(metadata, spec, self._telling.last.of(spec.key))

    def _waiting(self) -> Waiting:
        lake = LakeLayout(self._settings.lake)
        return Waiting(Catalog(lake), WholeHeads(lake), open_log(self._settings, lake))


def costs_metadata(costs: DayCosts) -> dict[str, float]:
    """What the refreshes of a view take a day, would take at other targets, and ask of an object store. Labels must not
    change: Dagster plots each over time."""
    found = {} if costs.seconds is None else {"refresh seconds a day": costs.seconds}
    others = {target: seconds for target, seconds in (costs.at or {}).items() if target != "none"}
    found |= {f"refresh requests a day: {verb}": number for verb, number in (costs.requests or {}).items()}
    return found | {f"refresh seconds a day at FRESHNESS {target} s": seconds for target, seconds in others.items()}


def _changed(table: TableReport, before: TableReport | None) -> bool:
    return before is None or before.version != table.version


def _since(table: TableReport, before: TableReport | None) -> TableReport:
    """The report with the counts since the last one."""
    if before is None:
        return table
    return replace(
        table,
        inserted=table.inserted - before.inserted,
        deleted=table.deleted - before.deleted,
        seconds=round(table.seconds - before.seconds, 3),
    )


POLL_SECONDS: Final = 0.5
"""Between two looks whether the stream lives: one read of /proc."""
REPORT_SECONDS: Final = 30.0
"""Between two reports: an event per changed table, 2,880 a day. Dagster's storage keeps events for ever."""
ASK_SECONDS: Final = 5.0
"""Between two looks whether the run is still wanted: a query of Dagster's storage."""
_RESTARTS: Final = 5
"""A stream that dies that often, each time within `_SETTLED_SECONDS`, does so for a reason: the run fails."""
_SETTLED_SECONDS: Final = 300.0
"""A stream that lived for so long took in events: what ended it is counted as the first of its kind again."""
_FIRST_DELAY_SECONDS: Final = 2.0
"""Before the second start in a row; the first is made at once, each further one after twice the time."""
_ORPHANS_SECONDS: Final = 2.0
"""What a dead stream leaves, its JVM and workers, ends by itself in about a second. It can complete nothing that the
next stream would not do, so it is not waited for."""
# An error of ours is a line and its hint; the end of a Python traceback says what and where.
_SAID_LINES: Final = 4
# Until the first beat: imports, the plan of every view, and on a busy machine all of that slowly.
_FIRST_BEAT_SECONDS: Final = 120.0


def stream_command(pipeline: str) -> list[str]:
    """The command of a stream, with the interpreter that runs this process: it has the packages."""
    return [sys.executable, "-m", "strandline.jobs.run.dagster_child", "follow", pipeline]


@dataclass(frozen=True)
class Pace:
    """The times between looks, reports and restarts, in seconds. Tests take shorter ones.

    Attributes:
        grace: of a stream that is asked to end.
        orphans: of what a stream leaves that has ended.
    """

    poll: float = POLL_SECONDS
    report: float = REPORT_SECONDS
    restart: float = _FIRST_DELAY_SECONDS
    ask: float = ASK_SECONDS
    silence: float = SILENT_SECONDS
    grace: float = GRACE_SECONDS
    orphans: float = _ORPHANS_SECONDS


@dataclass
class Watch:
    """The watch over one pipeline's stream.

    Args:
        output: the file that takes what the stream writes to standard output and error.
        progress: turns beats into Dagster's events.
    """

    pipeline: str
    lake: LakeLayout
    output: Path
    progress: Progress
    context: dg.OpExecutionContext
    command: Sequence[str]
    pace: Pace = field(default_factory=Pace)
    _group: Group | None = field(default=None, init=False)
    _leader: Process | None = field(default=None, init=False)
    """The process that leads the group, by more than its pid: in a container that starts again pids come again."""

    def run(self) -> Iterator[Event]:
        """Keep the stream alive until it is stopped; yields its progress. The caller calls `end` afterwards, always.

        Raises:
            Failure: it failed, died too often, or fell silent.
        """
        deaths = 0
        while True:
            began = time.monotonic()
            self._group = group = self._found() or self._started()
            yield from self._watch(group)
            beat = self._last_beat()
            if beat is not None and beat.ended and beat.error is None:
                self.context.log.info("the stream of '%s' was stopped; this run ends with it", self.pipeline)
                return
            group.stop(self.pace.orphans)
            deaths = deaths + 1 if time.monotonic() - began < _SETTLED_SECONDS else 1
            told = self._told(beat, group)
            self._raise_if_final(told, beat, deaths)
            # At once the first time: whoever reads the views waits.
            delay = self.pace.restart * 2 ** (deaths - 2) if deaths > 1 else 0.0
            self.context.log.warning("%s; it is started again %s", told, f"in {delay:g} s" if delay else "now")
            time.sleep(delay)

    def end(self) -> None:
        """End what is left of the stream: its JVM after it, or all of it after a stop of the run or a failure.

        Not a `finally` of `run`: a cancel that comes while Dagster stores an event is raised outside the generator, and
        the traceback then keeps the generator from being closed.
        """
        if self._group is not None:
            self._group.stop(self.pace.grace)

    def _found(self) -> Group | None:
        """The stream that is alive already. Raises Failure: it is not one that Dagster started."""
        beat = read_beat(self.lake, self.pipeline)
        if beat is None or beat.mode != "continuous" or beat.ended or not beat.process.is_alive:
            return None
        try:
            leads = os.getsid(beat.process.pid) == beat.process.pid
        except ProcessLookupError:  # it has ended since
            return None
        if not leads:
            raise dg.Failure(
                f"'{self.pipeline}' is streamed by process {beat.process.pid}, which a terminal started: stop it "
                "there, and launch this job again"
            )
        self.context.log.info("found the stream of '%s': process %d", self.pipeline, beat.process.pid)
        self._leader = beat.process
        return Group(beat.process.pid)

    def _started(self) -> ProcessGroup:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with self.output.open("a") as output, signals_held_back():
            self._group = child = ProcessGroup(self.command, env=environment, stdout=output, stderr=output)
        self._leader = process(child.pid)
        self.context.log.info("started process %d: %s (output: %s)", child.pid, " ".join(self.command), self.output)
        return child

    def _watch(self, group: Group) -> Iterator[Event]:
        """Look until the leader of the group has ended, or has said so and stays.

        Raises:
            Failure: it is silent, or not wanted any more.
        """
        since, reported, asked = time.monotonic(), 0.0, 0.0
        while self._lives(group):
            beat = self._last_beat()
            if beat is None or not beat.ended:
                self._check_silence(beat, time.monotonic() - since)
            elif beat.silent_seconds(now_ms()) > self.pace.grace:
                break  # its last word stands; what is left of it does not go by itself
            if time.monotonic() - asked >= self.pace.ask:
                asked = time.monotonic()
                self._check_wanted()
            if beat is not None and time.monotonic() - reported >= self.pace.report:
                reported = time.monotonic()
                yield from self._report(beat)
            time.sleep(self.pace.poll)
        beat = self._last_beat()
        if beat is not None:
            yield from self._report(beat)

    def _report(self, beat: Heartbeat) -> Iterator[Event]:
        self.context.log.info(self.progress.said(beat))
        yield from self.progress.events(beat)

    def _lives(self, group: Group) -> bool:
        return group.pid in group.members()

    def _last_beat(self) -> Heartbeat | None:
        """The last beat of this very stream."""
        beat = read_beat(self.lake, self.pipeline)
        return beat if beat is not None and beat.process == self._leader else None

    def _check_silence(self, beat: Heartbeat | None, watched: float) -> None:
        silent = watched if beat is None else beat.silent_seconds(now_ms())
        limit = max(self.pace.silence, _FIRST_BEAT_SECONDS) if beat is None else self.pace.silence
        if silent > limit:
            raise dg.Failure(
                f"the stream of '{self.pipeline}' has been silent for {silent:.0f} s: it is ended",
                metadata={"output": dg.MetadataValue.path(str(self.output))},
            )

    def _check_wanted(self) -> None:
        """A cancel reaches this process through the code server that started it, which may be gone."""
        run = self.context.instance.get_run_by_id(self.context.run_id)
        if run is None or run.is_finished or run.status is dg.DagsterRunStatus.CANCELING:
            raise dg.Failure(f"the run was ended: the stream of '{self.pipeline}' ends with it", allow_retries=False)

    def _raise_if_final(self, told: str, beat: Heartbeat | None, deaths: int) -> None:
        final = beat is not None and beat.error is not None and beat.error["action"] in (Action.STOP, Action.RESTORE)
        if final or deaths >= _RESTARTS:
            often = "" if final else f" ({deaths} times in a row)"
            raise dg.Failure(
                f"{told}{often}", metadata={"output": dg.MetadataValue.path(str(self.output))}, allow_retries=False
            )

    def _told(self, beat: Heartbeat | None, group: Group) -> str:
        """How a stream ended, in words."""
        if beat is not None and beat.ended and beat.error is not None:
            hint = f"\nhint: {beat.error['hint']}" if beat.error.get("hint") else ""
            return f"[{beat.error['code']}] {beat.error['message']}{hint}"
        code = group.poll() if isinstance(group, ProcessGroup) else None
        if code is None or code < 0:
            return f"the stream of '{self.pipeline}' was killed"
        # It may not even have begun: another process holds the lock, or the settings are wrong.
        said = last_lines(self.output, _SAID_LINES)
        return "\n".join([f"the stream of '{self.pipeline}' ended with exit code {code}; its last words:", *said])
