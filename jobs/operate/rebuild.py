"""`strandline rebuild`: a definition's rows computed anew, for what another tool, a lost file or a restore made wrong.

    stream, keyed source    its event log and dead letters are set aside, and read again from the topic
    view                    computed anew from its inputs, and stored as the difference (`ivm.refresh.rebuild_stage`)

What was computed from a table that had to be begun anew is rebuilt with it, as far as it belongs to the same pipeline.
Several definitions are rebuilt together: two sources that are broken both, and are read by one view, need each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.lag import lag
from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.operate.rebuild_plan import check_kept, named_by, plan_rebuild, readers_elsewhere
from strandline.jobs.operate.verify.subjects import REBUILD_HINT, subjects
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import opened, report_of
from strandline.jobs.run.schedule import gated_in
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.errors import InputReplaced
from strandline.state_store.layout import Lake
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from pyspark.sql import SparkSession

    from strandline.jobs.ivm.refresh.context import Heads
    from strandline.jobs.ivm.refresh.epoch import StageResult
    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Stage
    from strandline.jobs.operate.rebuild_plan import RebuildPlan
    from strandline.jobs.run.stream import PipelineStream


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did.

    Attributes:
        stages: one result for each table that was computed anew, in order.
        aside: tables that were moved out of the way and begun anew.
        waiting: {definition: what it reads}: these could not follow, since that is broken, and was not to be rebuilt.
        elsewhere: definitions of other pipelines that read one of those: they must be rebuilt as well.
    """

    stages: tuple[StageResult, ...]
    aside: tuple[str, ...]
    waiting: dict[str, tuple[str, ...]]
    elsewhere: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """What was done as values of JSON."""
        computed = [{"table": s.table, "inserted": s.inserted, "deleted": s.deleted} for s in self.stages]
        waiting = {name: list(inputs) for name, inputs in self.waiting.items()}
        return {
            "computed": computed,
            "aside": list(self.aside),
            "waiting": waiting,
            "elsewhere": list(self.elsewhere),
        }


def rebuild(settings: Settings, *names: str, spark: SparkSession | None = None, steps: Steps = UNWATCHED) -> Rebuilt:
    """Compute the rows of definitions of one pipeline anew; what reads them follows. Planned and executed at once.

    Args, raises: as of `plan_rebuild` and `execute_rebuild`.
    """
    return execute_rebuild(settings, plan_rebuild(settings, *names), spark, steps=steps)


def broken_definitions(settings: Settings, steps: Steps = UNWATCHED) -> list[str]:
    """The definitions of the lake for which `strandline verify` names a rebuild as the way out."""
    lake = Lake(settings.lake)
    owners = {each.table: each.owner for each in subjects((), Catalog(lake), lake)}
    wrong = (each for each in verify(settings, steps=steps) if each.ok is False)
    found = dict.fromkeys(owners[each.table] for each in wrong if (each.hint or "").startswith(REBUILD_HINT))
    return [name for name in found if name]


def execute_rebuild(
    settings: Settings, plan: RebuildPlan, spark: SparkSession | None = None, *, steps: Steps = UNWATCHED
) -> Rebuilt:
    """Do what a plan says. What a table is computed from, and whether it can be read, is looked at once more then.

    Args:
        plan: its pipeline must not be running.
        spark: a session to run in; without it one is started and stopped, where a source has much to be read again.
        steps: told of each step.

    Raises:
        UnknownName: a definition was dropped meanwhile.
        OffsetsVanished: the topic no longer has all records of a source. Nothing was changed.
        EventsGone: retention has taken events from a log that the rows were computed from. Nothing was changed.
        WriterBusy: the pipeline is running.
        ViewsStopped: something that reads it could not follow; what was rebuilt stays.
    """
    lake = Lake(settings.lake)
    with opened(settings, plan.pipeline, spark) as (stream, began):
        catalog = Catalog(lake)
        definitions = [catalog.get(name) for name in plan.names]
        aside = _read_again(stream, [each for each in definitions if isinstance(each, Source)], steps)
        stages = _rebuilt(stream, set(plan.names) - aside, plan, steps)
        planned = {table.table for table in plan.computed} | set(plan.follow)
        # What reads a table that was begun anew is found out level by level; the last refresh finds nothing.
        for _ in range(len(stream.levels) + 1):
            stream.failures.clear()
            steps.begin("refreshing what reads it")
            stream.refresh()
            failed = {table for table, error in stream.failures.items() if isinstance(error, InputReplaced)}
            if not failed & planned:
                break
            stages += _rebuilt(stream, failed & planned, plan, steps)
        # The refresh was of all views: one that stands still for a reason of its own does not concern this one.
        stopped = {table: error for table, error in stream.failures.items() if table in {*plan.names, *planned}}
        if stopped:
            raise ViewsStopped(stopped, report_of(stream, began))
    aside |= {stage.table for stage in stages if stage.mode == "full"}
    waiting = {name: inputs for name, inputs in plan.waiting.items() if name in stream.failures}
    elsewhere = readers_elsewhere(lake, plan.pipeline, aside)
    return Rebuilt(tuple(stages), tuple(sorted(aside)), waiting, elsewhere)


def _read_again(stream: PipelineStream, sources: Sequence[Source], steps: Steps) -> set[str]:
    """Set the event logs and the dead letters of sources aside, and read their topics from the beginning.

    Returns:
        the tables that were set aside.

    Raises:
        OffsetsVanished: a topic no longer has all of its records. Nothing was changed.
    """
    if not sources:
        return set()
    settings, lake = stream.settings, stream.lake
    for source in sources:
        check_kept(settings, lake, source)
    # All of them first: what reads two of them cannot follow as long as one is broken.
    names = (table for source in sources for table in tables.own_tables(source))
    aside = {table for table in names if set_aside(lake, table) is not None}
    waiting = sum(lag(source, lake, open_log(settings, lake)) for source in sources)
    topics = " and ".join(f"'{topic}'" for topic in dict.fromkeys(source.topic for source in sources))
    one = topics.count(" and ") == 0
    steps.begin(f"reading the topic{'' if one else 's'} {topics} from {'its' if one else 'their'} beginning", waiting)
    stream.watch = steps.micro_batch
    stream.read_again(sources)
    for source in sources:
        head = reader.head(lake.table(tables.event_log(source)))
        found = f"{0 if head is None else head.record.rows:,}"
        steps.done(sentence("{} events are in '{}'", found, Name(tables.event_log(source))))
    return aside


def _rebuilt(stream: PipelineStream, names: Set[str], plan: RebuildPlan, steps: Steps) -> list[StageResult]:
    """Compute the stages of these definitions anew, in the order of levels, each with its dead letters."""
    from strandline.jobs.ivm.refresh.begun_logs import check_stage
    from strandline.jobs.ivm.refresh.context import Heads
    from strandline.jobs.ivm.refresh.full_recompute import rebuild_decided
    from strandline.jobs.ivm.refresh.guarded_stage import decide

    heads = Heads(stream.lake, gated=gated_in(stream.levels))
    items = [item for level in stream.levels for item in level if not names.isdisjoint(named_by(item))]
    wanted = [(item, stage) for item in items if item.target not in plan.waiting for stage in item.stages]
    for item, stage in wanted:
        check_stage(stream.lake, heads, stage, item.owner(stage))  # all of them before the first is changed
    results: list[StageResult] = []
    for number, (item, stage) in enumerate(wanted, 1):
        place = f" (stage {number} of {len(wanted)})" if len(wanted) > 1 else ""
        steps.begin(sentence("computing '{}'{}", Name(stage.table), place), _rows_of_inputs(heads, stage))
        decision = decide(stage, item.options.errors, item.letters(stage), heads)
        done = rebuild_decided(stream.context, heads, decision, item.owner(stage))
        results += done
        steps.done(
            joined(
                "; ",
                (
                    sentence("'{}': +{} −{} rows", Name(each.table), f"{each.inserted:,}", f"{each.deleted:,}")
                    for each in done
                ),
            )
        )
    return results


def _rows_of_inputs(heads: Heads, stage: Stage) -> int:
    """The rows that a stage is computed from, each input once."""
    found = (heads.input(name) for name in {each.relation.name for each in inputs_of(stage)})
    return sum(head.record.rows for head in found if head is not None)
