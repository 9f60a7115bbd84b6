"""The jobs of the pipelines' continuous mode, and the sensor that keeps what they began."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from strandline.jobs.model.definitions import Definition
from strandline.jobs.model.settings import Settings
from strandline.orchestration.commits import last_told, tables_of
from strandline.orchestration.keeper import KEEPER_TAG, Found, Start, Wait, decide, free_slots
from strandline.orchestration.processes import Group
from strandline.orchestration.progress import Progress
from strandline.orchestration.roles import Role, identifier, role_of
from strandline.orchestration.stream import Pace, Watch, stream_command
from strandline.state_store.delta.log import now_ms
from strandline.state_store.layout import Lake
from strandline.state_store.lock import process

_INTERVAL_SECONDS = 10
"""Between two ticks, of which each costs a query of the last runs and one small file for each pipeline. A stream that
dies is started again by its own run, at once; a run that dies with its process waits for a tick."""
_PACE = Pace()


def stream_job(
    pipeline: str,
    specs: Sequence[dg.AssetSpec],
    topics: dict[str, dg.AssetKey],
    definitions: Sequence[Definition],
    settings: Settings,
    pace: Pace = _PACE,
) -> dg.JobDefinition:
    """The job that keeps a pipeline's stream alive.

    Args:
        specs: the assets that the stream's progress is reported of.
        topics: {topic that it reads: its asset}.
        definitions: those of the pipeline.
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
        told = {table: last_told(context.instance, found[0].key) for table, found in tables_of(shown).items()}
        known = {table: version for table, version in told.items() if version is not None}
        progress = Progress(settings, shown, topics, definitions, known)
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
    def keeps() -> None:
        stream()

    return keeps


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
                    context.log.info(f"{pipeline}: {reason}")
                    yield dg.RunRequest(job_name=job.name)
                case Wait(reason):
                    waiting.append(f"{pipeline}: {reason}")
        yield dg.SkipReason("; ".join(waiting) or "every stream is started")

    return keep
