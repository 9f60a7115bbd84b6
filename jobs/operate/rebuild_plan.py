"""The plan of a rebuild: what is read again, computed anew or begun anew, and who follows. Nothing is changed by it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.catalog.catalog import Catalog
from jobs.ingest.logs.open import open_log
from jobs.ivm.refresh.context import Owner
from jobs.ivm.refresh.rebuild_stage import standing
from jobs.model import tables
from jobs.model.definitions import Source, View
from jobs.model.errors import NotSupported, OffsetsVanished
from jobs.model.stage import inputs_of
from jobs.run.schedule import maintained
from state_store.delta import reader
from state_store.errors import CorruptState, VersionGone
from state_store.layout import Lake
from state_store.paths import is_folder
from state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from jobs.model.settings import Settings
    from jobs.model.stage import Stage
    from jobs.run.schedule import Maintained


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
        topic: of a source, read again from its beginning; None for a view.
        records: that the topic holds now.
        aside: of a source the tables that are set aside.
        computed: the tables that are computed anew, in order.
        follow: definitions of the pipeline that take in the difference.
        elsewhere: those of other pipelines that read what is begun anew: they must be rebuilt as well.
    """

    name: str
    pipeline: str
    topic: str | None
    records: int
    aside: tuple[str, ...]
    computed: tuple[PlannedTable, ...]
    follow: tuple[str, ...]
    elsewhere: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: rebuild it in pipeline '{self.pipeline}', which must not be running"]
        lines += [sentence("  set '{}' aside", Name(table)) for table in self.aside]
        if self.topic is not None:
            lines.append(f"  read the topic '{self.topic}' from its beginning: {self.records:,} records")
        for each in self.computed:
            reads = joined(" and ", (_read(name, rows) for name, rows in each.reads.items()))
            how = "set it aside, and begin it anew" if each.begun_anew else "store the difference in one commit"
            lines.append(sentence("  compute '{}' from {}; {}", Name(each.table), reads, how))
        lines += [sentence("  then '{}' takes in the difference", Name(name)) for name in self.follow]
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
            "name": self.name,
            "pipeline": self.pipeline,
            "topic": self.topic,
            "records": self.records,
            "aside": list(self.aside),
            "computed": [
                {"table": each.table, "reads": each.reads, "begun_anew": each.begun_anew} for each in self.computed
            ],
            "follow": list(self.follow),
            "elsewhere": list(self.elsewhere),
        }


def plan_rebuild(settings: Settings, name: str) -> RebuildPlan:
    """The plan for a stream, table or view.

    Raises:
        UnknownName: there is no such definition.
        NotSupported: it is a partial view.
        OffsetsVanished: the topic no longer has all records of a source.
    """
    lake = Lake(settings.lake)
    catalog = Catalog(lake)
    definition = catalog.get(name)
    if isinstance(definition, View) and definition.partial:
        raise NotSupported(
            sentence("'{}' is a partial view: nothing is stored of it that could be rebuilt", Name(name)),
            hint=sentence("rebuild what it reads: strandline rebuild {}", Name(definition.inputs[0], shlex.quote)),
        )
    topic, aside = None, set[str]()
    if isinstance(definition, Source):
        check_kept(settings, lake, definition)
        topic, aside = definition.topic, {each for each in tables.own_tables(definition) if is_folder(lake.table(each))}
    items = [item for level in maintained(catalog.pipeline(definition.pipeline), catalog) for item in level]
    computed, gone = _computed(items, name, aside, lake)
    done = {each.table for each in computed}
    return RebuildPlan(
        name=name,
        pipeline=definition.pipeline,
        topic=topic,
        records=0 if topic is None else _records(settings, lake, topic),
        aside=tuple(sorted(aside)),
        computed=tuple(computed),
        follow=_followers(items, done | aside),
        elsewhere=readers_elsewhere(lake, definition.pipeline, gone),
    )


def check_kept(settings: Settings, lake: Lake, source: Source) -> None:
    """Raise OffsetsVanished unless the topic still has every record from its beginning."""
    begins = open_log(settings, lake).begin_offsets(source.topic)
    gone = [f"0 to {first - 1} of partition {partition}" for partition, first in begins.items() if first > 0]
    if gone:
        raise OffsetsVanished(
            f"topic '{source.topic}' no longer has the records {', '.join(gone)}",
            hint=sentence("restore the event log '{}' from a backup of the lake", Name(tables.event_log(source))),
        )


def readers_elsewhere(lake: Lake, pipeline: str, aside: Set[str]) -> tuple[str, ...]:
    """The definitions of other pipelines that read a table which is begun anew."""
    catalog = Catalog(lake)
    others = [other for other in catalog.pipelines() if aside and other != pipeline]
    items = [item for other in others for level in maintained(catalog.pipeline(other), catalog) for item in level]
    return tuple(sorted({item.name for item in items if aside & set(item.inputs)}))


def _computed(
    items: Sequence[Maintained], name: str, aside: Set[str], lake: Lake
) -> tuple[list[PlannedTable], set[str]]:
    """The tables that are computed anew: those of the definition, and those that read what is begun anew.

    Returns:
        them, and all that is begun anew.
    """
    computed, gone = list[PlannedTable](), set(aside)
    for item in items:
        if not ({item.name, item.target} & ({name} - aside) or gone & set(item.inputs)):
            continue
        for stage in item.stages:
            owner = item.owner(stage)
            anew = stage.table in gone or not _stands(lake, stage, owner)
            computed.append(PlannedTable(stage.table, _reads(stage, gone, lake), anew))
            gone |= {stage.table} if anew else set()
    return computed, gone


def _stands(lake: Lake, stage: Stage, owner: Owner) -> bool:
    try:
        return standing(lake, stage, owner) is not None
    except (CorruptState, VersionGone):
        return False


def _reads(stage: Stage, gone: Set[str], lake: Lake) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name in dict.fromkeys(each.relation.name for each in inputs_of(stage)):
        head = None if name in gone else reader.head(lake.table(name))
        found[name] = None if name in gone else 0 if head is None else head.record.rows
    return found


def _followers(items: Sequence[Maintained], moved: Set[str]) -> tuple[str, ...]:
    """What reads a table whose rows change, and is not itself computed anew; in order."""
    reached, found = set(moved), list[str]()
    for item in items:
        if item.target not in moved and reached & set(item.inputs):
            reached.add(item.target)
            found.append(item.target)
    return tuple(dict.fromkeys(found))


def _records(settings: Settings, lake: Lake, topic: str) -> int:
    log = open_log(settings, lake)
    begins = log.begin_offsets(topic)
    return sum(end - begins.get(partition, 0) for partition, end in log.end_offsets(topic).items())
