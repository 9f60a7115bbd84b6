"""The jobs of the pipelines' continuous mode, and the sensor that keeps what they began."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dagster as dg
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from strandline.jobs.model.definitions import Definition
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.heartbeat import SILENT_SECONDS, Heartbeat, read_beat
from strandline.orchestration.assets import Role, identifier, role_of
from strandline.orchestration.launch import Group
from strandline.orchestration.stream import Event, Pace, Progress, Telling, Watch, stream_command
from strandline.orchestration.told_checks import CheapChecks, ToldChecks
from strandline.orchestration.told_rows import LastTold, Provenance, told_every
from strandline.state_store.delta.log import now_ms
from strandline.state_store.layout import LakeLayout
from strandline.state_store.processes import Process, process

# The keeper's decision on one pipeline at one tick, as data: which runs are lost, what to end, whether to start one.
#
# To launch a pipeline's stream is to ask that it be kept, and to stop its run is to ask that it be not.
#
# Dagster does not notice that a run's process died: under its default launcher such a run stays "started" for ever.
# So each run notes its process in a tag, and this looks whether that lives.

TOLD_BY: Final = "stream"
"""The label of the run that keeps the stream, beside what is told of its tables."""
KEEPER_TAG: Final = "strandline/keeper"
"""The tag of a run with the process that executes it: pid, start, boot, host."""

_ACTIVE = (
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)
# The longest chain of failures that is counted: from then on the delay is the longest.
_LOOK_BACK = 8
_FIRST_DELAY_SECONDS = 15.0
_LONGEST_DELAY_SECONDS = 900.0
# The step notes its process in its first second; on a busy machine a minute after the run is "started".
_NOTED_WITHIN_SECONDS = 120.0


@dataclass(frozen=True)
class Run:
    """A run of the job.

    Attributes:
        changed: when its status changed last, milliseconds since the epoch.
    """

    run: DagsterRun
    changed: int

    @property
    def process(self) -> Process | None:
        """The process that executes it; None while it has noted none."""
        words = self.run.tags.get(KEEPER_TAG, "").split(" ")
        if len(words) != 4:
            return None
        return Process(int(words[0]), *words[1:])


@dataclass(frozen=True)
class Found:
    """What a tick finds: the job's last runs, the newest first, and the stream's last beat."""

    runs: Sequence[Run]
    beat: Heartbeat | None

    @classmethod
    def of(cls, instance: DagsterInstance, job: str, lake: LakeLayout, pipeline: str) -> "Found":
        """Read it from Dagster's storage and from the lake."""
        records = instance.get_run_records(RunsFilter(job_name=job), limit=_LOOK_BACK)
        runs = [Run(each.dagster_run, int(each.update_timestamp.timestamp() * 1000)) for each in records]
        return cls(runs, read_beat(lake, pipeline))


@dataclass(frozen=True)
class Start:
    """Start a run, and why."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Start none, and why."""

    reason: str


@dataclass(frozen=True)
class Decision:
    """The decision of a tick.

    Attributes:
        lost: runs to be marked failed, each with its reason.
        end: the pid of a stream that is silent; its processes are to be ended.
        free: the ids of runs that failed and whose process is gone. They may still hold the pipeline's only slot, which
            Dagster takes back half a minute later.
    """

    lost: tuple[tuple[DagsterRun, str], ...]
    end: int | None
    then: Start | Wait
    free: tuple[str, ...] = ()


def decide(found: Found, now_ms: int) -> Decision:
    """Decide what a tick does; changes nothing."""
    lost = {each.run.run_id: why for each in found.runs if (why := _lost(each, found.beat, now_ms)) is not None}
    silent = _is_silent(found.beat, now_ms, 2.0)
    kept = [each for each in found.runs if each.run.status in _ACTIVE and each.run.run_id not in lost]
    ours = silent and found.beat is not None and found.beat.process.is_alive
    end = found.beat.process.pid if ours and found.beat is not None and not kept else None
    named = tuple((each.run, lost[each.run.run_id]) for each in found.runs if each.run.run_id in lost)
    return Decision(named, end, _then(found, kept, lost, now_ms), tuple(_gone(found.runs)))


def _gone(runs: Sequence[Run]) -> Iterator[str]:
    for each in runs:
        noted, unsuccessful = each.process, each.run.status in (DagsterRunStatus.FAILURE, *_ACTIVE)
        if unsuccessful and noted is not None and noted.is_local and not noted.is_alive:
            yield each.run.run_id


def _then(found: Found, kept: Sequence[Run], lost: dict[str, str], now_ms: int) -> Start | Wait:
    if kept:
        said = f"; its stream's last heartbeat is {_age(found.beat, now_ms)} old" if found.beat is not None else ""
        return Wait(f"run {kept[0].run.run_id[:8]} keeps it ({kept[0].run.status.value.lower()}{said})")
    if lost:
        return Start("the run that kept it is lost")
    if not found.runs:
        return Wait("it was never launched")
    last = found.runs[0]
    if last.run.status is DagsterRunStatus.CANCELED:
        return Wait(f"run {last.run.run_id[:8]} was stopped by a person: launch {last.run.job_name} to go on")
    failures = _failures(found.runs)
    left = _delay(failures, found.beat) - (now_ms - last.changed) / 1000
    if left > 0:
        return Wait(f"it failed {failures} times in a row: it is started again in {left:.0f} s")
    return Start("no run keeps it")


def _delay(failures: int, beat: Heartbeat | None) -> float:
    """The seconds from a failure to the next start; none when the stream was killed with its run, without a word."""
    killed = beat is not None and not beat.ended
    if not failures or (failures == 1 and killed):
        return 0.0
    return min(_FIRST_DELAY_SECONDS * 2.0 ** (failures - 1), _LONGEST_DELAY_SECONDS)


def _lost(each: Run, beat: Heartbeat | None, now_ms: int) -> str | None:
    """Why a run that Dagster takes for alive is not; None when it is."""
    if each.run.status not in (DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING):
        return None
    noted = each.process
    if noted is None:
        late = now_ms - each.changed > _NOTED_WITHIN_SECONDS * 1000
        return "its process never began to work" if late else None
    if noted.is_local and not noted.is_alive:
        return f"its process {noted.pid} is gone; the stream goes on without it, or is started again"
    # The run itself looks too, and fails sooner: twice the time means that it does not look any more.
    if _is_silent(beat, now_ms, 2.0):
        return f"its stream has been silent for {_age(beat, now_ms)}"
    return None


def _is_silent(beat: Heartbeat | None, now_ms: int, times: float) -> bool:
    running = beat is not None and beat.mode == "continuous" and beat.is_running
    return running and beat is not None and beat.silent_seconds(now_ms) > times * SILENT_SECONDS


def _failures(runs: Sequence[Run]) -> int:
    """How many of the newest runs failed, without one that did not in between."""
    return len(list(_while_failed(runs)))


def _while_failed(runs: Sequence[Run]) -> Iterator[Run]:
    for each in runs:
        if each.run.status is not DagsterRunStatus.FAILURE:
            return
        yield each


def _age(beat: Heartbeat | None, now_ms: int) -> str:
    return "unknown" if beat is None else f"{beat.silent_seconds(now_ms):.0f} s"


def free_slots(instance: DagsterInstance, runs: Sequence[str]) -> None:
    """Take back the slots of pools that these runs hold, by their ids. Their processes must be gone."""
    storage = instance.event_log_storage
    if storage.supports_global_concurrency_limits:
        for run_id in set(runs) & set(storage.get_concurrency_run_ids()):
            storage.free_concurrency_slots_for_run(run_id)


_INTERVAL_SECONDS = 10
"""Between two ticks, of which each costs a query of the last runs and one small file for each pipeline. A stream that
dies is started again by its own run, at once; a run that dies with its process waits for a tick."""
_PACE = Pace()


@dataclass(frozen=True)
class Told:
    """What is told of a pipeline's stream beside its numbers.

    Attributes:
        everything: the assets of the lake: more of them are told of less often.
        checks: {asset of the pipeline: its checks}.
        cheap: makes those that are made beside the stream; None: none is.
    """

    everything: Sequence[dg.AssetSpec] = ()
    checks: Mapping[dg.AssetKey, Sequence[dg.AssetCheckKey]] = field(default_factory=dict)
    cheap: Callable[[], CheapChecks] | None = None

    def telling(self, instance: DagsterInstance, settings: Settings, keys: Sequence[dg.AssetKey]) -> Telling:
        """How a run tells of the stream, from now on.

        Args:
            keys: the assets that it tells of.
        """
        checks, cheap = ToldChecks(instance, self.checks), self.cheap() if self.cheap is not None else None
        return Telling(
            LastTold(instance, keys),
            Provenance(LakeLayout(settings.lake), self.everything),
            told_every(len(self.everything)) if self.everything else 0.0,
            lambda changed: checks.beside(changed, cheap.of(changed) if cheap is not None else {}),
        )


_NOTHING_ELSE: Final = Told()


def stream_job(
    pipeline: str,
    specs: Sequence[dg.AssetSpec],
    topics: dict[str, dg.AssetKey],
    definitions: Sequence[Definition],
    settings: Settings,
    pace: Pace = _PACE,
    told: Told = _NOTHING_ELSE,
) -> dg.JobDefinition:
    """The job that keeps a pipeline's stream alive.

    Args:
        specs: the assets that the stream's progress is reported of.
        topics: {topic that it reads: its asset}.
        definitions: those of the pipeline.
        told: what is told beside its progress.
    """
    name = identifier(pipeline)
    shown = [spec for spec in specs if role_of(spec) is not Role.TOPIC]

    @dg.op(
        name=f"{name}__stream",
        pool=f"stream:{name}",
        out=dg.Out(dg.Nothing),
        required_resource_keys={"at_end"},
        description=f"Keeps the stream of `{pipeline}` alive, and shows how far it is.",
    )
    def stream(context: dg.OpExecutionContext) -> Iterator[Any]:
        me = process(os.getpid())
        assert me is not None
        context.instance.add_run_tags(context.run_id, {KEEPER_TAG: f"{me.pid} {me.started} {me.boot} {me.host}"})
        output = Path(context.instance.storage_directory()) / "streams" / f"{name}.log"
        telling = told.telling(context.instance, settings, [spec.key for spec in shown])
        progress = Progress(settings, shown, topics, definitions, telling)
        watch = Watch(pipeline, LakeLayout(settings.lake), output, progress, context, stream_command(pipeline), pace)
        context.resources.at_end.callback(watch.end)
        for event in watch.run():
            # Outside of this run, or what other runs have found of a view would be hidden: see `told_checks`.
            context.instance.report_runless_asset_event(_linked(event, context.run_id))
        yield dg.Output(None)

    @dg.job(
        name=f"stream_{name}",
        description=f"Keeps every table of the pipeline `{pipeline}` fresh, until it is stopped.",
        executor_def=dg.in_process_executor,
        resource_defs={"at_end": dg.ResourceDefinition(_at_end)},
    )
    def keeps() -> None:
        stream()

    return keeps


def _linked(event: Event, run_id: str) -> Event:
    """The event, with a link to the run whose stream it tells of."""
    if not isinstance(event, dg.AssetMaterialization):
        return event
    return event.with_metadata({**event.metadata, TOLD_BY: dg.MetadataValue.dagster_run(run_id)})


@contextmanager
def _at_end(_context: dg.InitResourceContext) -> Iterator[ExitStack]:
    """What an op leaves here is called when its run ends, however it ends: Dagster tears resources down even then."""
    with ExitStack() as stack:
        yield stack


def keeper(jobs: Mapping[str, dg.JobDefinition], settings: Settings) -> dg.SensorDefinition | None:
    """The sensor that keeps what was launched, on from the start; None where there is nothing to keep.

    Args:
        jobs: {pipeline: the job that keeps its stream alive}.
    """
    if not jobs:
        return None

    @dg.sensor(
        name="keep_streams",
        jobs=list(jobs.values()),
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Keeps each stream that was launched: starts its job again when no run keeps it, and marks runs failed "
            "whose process is gone or whose stream is silent. A run that a person stopped stays stopped until a "
            "person launches one."
        ),
    )
    def keep(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        waiting = []
        for pipeline, job in jobs.items():
            found = Found.of(context.instance, job.name, LakeLayout(settings.lake), pipeline)
            decision = decide(found, now_ms())
            for run, reason in decision.lost:
                context.instance.report_run_failed(run, reason)
            if isinstance(decision.then, Start):
                free_slots(context.instance, decision.free)
            if decision.end is not None:
                Group(decision.end).stop(0.0)
            match decision.then:
                case Start(reason):
                    context.log.info(f"{pipeline}: {reason}")
                    yield dg.RunRequest(job_name=job.name)
                case Wait(reason):
                    waiting.append(f"{pipeline}: {reason}")
        yield dg.SkipReason("; ".join(waiting) or "every stream is started")

    return keep
