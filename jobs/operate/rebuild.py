"""`strandline rebuild`: a definition's rows computed anew, for what another tool, a lost file or a restore made wrong.

    stream, keyed source    its event log and dead letters are set aside, and read again from the topic
    view                    computed anew from its inputs, and stored as the difference (`ivm.refresh.rebuild_stage`)

What was computed from a table that had to be begun anew is rebuilt with it, as far as it belongs to the same pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.catalog.catalog import Catalog
from jobs.ingest.lag import lag
from jobs.ingest.logs.open import open_log
from jobs.model import tables
from jobs.model.definitions import Source, View
from jobs.model.errors import NotSupported, OffsetsVanished, ViewsStopped
from jobs.model.stage import inputs_of
from jobs.model.steps import UNWATCHED
from jobs.run.pipeline import opened, report_of
from jobs.run.schedule import gated_in
from state_store.aside import set_aside
from state_store.delta import reader
from state_store.errors import InputReplaced
from state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from pyspark.sql import SparkSession

    from jobs.ivm.refresh.context import Heads, Owner
    from jobs.ivm.refresh.epoch import StageResult
    from jobs.model.settings import Settings
    from jobs.model.stage import Stage
    from jobs.model.steps import Steps
    from jobs.run.schedule import Maintained
    from jobs.run.stream import PipelineStream


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did.

    Attributes:
        stages: one result for each table that was computed anew, in order.
        aside: tables that were moved out of the way and begun anew.
        elsewhere: definitions of other pipelines that read one of those: they must be rebuilt as well.
    """

    stages: tuple[StageResult, ...]
    aside: tuple[str, ...]
    elsewhere: tuple[str, ...]


def rebuild(settings: Settings, name: str, spark: SparkSession | None = None, *, steps: Steps = UNWATCHED) -> Rebuilt:
    """Compute the rows of a stream, table or view anew; what reads it follows.

    Args:
        name: of the definition; its pipeline must not be running.
        spark: a session to run in; without it one is started and stopped.
        steps: told of each step.

    Raises:
        UnknownName: there is no such definition.
        NotSupported: it is a partial view.
        OffsetsVanished: the topic no longer has all records of a source. Nothing was changed.
        EventsGone: retention has taken events from a log that the rows were computed from. Nothing was changed.
        WriterBusy: the pipeline is running.
        ViewsStopped: something that reads it could not follow; what was rebuilt stays.
    """
    lake = Lake(settings.lake)
    definition = Catalog(lake).get(name)
    if isinstance(definition, View) and definition.partial:
        raise NotSupported(
            f"'{name}' is a partial view: nothing is stored of it that could be rebuilt",
            hint=f"rebuild what it reads: strandline rebuild {definition.inputs[0]}",
        )
    with opened(settings, definition.pipeline, spark) as (stream, began):
        aside: set[str] = set()
        if isinstance(definition, Source):
            aside = _read_again(stream, definition, steps)
        stages = _rebuilt(stream, {name} - aside, steps)
        for _ in stream.levels:  # what reads a table that was begun anew is found out level by level
            stream.failures.clear()
            steps.begin("refreshing what reads it")
            stream.refresh()
            replaced = {table for table, error in stream.failures.items() if isinstance(error, InputReplaced)}
            if not replaced:
                break
            stages += _rebuilt(stream, replaced, steps)
        if stream.failures:
            raise ViewsStopped(stream.failures, report_of(stream, began))
    aside |= {stage.table for stage in stages if stage.mode == "full"}
    return Rebuilt(tuple(stages), tuple(sorted(aside)), _elsewhere(lake, definition.pipeline, aside))


def _read_again(stream: PipelineStream, source: Source, steps: Steps) -> set[str]:
    """Set the event log and the dead letters of a source aside, and read its topic from the beginning.

    Returns:
        the tables that were set aside.

    Raises:
        OffsetsVanished: the topic no longer has all of its records. Nothing was changed.
    """
    settings, lake = stream.settings, stream.lake
    _check_kept(settings, lake, source)
    aside = {table for table in tables.own_tables(source) if set_aside(lake, table) is not None}
    waiting = lag(source, lake, open_log(settings, lake))
    steps.begin(f"reading the topic '{source.topic}' from its beginning", waiting)
    stream.watch = steps.micro_batch
    stream.drain()
    head = reader.head(lake.table(tables.event_log(source)))
    steps.done(f"{0 if head is None else head.record.rows:,} events are in '{tables.event_log(source)}'")
    return aside


def _check_kept(settings: Settings, lake: Lake, source: Source) -> None:
    """Raise OffsetsVanished unless the topic still has every record from its beginning."""
    begins = open_log(settings, lake).begin_offsets(source.topic)
    gone = [f"0 to {first - 1} of partition {partition}" for partition, first in begins.items() if first > 0]
    if gone:
        raise OffsetsVanished(
            f"topic '{source.topic}' no longer has the records {', '.join(gone)}",
            hint=f"restore the event log '{tables.event_log(source)}' from a backup of the lake",
        )


def _rebuilt(stream: PipelineStream, names: Set[str], steps: Steps) -> list[StageResult]:
    """Compute the stages of these definitions anew, in the order of levels."""
    from jobs.ivm.refresh.begun_logs import check_stage
    from jobs.ivm.refresh.context import Heads
    from jobs.ivm.refresh.rebuild_stage import rebuild_stage

    heads = Heads(stream.lake, gated=gated_in(stream.levels))
    items = [item for level in stream.levels for item in level if not names.isdisjoint({item.name, item.target})]
    wanted = [(stage, owner) for item in items for stage, owner in _owned(item)]
    for stage, owner in wanted:
        check_stage(stream.lake, heads, stage, owner)  # all of them before the first is changed
    results: list[StageResult] = []
    for number, (stage, owner) in enumerate(wanted, 1):
        place = f" (stage {number} of {len(wanted)})" if len(wanted) > 1 else ""
        steps.begin(f"computing '{stage.table}'{place}", _rows_of_inputs(heads, stage))
        results.append(rebuild_stage(stream.context, heads, stage, owner))
        steps.done(f"'{stage.table}': +{results[-1].inserted:,} −{results[-1].deleted:,} rows")
    return results


def _owned(item: Maintained) -> Iterator[tuple[Stage, Owner]]:
    """The stages of an item, each with whom it is maintained for."""
    from jobs.ivm.refresh.context import Owner

    for stage in item.stages:
        yield stage, Owner(item.fingerprint, item.vector_prefix if stage is item.stages[-1] else None)


def _rows_of_inputs(heads: Heads, stage: Stage) -> int:
    """The rows that a stage is computed from, each input once."""
    found = (heads.input(name) for name in {each.relation.name for each in inputs_of(stage)})
    return sum(head.record.rows for head in found if head is not None)


def _elsewhere(lake: Lake, pipeline: str, aside: set[str]) -> tuple[str, ...]:
    """The definitions of other pipelines that read a table which was begun anew."""
    from jobs.run.schedule import maintained

    catalog = Catalog(lake)
    others = [other for other in catalog.pipelines() if aside and other != pipeline]
    items = [item for other in others for level in maintained(catalog.pipeline(other), catalog) for item in level]
    return tuple(sorted({item.name for item in items if aside & set(item.inputs)}))
