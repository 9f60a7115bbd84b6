"""The schedule of a refresh: what a pipeline maintains, in levels, and which of it may wait.

definitions ──plan──> stages ──> one item per definition, and one per stage that views share ──> levels

FRESHNESS says for how long a view may lack what has come:

    FRESHNESS = '5 minutes'      refreshed once what has come first is about to be five minutes old
    FRESHNESS = 'downstream'     refreshed when what reads it is
    without it                   refreshed with each epoch

A refresh costs what it costs for one event and for a thousand, so what waits is cheaper. A view is never more patient
than the most impatient target above it: one of an hour that a view of a minute reads is refreshed within the minute.
A view without a target takes its inputs as it finds them, and asks nothing of them.

    sales ──> by_shop (1 hour) ──> top_shops (1 minute) ──> page (none)
              waits 1 minute       waits 1 minute           each epoch; it changes once a minute

What reads a table that is lost or damaged does not wait: its refresh says so, as that of any other view does.

Snowflake's dynamic tables have the same two forms of TARGET_LAG. What waits is a continuous run's alone: a drain ends
with every view refreshed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.refresh.context import Owner
from strandline.jobs.ivm.rules.stored import marked
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, InsertQuery, Ownership, Source, View, ViewOptions
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.stage import Plan, Stage, inputs_of
from strandline.state_store.delta import heads, reader
from strandline.state_store.errors import StoreError
from strandline.state_store.paths import side_by_side
from strandline.state_store.wording import quoted, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Expectation
    from strandline.state_store.layout import LakeLayout


@dataclass(frozen=True)
class RefreshUnit:
    """One definition, or one shared stage, with its stages: what a refresh needs.

    Attributes:
        name: unique also among the queries that insert into one stream.
        target: the table that the last stage is in.
        stages: in order; all but the last are the definition's own inner stages.
        inputs: the tables read that are not of these stages.
        vector_prefix: several queries may feed one stream from one input: each keeps vector entries of its own.
        options: of the view; the defaults for what is no view.
        serves: of a shared stage the views that read it.
        blocking: the expectations that must hold of the target before anything is computed from it.
        gated: the inputs that have such expectations.
        freshness: for how many seconds the target may lack what has come; infinite for as long as nobody reads it;
            None: it is refreshed with each epoch.
    """

    name: str
    target: str
    stages: tuple[Stage, ...]
    inputs: tuple[str, ...]
    fingerprint: str
    vector_prefix: str | None = None
    options: ViewOptions = field(default_factory=ViewOptions)
    serves: tuple[str, ...] = ()
    blocking: tuple[Expectation, ...] = ()
    gated: frozenset[str] = frozenset()
    freshness: float | None = None

    def owner(self, stage: Stage) -> Owner:
        """Whom one of the stages is maintained for: the inner stages of a query into a stream are the query's alone."""
        return Owner(self.fingerprint, self.vector_prefix if stage is self.stages[-1] else None)

    def letters(self, stage: Stage) -> str:
        """The table of the dead letters of one of the stages."""
        return tables.dead_letters(self.name if stage is self.stages[-1] else stage.table)


Levels = Sequence[Sequence[RefreshUnit]]
"""Refresh units, each level reading earlier ones only."""


def maintained(definitions: Sequence[Definition], catalog: Catalog) -> list[list[RefreshUnit]]:
    """The maintained definitions of a pipeline in levels: a level reads earlier levels only.

    What a definition reads of other pipelines does not count: it is read as it stands.

    Raises:
        RefreshFailed: they read each other in a circle.
    """
    plans = [(d, compiled(d, catalog)) for d in definitions if _is_maintained(d)]
    planned = [*_shared(plans), *(_item(definition, made) for definition, made in plans)]
    todo = [_with_gates(item, catalog) for item in planned]
    levels: list[list[RefreshUnit]] = []
    while todo:
        waiting = {m.target for m in todo}
        level = [m for m in todo if not (set(m.inputs) - {m.target}) & waiting]
        if not level:
            raise RefreshFailed(sentence("the definitions {} read each other in a circle", quoted(sorted(waiting))))
        levels.append(level)
        todo = [m for m in todo if m not in level]
    return levels


class Queue:
    """The units of one refresh, each of which is free once all that it has to wait for is done.

    A unit waits for what earlier levels write into the tables that it reads or writes, and for who reads there what it
    writes; and in its own level for the one before it that writes the same table.
    """

    def __init__(self, levels: Levels) -> None:
        # By the object: to hash a thousand units takes as long as to compute some.
        self._awaited: dict[int, int] = {}
        self._behind: dict[int, list[RefreshUnit]] = {}
        self._free: list[RefreshUnit] = []
        writers: dict[str, list[RefreshUnit]] = {}
        readers: dict[str, list[RefreshUnit]] = {}
        for level in levels:
            last: dict[str, RefreshUnit] = {}
            for unit in level:
                met = [each for table in {unit.target, *unit.inputs} for each in writers.get(table, ())]
                met += [*readers.get(unit.target, ()), *([last[unit.target]] if unit.target in last else [])]
                before = {id(each): each for each in met}
                self._awaited[id(unit)] = len(before)
                for each in before:
                    self._behind.setdefault(each, []).append(unit)
                if not before:
                    self._free.append(unit)
                last[unit.target] = unit
            for unit in level:
                writers.setdefault(unit.target, []).append(unit)
                for name in unit.inputs:
                    readers.setdefault(name, []).append(unit)

    def take(self) -> list[RefreshUnit]:
        """The units that have become free, each once."""
        found, self._free = self._free, []
        return found

    def done(self, unit: RefreshUnit) -> None:
        """Note that a unit which was taken is done, or is not going to be."""
        for each in self._behind.pop(id(unit), ()):
            self._awaited[id(each)] -= 1
            if not self._awaited[id(each)]:
                self._free.append(each)


def read_from_outside(levels: Iterable[Iterable[RefreshUnit]]) -> frozenset[str]:
    """The tables that a pipeline's items read and do not maintain: event logs, and tables of other pipelines."""
    items = [item for level in levels for item in level]
    return frozenset(name for item in items for name in item.inputs) - {item.target for item in items}


def foreign_heads(
    levels: Iterable[Iterable[RefreshUnit]], sources: Iterable[Source], lake: LakeLayout
) -> dict[str, int]:
    """{table: its newest version} of the tables of other pipelines that a pipeline's items read."""
    own = {name for source in sources for name in tables.own_tables(source)}
    found = {name: reader.head(lake.table(name)) for name in read_from_outside(levels) - own}
    return {name: head.version for name, head in found.items() if head is not None}


def unmade_logs(sources: Iterable[Source], lake: LakeLayout) -> dict[str, Source]:
    """{event log: its source} of the sources of which no record has come yet."""
    return {tables.event_log(each): each for each in sources if _is_unmade(tables.event_log(each), lake)}


def read_beside_others(
    levels: Iterable[Iterable[RefreshUnit]], unmade: Mapping[str, Source], lake: LakeLayout
) -> list[Source]:
    """The sources without a record that a view reads beside a table that is there.

    Such a view would wait for a first record that may never come: of a LEFT JOIN or UNION ALL it is the rows of the
    other input that nobody would see.
    """
    reads: dict[str, frozenset[str]] = {}
    wanted: set[str] = set()
    for item in (item for level in levels for item in level):
        own = frozenset(found for name in item.inputs for found in reads.get(name, {name}))
        reads[item.target] = reads.get(item.target, frozenset()) | own
        missing = own & unmade.keys()
        if missing and any(not _is_unmade(name, lake) for name in own - missing):
            wanted |= missing
    return [source for name, source in unmade.items() if name in wanted]


def _is_unmade(table: str, lake: LakeLayout) -> bool:
    """True if a table has never been there; what is lost or broken has been."""
    try:
        return heads.head(lake, table) is None
    except StoreError:
        return False


def gated_in(levels: Iterable[Iterable[RefreshUnit]]) -> frozenset[str]:
    """The tables with blocking expectations that the items read."""
    return frozenset(name for level in levels for item in level for name in item.gated)


def tables_of(levels: Iterable[Iterable[RefreshUnit]]) -> frozenset[str]:
    """The tables that the units write, dead letters among them."""
    pairs = [(item, stage) for level in levels for item in level for stage in item.stages]
    return frozenset(name for item, stage in pairs for name in (stage.table, item.letters(stage)))


def stages_of(table: str, levels: Iterable[Iterable[RefreshUnit]]) -> tuple[Stage, ...]:
    """The stages that a table is maintained by: its own, the inner ones, and those that it shares with others."""
    items = (item for level in levels for item in level if table in (item.target, *item.serves))
    return tuple(stage for item in items for stage in item.stages)


def _is_maintained(definition: Definition) -> bool:
    """False for a stream, whose event log is ingest's, and for a partial view, which readers compute."""
    if isinstance(definition, View):
        return not definition.partial
    return not (isinstance(definition, Source) and definition.kind == "stream")


def _item(definition: Definition, made: Plan) -> RefreshUnit:
    insert = isinstance(definition, InsertQuery)
    options = definition.maintenance if isinstance(definition, View) else ViewOptions()
    stages = tuple(stage for stage in made.stages if not tables.is_shared(stage.table))
    return RefreshUnit(
        name=definition.name,
        target=definition.target if isinstance(definition, InsertQuery) else definition.name,
        stages=stages,
        inputs=_read(stages),
        fingerprint=marked(_fingerprint(definition), stages),
        vector_prefix=definition.name if insert else None,
        options=options,
        freshness=None if isinstance(definition, InsertQuery) else Ownership.read(definition.options).patience,
    )


def _shared(plans: Iterable[tuple[Definition, Plan]]) -> list[RefreshUnit]:
    """An item for each shared stage, whichever views read it; its table's name says what it holds."""
    found: dict[str, RefreshUnit] = {}
    for definition, made in plans:
        for stage in made.stages:
            if tables.is_shared(stage.table):
                one = RefreshUnit(stage.table, stage.table, (stage,), _read((stage,)), stage.table)
                known = found.get(stage.table, one)
                found[stage.table] = replace(known, serves=(*known.serves, definition.name))
    return list(found.values())


def _with_gates(item: RefreshUnit, catalog: Catalog) -> RefreshUnit:
    """The item with the blocking expectations of its own table, and the inputs that have some."""
    gated = frozenset(name for name in item.inputs if _blocking(name, catalog))
    return replace(item, blocking=_blocking(item.target, catalog), gated=gated)


def _blocking(table: str, catalog: Catalog) -> tuple[Expectation, ...]:
    """The blocking expectations of a view or keyed source. An event log has none: its rows are what came."""
    found = catalog.find(table)
    if isinstance(found, View | Source) and _is_maintained(found):
        return Ownership.read(found.options).blocking
    return ()


def _read(stages: Sequence[Stage]) -> tuple[str, ...]:
    own = {stage.table for stage in stages[:-1]}
    names = (each.relation.name for stage in stages for each in inputs_of(stage))
    return tuple(dict.fromkeys(name for name in names if name not in own))


def _fingerprint(definition: Definition) -> str:
    if isinstance(definition, View | InsertQuery):
        return definition.fingerprint
    columns = ";".join(f"{c.name} {c.type}{' KEY' if c.key else ''}" for c in definition.columns)
    return hashlib.sha256(columns.encode()).hexdigest()[:16]


_AHEAD_SECONDS: Final = 2.0
"""How long before its target a refresh begins, beside the time that it takes: the run looks once a second, and a
micro-batch may be at work."""
_TIMES_LAST: Final = 1.5
"""The time that a refresh is expected to take, of the last one's: it has more to do the longer it has waited."""


def patience(levels: Levels) -> dict[str, float]:
    """{unit: for how many seconds it may lack what has come} of those that may wait; infinite for what nobody asks."""
    wanted: dict[str, float] = {}
    found: dict[str, float] = {}
    for item in (item for level in reversed(levels) for item in level):
        above = wanted.get(item.target, math.inf)
        own = item.freshness if item.freshness is not None else math.inf if item.serves else 0.0
        found[item.name] = min(own, above)
        for name in item.inputs:
            # A stage that views share is part of each of them, so a view without a target asks for it at once.
            asks = found[item.name] if item.freshness is not None or tables.is_shared(name) else above
            wanted[name] = min(wanted.get(name, math.inf), asks)
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def without(levels: Levels, waiting: Collection[str]) -> Levels:
    """The levels without the units that wait; what reads them finds their tables as they stand."""
    return [[item for item in level if item.name not in waiting] for level in levels] if waiting else levels


Versions = dict[str, int | None]
"""{table: its newest version}; None of one that was not made yet."""


@dataclass
class Deferrals:
    """What waits in one run, and since when.

    Attributes:
        looked: {unit that waits: when its last refresh began and ended}, in milliseconds since the epoch.
    """

    levels: Levels
    looked: dict[str, tuple[int, int]] = field(default_factory=dict)
    _patience: Mapping[str, float] = field(init=False)
    _seen: dict[str, Versions] = field(default_factory=dict)
    """{unit: the versions of its inputs that it reflects}"""
    _since: dict[str, float] = field(default_factory=dict)
    """{unit: since when something has waited for it}, by the monotonic clock."""
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """{unit: when its last refresh began and ended}"""

    def __post_init__(self) -> None:
        self._patience = patience(self.levels)

    def choose(self, lake: LakeLayout, now: float | None) -> frozenset[str]:
        """The units that may wait now; nothing is missed by that, since their inputs' logs are read on from where they
        were left.

        Args:
            now: by the monotonic clock, when the epoch that is refreshed began; None: nothing may wait.
        """
        waiting: set[str] = set()
        moving: dict[str, float] = {}
        found = _versions(lake, {name for item in self._patient() for name in item.inputs})
        for item in self._patient():
            present = {name: found[name] for name in item.inputs if name in found}
            reads = len(present) == len(item.inputs)
            coming = [moving[name] for name in item.inputs if name in moving]
            if now is not None and (coming or present != self._seen.get(item.name)):
                self._since[item.name] = min([self._since.get(item.name, now), *coming])
            if now is not None and reads and item.name in self._last and not self._is_due(item.name, now):
                waiting.add(item.name)
                continue
            self._seen[item.name] = present
            if item.name in self._since:
                moving[item.target] = self._since[item.name]
        self.looked = {name: self._last[name] for name in waiting}
        return frozenset(waiting)

    def done(self, lake: LakeLayout, now: float, waiting: Collection[str], moments: tuple[int, int]) -> None:
        """Note a refresh of all units but those that wait.

        Args:
            now: as of `choose`.
            moments: when it began and ended, in milliseconds since the epoch.
        """
        own = {item.target for level in self.levels for item in level}
        found = _versions(lake, {name for item in self._patient() for name in own.intersection(item.inputs)})
        for item in self._patient():
            # What this run itself committed in this refresh, later levels of it have read, but for those that wait.
            present = {name: found[name] for name in item.inputs if name in found}
            if item.name in waiting:
                if any(version != self._seen[item.name].get(name) for name, version in present.items()):
                    self._since.setdefault(item.name, now)
                continue
            self._seen[item.name] |= present
            self._since.pop(item.name, None)
            self._last[item.name] = moments

    def are_due(self, now: float) -> bool:
        """True if something has waited for as long as it may."""
        return any(self._is_due(name, now) for name in self._since)

    def _patient(self) -> Iterable[RefreshUnit]:
        return (item for level in self.levels for item in level if item.name in self._patience)

    def _is_due(self, name: str, now: float) -> bool:
        if name not in self._since:
            return False
        began, ended = self._last.get(name, (0, 0))
        ahead = _AHEAD_SECONDS + _TIMES_LAST * (ended - began) / 1000
        return now - self._since[name] >= self._patience[name] - ahead


def _versions(lake: LakeLayout, names: Collection[str]) -> Versions:
    """{table: its newest version} of those that read."""
    found = side_by_side(lambda name: _version(lake, name), sorted(names), lake.root)
    return {name: versions[0] for name, versions in zip(sorted(names), found, strict=True) if versions}


def _version(lake: LakeLayout, name: str) -> tuple[int | None, ...]:
    """The newest version of a table; nothing where it does not read."""
    try:
        head = heads.head(lake, name)
    except StoreError:
        return ()
    return (None if head is None else head.version,)
