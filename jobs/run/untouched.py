"""The units of a level that what has come does not touch: they are not computed.

    heads of the inputs ── moved? ── can a change pass the filters? ──> units to compute
                             no │                   no │  (one query for all of them)
                                └──────────┬───────────┘
                                     nothing to do

A unit of which no row can change makes no commit, as one that was computed for nothing makes none, and its vector moves
on once it is far behind. So a next process asks the same again, for all units at once.

In the process that did so (`Standings`), a unit stands where it was found: as long as its table's log ends with the
commit that it ended with then, nothing of the unit is read, and an epoch that does not touch it costs it microseconds.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary
from zlib import crc32

from strandline.jobs.ivm.refresh.epoch import StageResult
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.refresh.passing import Asked, filters_of, passing
from strandline.jobs.model.stage import inputs_of
from strandline.state_store.delta.log import commit_file
from strandline.state_store.errors import StrandlineError
from strandline.state_store.files import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.ivm.refresh.context import Heads, RunContext
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.duckdb.engine import DuckDBEngine
    from strandline.state_store.files import Place
    from strandline.state_store.paths import LakePath

_FEWEST: Final = 4
"""Units that are asked about together. The query takes as long as a tenth of what computing one takes for nothing, and
of fewer it may be that all are touched."""

# A query that joins a view with what the view reads goes back to the versions that the view's vector names. So what
# stands may be hardly further behind than what is computed for nothing (`jobs.ivm.refresh.refresh`): by so many
# versions more that the vectors of a thousand views which were made together move on in different epochs.
_MOST_BEHIND: Final = 20
_SPREAD: Final = 8
_LONGEST_SECONDS: Final = 3600.0

_NOT_TOUCHED: Final = "no change of its inputs passes its filters"


@dataclass(frozen=True)
class _Standing:
    """Where a unit was found with nothing to do.

    Attributes:
        unit: the very same object, of which the filters are kept.
        inputs: heads of which it reflects everything, whatever its vector says.
        behind: {input: the version in its vector}.
        tables: their heads.
        ends: of the log of each of them the last commit's file, what that is, and the file that a next one would have.
        since: by the monotonic clock, when it was last refreshed.
    """

    unit: RefreshUnit
    inputs: dict[str, Head]
    behind: dict[str, int]
    tables: dict[str, Head]
    ends: tuple[tuple[str, Place, str], ...]
    since: float

    def holds(self) -> bool:
        """True while its tables are as they were."""
        try:
            return all(
                place_of(os.stat(last)) == place and not os.path.exists(following)
                for last, place, following in self.ends
            )
        except FileNotFoundError:
            return False

    def may_stay(self, inputs: Mapping[str, Head]) -> bool:
        """True while its vector need not move, although it reflects these heads."""
        behind = max((head.version - self.behind[name] for name, head in inputs.items()), default=0)
        most = _MOST_BEHIND + crc32(self.unit.name.encode()) % _SPREAD
        return behind <= most and time.monotonic() - self.since < _LONGEST_SECONDS


_OF_ENGINES: WeakKeyDictionary[DuckDBEngine, dict[tuple[LakePath, str], _Standing]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Found:
    """A unit as one refresh finds it.

    Attributes:
        inputs: their heads.
        moved: {input that has moved on: the version after which the unit has not seen it}.
        standing: None: it was not found in this process before.
    """

    unit: RefreshUnit
    inputs: dict[str, Head]
    moved: dict[str, int]
    standing: _Standing | None = None

    def questions(self) -> list[Asked] | None:
        """What is to be asked of the changes that have come; None: they touch it, as far as anybody can tell."""
        asked = []
        for stage in self.unit.stages:
            read = {each.relation.name for each in inputs_of(stage)}.intersection(self.moved)
            filters = filters_of(stage) if read else {}
            if filters is None:
                return None
            asked += [Asked(each, self.moved[name]) for name in read for each in filters[name]]
        return asked


class Untouched:
    """What one refresh knows of units that it need not compute.

    Args:
        heads: of this refresh.
    """

    def __init__(self, context: RunContext, heads: Heads) -> None:
        self._context = context
        self._heads = heads
        engine = context.duckdb_engine
        self._asks = engine is not None and context.engine != "spark"
        self._known = {} if engine is None else _OF_ENGINES.setdefault(engine, {})
        self._resting: dict[str, Head] = {}
        """The heads of tables to which nothing comes in this refresh."""
        self._rests: dict[str, dict[str, Head]] = {}
        self._versions: dict[tuple[str, int], TableVersion | None] = {}

    def find(self, units: Sequence[RefreshUnit]) -> tuple[dict[str, StageResult], frozenset[str]]:
        """The units of a level that no change touches, by name: the results of those with nothing to do, and those of
        which only the vector may have to move on.

        What does not read is to be computed: whoever does so says what is wrong with it.
        """
        if not self._asks:
            return {}, frozenset()
        found = [each for each in map(self._find, units) if each is not None]
        touched = self._touched(found)
        resting = {}
        others = set()
        for each in found:
            if each.unit.name in touched:
                continue
            standing = each.standing
            if standing is None or (each.moved and not standing.may_stay(each.inputs)):
                others.add(each.unit.name)
                continue
            self._resting |= standing.tables
            self._rests[each.unit.name] = standing.tables
            if each.moved:
                self._known[self._key(each.unit)] = replace(standing, inputs=each.inputs)
            resting[each.unit.name] = StageResult(each.unit.stages[-1].table, {}, {}, "none", _NOT_TOUCHED)
        return resting, frozenset(others)

    def tables(self, unit: RefreshUnit) -> Mapping[str, Head]:
        """The tables of a unit that this refresh need not compute, and their heads."""
        return self._rests.get(unit.name, {})

    def done(self, unit: RefreshUnit, results: Sequence[StageResult]) -> None:
        """Note that a unit reflects the heads of its inputs.

        Args:
            results: of all of its stages.
        """
        self._known.pop(self._key(unit), None)
        if not self._asks or not _may_rest(unit):
            return
        inputs = {name: head for name in unit.inputs if (head := self.input(name)) is not None}
        behind = {name: [each.to_vector[name] for each in results if name in each.to_vector] for name in unit.inputs}
        tables = {each.table: head for each in results if (head := self._heads.find(each.table)) is not None}
        if len(inputs) < len(unit.inputs) or not all(behind.values()) or len(tables) < len(results):
            return
        ends = []
        for name, head in tables.items():
            path = self._context.lake.table(name)
            if not isinstance(path, Path):
                return  # to look for one object takes as long as to read the head
            last, following = (str(commit_file(path, head.version + more)) for more in (0, 1))
            try:
                ends.append((last, place_of(os.stat(last)), following))
            except FileNotFoundError:  # somebody moved it on meanwhile, and cleaned up
                return
        least = {name: min(versions) for name, versions in behind.items()}
        self._known[self._key(unit)] = _Standing(unit, inputs, least, tables, tuple(ends), time.monotonic())

    def _key(self, unit: RefreshUnit) -> tuple[LakePath, str]:
        return self._context.lake.root, unit.name

    def input(self, name: str) -> Head | None:
        """The head of a table as far as this refresh computes from it; None when there is none."""
        return self._resting.get(name) or self._heads.input(name)

    def _find(self, unit: RefreshUnit) -> _Found | None:
        """The unit as it is found; None: it is to be computed."""
        if not _may_rest(unit):
            return None
        try:
            inputs = {name: head for name in unit.inputs if (head := self.input(name)) is not None}
            if len(inputs) < len(unit.inputs):
                return None
            standing = self._known.get(self._key(unit))
            if standing is not None and standing.unit is unit and standing.holds():
                return self._stood(standing, inputs)
            after = self._vector(unit)
            if after is None:
                return None
            moved = {name: after[name] for name, head in inputs.items() if after[name] < head.version}
            return _Found(unit, inputs, moved) if moved else None
        except StrandlineError:
            return None

    def _stood(self, standing: _Standing, inputs: dict[str, Head]) -> _Found | None:
        moved = {}
        for name, head in inputs.items():
            before = standing.inputs[name]
            if head.record.gone != before.record.gone or not self._still_has(name, head, before):
                return None
            if head.version > before.version:
                moved[name] = before.version
        return _Found(standing.unit, inputs, moved, standing)

    def _still_has(self, name: str, head: Head, before: Head) -> bool:
        """True if a table that was found at one head before has come from there."""
        if head.version < before.version:
            return False
        if head.version == before.version:
            return head.at.same(before.at)
        place = (name, before.version)
        if place not in self._versions:
            self._versions[place] = self._heads.at(*place)
        then = self._versions[place]
        return then is not None and then.same(before.at)

    def _vector(self, unit: RefreshUnit) -> dict[str, int] | None:
        """What the unit's tables say that they reflect of its inputs, the least of each; None: that is not the state
        between two refreshes."""
        found: dict[str, int] = {}
        for stage in unit.stages:
            letters = decide(stage, unit.options.errors, unit.letters(stage), self._heads).aside
            read = {each.relation.name for each in inputs_of(stage)}
            for table in (stage.table, *(() if letters is None else (letters.table,))):
                head = self._heads.find(table)
                vector = {} if head is None else head.record.versions
                if not read <= vector.keys():
                    return None
                for name in read:
                    if name in unit.inputs:
                        found[name] = min(found.get(name, vector[name]), vector[name])
                        continue
                    inner = self._heads.find(name)
                    if inner is None or inner.version != vector[name]:
                        return None
        return found

    def _touched(self, found: Sequence[_Found]) -> set[str]:
        """The names of the units that a change may touch."""
        asked = {each.unit.name: each.questions() for each in found if each.moved}
        touched = {name for name, questions in asked.items() if questions is None}
        open_ = {name: questions for name, questions in asked.items() if questions}
        if len(open_) < _FEWEST:
            return touched | open_.keys()
        of_tables: dict[str, list[tuple[str, Asked]]] = {}
        for name, questions in open_.items():
            for each in questions:
                of_tables.setdefault(each.filter.relation.name, []).append((name, each))
        for table, pairs in of_tables.items():
            head = self.input(table)
            assert head is not None, "it has moved"
            answers = passing(self._context, head.version, [question for _, question in pairs])
            touched |= {name for (name, _), may_pass in zip(pairs, answers, strict=True) if may_pass}
        return touched


def _may_rest(unit: RefreshUnit) -> bool:
    """False for a unit of which more is asked than its rows: it is computed, or looked at, each time."""
    plain = not unit.blocking and not unit.gated and unit.vector_prefix is None
    return plain and unit.target not in unit.inputs and unit.options.refresh != "full"
