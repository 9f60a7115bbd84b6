"""`strandline rebuild`: a definition's rows computed anew, for what another tool, a lost file or a restore made wrong.

    stream, keyed source    its event log and dead letters are set aside, and read again from the topic
    view                    computed anew from its inputs, and stored as the difference (`ivm.refresh.rebuild_stage`)

What was computed from a table that had to be begun anew is rebuilt with it, as far as it belongs to the same pipeline.
Several definitions are rebuilt together: two sources that are broken both, and are read by one view, need each other.
"""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.event_logs import begin_empty
from strandline.jobs.ingest.logs.foreign_log import check_readable
from strandline.jobs.ingest.topics import lag, open_log
from strandline.jobs.ivm.refresh.context import Owner
from strandline.jobs.ivm.refresh.refresh import current_head
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import NotSupported, OffsetsVanished, ViewsStopped
from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.operate.verify.subjects import REBUILD_HINT, subjects
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import opened, report_of
from strandline.jobs.run.schedule import gated_in, maintained
from strandline.state_store.delta import heads, reader
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.errors import CorruptState, FormatNewer, InputReplaced, StoreError, VersionGone
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import is_folder
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from pyspark.sql import SparkSession

    from strandline.jobs.ivm.refresh.context import Heads
    from strandline.jobs.ivm.refresh.epoch import StageResult
    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Stage
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.jobs.run.stream import PipelineStream

log = logging.getLogger("strandline")


# The plan of a rebuild: what is read again, computed anew or begun anew, and who follows. Nothing is changed by it.
#
# One plan is of one pipeline, whose lock its execution takes. What it names is done in the order of what reads what:
# all topics are read again, then each view is computed after its inputs. So two sources that are both broken, and a
# view over both, are one plan; of one source alone the view would wait for the other.


@dataclass(frozen=True)
class PlannedTable:
    """One table that is computed anew.

    Attributes:
        reads: {table: the number of its rows}: what it is computed from, as it is now; None: it is begun anew itself.
        begun_anew: it cannot be brought to other rows: it is set aside, and what reads it is rebuilt as well.
    """

    table: str
    reads: dict[str, int | None]
    begun_anew: bool


def _read(name: str, rows: int | None) -> Text:
    return sentence("'{}'", Name(name)) if rows is None else sentence("'{}' ({} rows)", Name(name), f"{rows:,}")


@dataclass(frozen=True)
class RebuildPlan:
    """What a rebuild is going to do.

    Attributes:
        names: of the definitions that are rebuilt.
        topics: {source: its topic, and the records that it holds now}: read again from the beginning.
        aside: of sources the tables that are set aside.
        computed: the tables that are computed anew, in order.
        follow: definitions of the pipeline that take in the difference.
        waiting: {definition that would be computed anew or follow: what it reads that is broken, and not in the plan}.
        elsewhere: those of other pipelines that read what is begun anew: they must be rebuilt as well.
    """

    names: tuple[str, ...]
    pipeline: str
    topics: dict[str, tuple[str, int]]
    aside: tuple[str, ...]
    computed: tuple[PlannedTable, ...]
    follow: tuple[str, ...]
    waiting: dict[str, tuple[str, ...]]
    elsewhere: tuple[str, ...]

    def __str__(self) -> str:
        them = "it" if len(self.names) == 1 else "them"
        named = joined(", ", (Text(Name(name)) for name in self.names))
        lines = [sentence("{}: rebuild {} in pipeline '{}', which must not be running", named, them, self.pipeline)]
        lines += [sentence("  set '{}' aside", Name(table)) for table in self.aside]
        for topic, records in self.topics.values():
            lines.append(sentence("  read the topic '{}' from its beginning: {} records", topic, f"{records:,}"))
        for each in self.computed:
            reads = joined(" and ", (_read(name, rows) for name, rows in each.reads.items()))
            how = "set it aside, and begin it anew" if each.begun_anew else "store the difference in one commit"
            lines.append(sentence("  compute '{}' from {}; {}", Name(each.table), reads, how))
        lines += [sentence("  then '{}' takes in the difference", Name(name)) for name in self.follow]
        lines += [sentence("  {}", waits(name, inputs)) for name, inputs in self.waiting.items()]
        lines += [
            sentence(
                "  '{}' of another pipeline: strandline rebuild {}, afterwards", Name(name), Name(name, shlex.quote)
            )
            for name in self.elsewhere
        ]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        return {
            "names": list(self.names),
            "pipeline": self.pipeline,
            "topics": {name: {"topic": topic, "records": records} for name, (topic, records) in self.topics.items()},
            "aside": list(self.aside),
            "computed": [
                {"table": each.table, "reads": each.reads, "begun_anew": each.begun_anew} for each in self.computed
            ],
            "follow": list(self.follow),
            "waiting": {name: list(inputs) for name, inputs in self.waiting.items()},
            "elsewhere": list(self.elsewhere),
        }


def waits(name: str, inputs: Sequence[str]) -> Text:
    """What is said of a definition that cannot follow, since something else that it reads is broken as well."""
    broken = joined(" and ", (sentence("'{}'", Name(each)) for each in inputs))
    typed = joined(" ", (Text(Name(each, shlex.quote)) for each in inputs))
    return sentence("'{}' waits for {}, broken too: strandline rebuild {}", Name(name), broken, typed)


def plan_rebuilds(settings: Settings, names: Sequence[str]) -> list[RebuildPlan]:
    """The plans for streams, tables, views, or tables of one: one for each pipeline, to be executed in their order.

    Raises: as `plan_rebuild`.
    """
    catalog = Catalog(LakeLayout(settings.lake))
    pipelines: dict[str, list[str]] = {}
    for meant in dict.fromkeys(each for name in names for each in _definitions(name, catalog)):
        pipelines.setdefault(catalog.get(meant).pipeline, []).append(meant)
    plans, after = list[RebuildPlan](), frozenset[str]()
    for pipeline in _in_order(pipelines, catalog):
        plans.append(plan_rebuild(settings, *pipelines[pipeline], after=after))
        after |= {*pipelines[pipeline]}
    return plans


def plan_rebuild(settings: Settings, *names: str, after: Set[str] = frozenset()) -> RebuildPlan:
    """The plan for definitions of one pipeline.

    Args:
        after: definitions of other pipelines that are rebuilt before: their tables may be broken until then.

    Raises:
        UnknownName: there is no such definition.
        NotSupported: it is a partial view.
        OffsetsVanished: the topic no longer has all records of a source.
        CorruptState, ForeignWrite, VersionGone: what one of them is computed from is to be mended with it.
    """
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    topics, aside = dict[str, tuple[str, int]](), set[str]()
    definitions = [catalog.get(name) for name in names]
    for definition in definitions:
        if isinstance(definition, View) and definition.partial:
            raise NotSupported(
                sentence(
                    "'{}' is a partial view: nothing is stored of it that could be rebuilt", Name(definition.name)
                ),
                hint=sentence("rebuild what it reads: strandline rebuild {}", Name(definition.inputs[0], shlex.quote)),
            )
        if isinstance(definition, Source):
            check_kept(settings, lake, definition)
            topics[definition.name] = (definition.topic, _records(settings, lake, definition.topic))
            aside |= set(tables.own_tables(definition))
    pipeline = definitions[0].pipeline
    items = [item for level in maintained(catalog.pipeline(pipeline), catalog) for item in level]
    found = _Computed(lake, frozenset(names), aside, items, after)
    return RebuildPlan(
        names=tuple(names),
        pipeline=pipeline,
        topics=topics,
        aside=tuple(sorted(table for table in aside if is_folder(lake.table(table)))),
        computed=tuple(found.tables),
        follow=found.followers(),
        waiting=found.waiting,
        elsewhere=readers_elsewhere(lake, pipeline, found.gone),
    )


def check_kept(settings: Settings, lake: LakeLayout, source: Source) -> None:
    """Raise OffsetsVanished unless the topic still has every record from its beginning; DeltaVersionGone unless the
    Delta table of a source has every version from the one on that it begins with."""
    if source.foreign:
        check_readable(source.topic, settings, lake)
        return
    begins = open_log(settings, lake).begin_offsets(source.topic)
    gone = [f"0 to {first - 1} of partition {partition}" for partition, first in begins.items() if first > 0]
    if gone:
        raise OffsetsVanished(
            f"topic '{source.topic}' no longer has the records {', '.join(gone)}",
            hint=sentence("restore the event log '{}' from a backup of the lake", Name(tables.event_log(source))),
        )


def readers_elsewhere(lake: LakeLayout, pipeline: str, aside: Set[str]) -> tuple[str, ...]:
    """The definitions of other pipelines that read a table which is begun anew."""
    catalog = Catalog(lake)
    others = [other for other in catalog.pipelines() if aside and other != pipeline]
    items = [item for other in others for level in maintained(catalog.pipeline(other), catalog) for item in level]
    return tuple(sorted({item.name for item in items if aside & set(item.inputs)}))


class _Computed:
    """The tables that are computed anew: those of the definitions, and those that read what is begun anew.

    Args:
        aside: the tables that are set aside.
        after: as of `plan_rebuild`.
    """

    def __init__(
        self, lake: LakeLayout, names: Set[str], aside: Set[str], items: Sequence[RefreshUnit], after: Set[str]
    ) -> None:
        self._lake, self._items, self._after = lake, items, after
        self.gone = set(aside)
        """All that is begun anew."""
        self.tables: list[PlannedTable] = []
        self.waiting: dict[str, tuple[str, ...]] = {}
        self._moved = set(aside)
        for item in items:
            named = names & set(named_by(item)) - aside
            if named or self.gone & set(item.inputs):
                self._compute(item, named=bool(named))

    def followers(self) -> tuple[str, ...]:
        """What reads a table whose rows change, and is not itself computed anew; in order."""
        reached, found = set(self._moved), list[str]()
        for item in self._items:
            if item.target not in reached | self.waiting.keys() and reached & set(item.inputs):
                if waits_for := self._broken(item):
                    self.waiting[item.target] = waits_for
                else:
                    reached.add(item.target)
                    found.append(item.target)
        return tuple(dict.fromkeys(found))

    def _compute(self, item: RefreshUnit, *, named: bool) -> None:
        if not named and (broken := self._broken(item)):
            self.waiting[item.target] = broken
            return
        for stage in item.stages:
            anew = stage.table in self.gone or not _stands(self._lake, stage, item.owner(stage))
            self.tables.append(PlannedTable(stage.table, self._reads(stage), anew))
            self._moved.add(stage.table)
            self.gone |= {stage.table} if anew else set()

    def _broken(self, item: RefreshUnit) -> tuple[str, ...]:
        """The definitions of the inputs that are broken, and are not made anew by the plan."""
        waits_for = list[str]()
        for name in item.inputs:
            if name in self.waiting:
                waits_for += self.waiting[name]
            elif not self._made_anew(name) and not _reads_back(self._lake, name):
                waits_for.append(tables.parted(name)[0])
        return tuple(dict.fromkeys(waits_for))

    def _reads(self, stage: Stage) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for name in dict.fromkeys(each.relation.name for each in inputs_of(stage)):
            anew = self._made_anew(name)
            head = None if anew else heads.head(self._lake, name)
            found[name] = None if anew else 0 if head is None else head.record.rows
        return found

    def _made_anew(self, table: str) -> bool:
        return table in self._moved or tables.parted(table)[0] in self._after


def named_by(item: RefreshUnit) -> tuple[str, ...]:
    """The definitions whose rebuild computes an item anew: a stage that views share is rebuilt with each of them."""
    return (item.name, item.target, *item.serves)


def _stands(lake: LakeLayout, stage: Stage, owner: Owner) -> bool:
    try:
        return current_head(lake, stage, owner) is not None
    except FormatNewer:
        raise  # it is whole, and not to be set aside
    except (CorruptState, VersionGone):
        return False


def _reads_back(lake: LakeLayout, table: str) -> bool:
    try:
        heads.head(lake, table)
    except StoreError:
        return False
    return True


def _definitions(name: str, catalog: Catalog) -> tuple[str, ...]:
    """The definitions that are meant by a name: of one, of a table of one, or of a stage that several share.

    Raises:
        UnknownName: it is the name of nothing.
    """
    if tables.is_shared(name):
        levels = (maintained(catalog.pipeline(each), catalog) for each in catalog.pipelines())
        serves = [item.serves for found in levels for level in found for item in level if item.target == name]
        if serves:
            return serves[0]
    owner, _ = tables.parted(name)
    return (owner if catalog.find(name) is None and catalog.find(owner) is not None else catalog.get(name).name,)


def _in_order(pipelines: Mapping[str, Sequence[str]], catalog: Catalog) -> list[str]:
    """Pipelines, those that read none of the others first; of a circle the one that was named first."""
    reads = {each: _read_by(each, catalog) for each in pipelines}
    left, found = list(pipelines), list[str]()
    while left:
        made = {each: {d.name for d in catalog.pipeline(each)} for each in left}
        free = (each for each in left if not any(reads[each] & made[other] for other in left if other != each))
        found.append(next(free, left[0]))
        left.remove(found[-1])
    return found


def _read_by(pipeline: str, catalog: Catalog) -> set[str]:
    """The definitions whose tables a pipeline's items read."""
    levels = maintained(catalog.pipeline(pipeline), catalog)
    return {tables.parted(name)[0] for level in levels for item in level for name in item.inputs}


def _records(settings: Settings, lake: LakeLayout, topic: str) -> int:
    log = open_log(settings, lake)
    begins = log.begin_offsets(topic)
    return sum(log.span(topic, each, begins.get(each, 0), end) for each, end in log.end_offsets(topic).items())


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
    lake = LakeLayout(settings.lake)
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
    lake = LakeLayout(settings.lake)
    with opened(settings, plan.pipeline, spark) as (stream, began):
        catalog = Catalog(lake)
        definitions = [catalog.get(name) for name in plan.names]
        planned = {table.table for table in plan.computed} | set(plan.follow)
        stream.rebuilding = frozenset(planned)
        aside = _read_again(stream, [each for each in definitions if isinstance(each, Source)], steps)
        stages = _rebuilt(stream, set(plan.names) - aside, plan, steps)
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
    moved = {table: set_aside(lake, table) for table in names}
    for table, folder in moved.items():
        if folder is not None:
            log.warning("what '%s' held is kept in %s", table, folder)
    aside = {table for table, folder in moved.items() if folder is not None}
    waiting = sum(lag(source, lake, open_log(settings, lake)) for source in sources)
    topics = " and ".join(f"'{topic}'" for topic in dict.fromkeys(source.topic for source in sources))
    one = topics.count(" and ") == 0
    steps.begin(f"reading the topic{'' if one else 's'} {topics} from {'its' if one else 'their'} beginning", waiting)
    stream.watch = steps.micro_batch
    stream.read_again(sources)
    for source in sources:
        if tables.event_log(source) in aside and reader.head(lake.table(tables.event_log(source))) is None:
            begin_empty(source, lake, stream.context.writer)  # else what reads it would keep the rows of former events
        head = reader.head(lake.table(tables.event_log(source)))
        found = f"{0 if head is None else head.record.rows:,}"
        verb = " is" if found == "1" else "s are"
        steps.done(sentence("{} event{} in '{}'", found, verb, Name(tables.event_log(source))))
    return aside


def _rebuilt(stream: PipelineStream, names: Set[str], plan: RebuildPlan, steps: Steps) -> list[StageResult]:
    """Compute the stages of these definitions anew, in the order of levels, each with its dead letters."""
    from strandline.jobs.ivm.refresh.begun_logs import check_stage
    from strandline.jobs.ivm.refresh.context import Heads
    from strandline.jobs.ivm.refresh.guarded_stage import decide
    from strandline.jobs.ivm.refresh.refresh import rebuild_decided

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
