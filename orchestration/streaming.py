"""The job and the sensor of a pipeline's continuous mode."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from jobs.model.definitions import Definition
from jobs.model.settings import Settings
from orchestration.keeper import KEEPER_TAG, Found, Start, Wait, decide, free_slots
from orchestration.processes import Group
from orchestration.progress import Progress
from orchestration.roles import Role, identifier, role_of
from orchestration.stream import Pace, Watch, stream_command
from state_store.delta.log import now_ms
from state_store.layout import Lake
from state_store.process import process

# A tick costs a query of the last runs and one small file. A stream whose run was killed with it waits for the next
# tick, and then for the start of a run. Dagster looks every 5 s; an interval of 5 s would be over at every other look.
_INTERVAL_SECONDS = 4
_PACE = Pace()


@dataclass(frozen=True)
class Streaming:
    """The continuous mode of one pipeline in Dagster."""

    job: dg.JobDefinition
    keeper: dg.SensorDefinition


def streaming(
    pipeline: str,
    specs: Sequence[dg.AssetSpec],
    topics: dict[str, dg.AssetKey],
    definitions: Sequence[Definition],
    settings: Settings,
    pace: Pace = _PACE,
) -> Streaming:
    """The job that keeps a pipeline's stream alive, and the sensor that starts the job when no run does.

    Args:
        specs: the assets that the stream's progress is reported of.
        topics: {topic that it reads: its asset}.
        definitions: those of the pipeline.
    """
    job = _job(pipeline, specs, topics, definitions, settings, pace)
    return Streaming(job, _keeper(pipeline, job, settings))


def _job(
    pipeline: str,
    specs: Sequence[dg.AssetSpec],
    topics: dict[str, dg.AssetKey],
    definitions: Sequence[Definition],
    settings: Settings,
    pace: Pace,
) -> dg.JobDefinition:
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
        progress = Progress(settings, shown, topics, definitions)
        watch = Watch(pipeline, Lake(settings.lake), output, progress, context, stream_command(pipeline), pace)
        context.resources.at_end.callback(watch.end)
        yield from watch.run()
        yield dg.Output(None)

    @dg.job(
        name=f"stream_{name}",
        description=f"Keeps every table of the pipeline `{pipeline}` fresh, until it is stopped.",
        executor_def=dg.in_process_executor,
        resource_defs={"at_end": dg.ResourceDefinition(_at_end)},
    )
    def stream_job() -> None:
        stream()

    return stream_job


@contextmanager
def _at_end(_context: dg.InitResourceContext) -> Iterator[ExitStack]:
    """What an op leaves here is called when its run ends, however it ends: Dagster tears resources down even then."""
    with ExitStack() as stack:
        yield stack


def _keeper(pipeline: str, job: dg.JobDefinition, settings: Settings) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"keep_{identifier(pipeline)}",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        description=(
            f"Keeps `{pipeline}` streaming: starts its job when no run does, and marks runs failed whose process is "
            "gone or whose stream is silent. A run that a person stopped stays stopped until a person starts one."
        ),
    )
    def keep(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        found = Found.of(context.instance, job.name, Lake(settings.lake), pipeline)
        decision = decide(found, now_ms())
        for run, reason in decision.lost:
            context.instance.report_run_failed(run, reason)
        if isinstance(decision.then, Start):
            free_slots(context.instance, decision.free)
        if decision.end is not None:
            Group(decision.end).stop(0.0)
        match decision.then:
            case Start(reason):
                context.log.info(reason)
                yield dg.RunRequest()
            case Wait(reason):
                yield dg.SkipReason(reason)

    return keep
