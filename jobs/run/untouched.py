"""Of the units that may begin, those that what has come does not touch: they are not computed.

    heads of the inputs ── moved? ── can a change pass the filters? ──> units to compute
                             no │                   no │  (one query for all of them)
                                └──────────┬───────────┘
                                     nothing to do

A unit of which no row can change makes no commit, as one that was computed for nothing makes none, and its vector moves
on once it is far behind. So a next process asks the same again, for all units at once.

In the process that did so (`Standings`), a unit stands where it was found: as long as its table's log ends with the
commit that it ended with then, nothing of the unit is read, and an epoch that does not touch it costs it microseconds.

Whether what has come for a stage can pass its filters is found out for many stages by one query, before any is run:

    SELECT … FROM sales WHERE sales.qty > 37 AND sales.shop = 4        sales   qty > 37, shop = 4
    … JOIN shops ON … WHERE sales.qty > 37 AND shops.city = 'Rome'     sales   qty > 37       shops   city = 'Rome'

Where no changed row of any input that moved meets the terms of WHERE over that input alone, every row of the stage's
body is as it was, and no row of it fails: terms that cannot fail decide first (`jobs.functions.failing_rows`). Then the
stage changes nothing, whatever stands above its body.

It only ever says "surely nothing". What it cannot tell (an input without such a term, or that an outer join pads; rows
that are too many, or do not read) is to be computed. The terms are the rule's own, in the words of its text and by the
same engine: there is no second meaning of a condition.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary
from zlib import crc32

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.refresh.epoch import StageResult
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.refresh.on_duckdb import flat, of_columns
from strandline.jobs.ivm.rules.delta_join import is_linear
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, MapStage, Stage, inputs_of, kept_with_stage
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.sql.trees import all_of, columns_in, conjuncts, replaced
from strandline.state_store.delta.log import commit_file, read_record
from strandline.state_store.duckdb.statements import MOST_ROWS
from strandline.state_store.duckdb.table import DuckDBTable, streamed
from strandline.state_store.errors import StrandlineError
from strandline.state_store.files import place_of
from strandline.state_store.tablespec import VERSION, WEIGHT

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.context import Heads, RunContext
    from strandline.jobs.model.stage import Core, Input
    from strandline.jobs.model.tables import Relation
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.duckdb.engine import DuckDBEngine
    from strandline.state_store.files import Place
    from strandline.state_store.paths import LakePath


log = logging.getLogger("strandline")

_MOST: Final = 4_000_000
"""Rows times filters that are looked at: a byte each in memory, and some milliseconds."""
_CHANGED: Final = "__changed"


@dataclass(frozen=True)
class Filter:
    """A condition over one relation.

    Attributes:
        text: in DuckDB's words, over the columns of `relation` under the name `__changed`.
    """

    relation: Relation
    text: str


Filters = Mapping[str, tuple[Filter, ...]]
"""{an input's table: filters of which a changed row must meet one, to change anything}; of an input without any, no
change does."""


@kept_with_stage
def filters_of(stage: Stage) -> Filters | None:
    """The filters of a stage's inputs; None where some input has none, so that every change of it is to be computed."""
    if not isinstance(stage, MapStage | AggregateStage | AnalyticStage) or _counts_late(stage):
        return None
    found: dict[str, list[Filter]] = {}
    for core in stage.body:
        for place, each in enumerate(core.inputs):
            filters = found.setdefault(each.relation.name, [])
            if each.frozen:
                continue
            condition = _over(core, each) if is_linear(core, place) else None
            if condition is None:
                return None
            filters.append(Filter(each.relation, lower(condition, "duckdb")))
    return {name: tuple(filters) for name, filters in found.items()}


def _counts_late(stage: Stage) -> bool:
    return isinstance(stage, AggregateStage) and bool(stage.late)


def _over(core: Core, read: Input) -> exp.Expression | None:
    """The terms of WHERE that cannot fail and read that input, and nothing else."""
    terms = [
        term
        for term in conjuncts(core.where)
        if {column.table for column in columns_in(term)} == {read.alias} and not can_fail(term)
    ]
    condition = all_of(*terms)
    if condition is None:
        return None
    columns = {(column.table, column.name) for column in columns_in(condition)}
    return replaced(condition, {place: exp.column(place[1], table=_CHANGED, quoted=True) for place in columns})


@dataclass(frozen=True)
class Asked:
    """A question: does a change of the versions after `after` meet the filter?"""

    filter: Filter
    after: int


def passing(context: RunContext, upto: int, asked: Sequence[Asked]) -> list[bool]:
    """For each question about one table whether the answer may be yes; False is surely no.

    Args:
        upto: the version that the changes end with.
    """
    after = min(each.after for each in asked)
    # By the object, of which each view has its own or shares one: to hash a thousand of them takes 15 ms.
    relations: list[Relation] = []
    number: dict[int, int] = {}
    for each in asked:
        relation = each.filter.relation
        if id(relation) not in number:
            if relation not in relations:
                relations.append(relation)
            number[id(relation)] = relations.index(relation)
    places = [number[id(each.filter.relation)] for each in asked]
    try:
        last = [
            _last_met(context, relation, _texts(asked, places, place), after, upto)
            for place, relation in enumerate(relations)
        ]
    except (duckdb.Error, StrandlineError) as error:  # whoever computes it says what is wrong with it
        log.debug("what has come is not looked through: %s", error)
        return [True] * len(asked)
    return [last[place].get(each.filter.text, -1) > each.after for place, each in zip(places, asked, strict=True)]


def _texts(asked: Sequence[Asked], places: Sequence[int], wanted: int) -> list[str]:
    """The different filters over one of the relations."""
    found = (each.filter.text for place, each in zip(places, asked, strict=True) if place == wanted)
    return list(dict.fromkeys(found))


def _last_met(context: RunContext, relation: Relation, filters: Sequence[str], after: int, upto: int) -> dict[str, int]:
    """{filter: the last version of which a change meets it}; of filters that none meets, nothing."""
    if _changed_rows(context, relation.name, after, upto) * len(filters) > _MOST:
        return dict.fromkeys(filters, upto)
    assert context.duckdb_engine is not None
    found = np.full(len(filters), -1, np.int64)
    whole = ", ".join(f"COALESCE({text}, FALSE)" for text in filters)
    if context.functions is not None:
        functions = context.functions
        context.duckdb_engine.register(lambda connection: functions.register_duckdb(connection, whole))
    with context.duckdb_engine.connection() as connection:
        path, read = context.lake.table(relation.name), of_columns(relation, whole)
        table = DuckDBTable(connection, context.duckdb_engine.kept, path, spec_of_input(read), _CHANGED)
        # One list, not a column each: DuckDB takes as long for the names of columns as for what is in them.
        for batch in _rows(context, table, read, f"list_value({whole}) AS met", after, upto):
            met = np.asarray(batch["met"].flatten().cast(pa.uint8())).reshape(batch.num_rows, len(filters))
            versions = np.asarray(batch[VERSION])
            found = np.maximum(found, np.where(met, versions[:, None], -1).max(axis=0))
    return {text: int(last) for text, last in zip(filters, found, strict=True) if last >= 0}


def _rows(
    context: RunContext, table: DuckDBTable, read: Relation, computed: str, after: int, upto: int
) -> Iterable[pa.RecordBatch]:
    """What is computed of each change, and its version; from the second time on by a statement that stays prepared."""
    assert context.duckdb_engine is not None
    statements, of = context.duckdb_engine.statements, f"{table.path} changes"

    def over(changes: str) -> str:
        return f"SELECT {computed}, {VERSION} FROM ({flat(changes, read, WEIGHT, VERSION)}) AS {_CHANGED}"

    held = table.held_changes(after, upto) if statements.are_worth(of, computed) else None
    if held is None or held.num_rows > MOST_ROWS:
        return streamed(table.connection, over(table.changes(after, upto)))
    found: list[pa.RecordBatch] = statements.run(
        of, over("SELECT * FROM given_changes"), [], {"given_changes": held}
    ).to_batches()
    return found


def _changed_rows(context: RunContext, name: str, after: int, upto: int) -> float:
    """The rows that the commits say they changed; infinite where one does not say."""
    path = context.lake.table(name)
    records = [read_record(path, version) for version in range(after + 1, upto + 1)]
    return sum(math.inf if each is None else each.inserted + each.deleted for each in records)


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
        """Those of some units that no change touches, by name: the results of those with nothing to do, and those of
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
