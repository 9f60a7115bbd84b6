"""Refreshes the views of a pipeline, each after what it reads, independent ones side by side: here or in Spark's tasks.

    level 0: keyed sources       level 1: views over logs and tables, shared stages       level 2: views over those …

A view that fails stops there, with what depends on it; the others go on. One that breaks a blocking expectation is
fresh, and what depends on it goes on from the version before.

Several attempts of one refresh may be at work at once: Spark starts a slow task a second time, and again the task of a
worker that it has lost and that is not dead yet. Each epoch is committed by one of them. The others are not done then,
and nothing is wrong: they go on from where that one came to, and whichever ends first has the result of all.

In Spark's tasks it is one job, and in each task DuckDB refreshes views that hang together:

    levels ──hang together──> groups ──a task each──> refresh_all by the worker's DuckDB ──> results
                                                        └─ what it leaves to Spark ──> refresh_all in the session

Spark schedules the tasks, starts them again and shows them. A task that runs twice, one after the other or side by
side, commits nothing twice: an epoch follows the one before it, and of two writers of a version the first one wins; the
other goes on from there.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from strandline.jobs.expect.expectations import asked_of, read_approval, validate, write_approval
from strandline.jobs.ivm.refresh import together
from strandline.jobs.ivm.refresh.context import Heads, RunContext
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.refresh.refresh import refresh_decided
from strandline.jobs.model.errors import EngineRefused, ExpectationBroken, RefreshFailed
from strandline.jobs.model.tables import input_of
from strandline.jobs.run.schedule import Levels, Queue, gated_in, read_from_outside, without
from strandline.jobs.run.untouched import Untouched
from strandline.state_store.commits import Reached
from strandline.state_store.delta.log import now_ms
from strandline.state_store.duckdb.engine import process_engine
from strandline.state_store.errors import CommitConflict, InputReplaced, StrandlineError, VectorMismatch
from strandline.state_store.failpoints import failpoint
from strandline.state_store.storage_verbs import REQUESTS, Requests
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark import RDD
    from pyspark.sql import SparkSession

    from strandline.jobs.expect.expectations import Approval
    from strandline.jobs.ivm.refresh.epoch import Epoch, StageResult
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.layout import LakeLayout


# The approval of a refresh: a table with blocking expectations is validated before anything is computed from it.
#
# It stays as fresh as it was; what reads it waits at the version that was approved last, and goes on by itself once a
# later one holds.


def approve(lake: LakeLayout, heads: Heads, item: RefreshUnit) -> ExpectationBroken | None:
    """Validate the head of an item's table, unless that was done before, and note what it came to.

    Returns:
        what is wrong with it; None when its expectations hold.

    Raises:
        CorruptState, VersionGone: the rows, or the approval, do not read back. Nothing is approved.
    """
    head = heads.find(item.target)
    if head is None or not item.blocking:
        return None
    asked = asked_of(item.blocking)
    known = read_approval(lake, item.target)
    if not known.covers(head, asked):
        _, verdicts = validate(lake.table(item.target), item.blocking, head.version)
        wrong = "; ".join(f"{each.check}: {each.what}" for each in verdicts if each.ok is not True)
        known = known.refusing(head, asked, wrong, now_ms()) if wrong else known.approving(head, asked)
        failpoint("before-approval")
        write_approval(lake, item.target, known)
    return _broken(item.target, known) if known.refused is not None else None


def _broken(table: str, approval: Approval) -> ExpectationBroken:
    assert approval.refused is not None
    stay = f"stays at its version {approval.approved.version}" if approval.approved is not None else "waits"
    return ExpectationBroken(
        sentence(
            "version {} of '{}' breaks {}; what reads it {}", approval.refused.version, Name(table), approval.why, stay
        ),
        where=Text(Name(table)),
        hint="correct what it is computed from, or the expectation; the next refresh looks again",
    )


# Beside each other, small refreshes overlap their planning and job starts; more than four only queue on few cores
# (measured: four views at once 2.7 s, eight 5.5 s).
_SIDE_BY_SIDE = 4
_AGAIN: Final = 4
"""How often an attempt that lost a race goes on: each time another one has come further, and there are two or three."""


@dataclass(frozen=True)
class Refreshed:
    """The outcome of a refresh of all views."""

    stages: tuple[StageResult, ...]
    failures: dict[str, StrandlineError]
    """By table: the one that failed, and where views share it also theirs."""
    held: dict[str, ExpectationBroken] = field(default_factory=dict)
    """By table: what is wrong with its head, from which nothing is computed."""
    requests: Requests = field(default_factory=Requests, compare=False)
    """To object stores, by processes other than the one that asked for the refresh."""
    reached: dict[str, Reached] = field(default_factory=dict, compare=False)
    """By table: what it reflects now, of those whose vectors stay behind."""


_RACES: Final = (CommitConflict, VectorMismatch)
"""The errors of an attempt that met the commits of another one."""
_LOST: Final = (*_RACES, InputReplaced)
"""And one that may be so, or come of inputs that were compacted since this attempt saw them: a second look tells."""


def refresh_all(
    context: RunContext,
    levels: Sequence[Sequence[RefreshUnit]],
    stopped: frozenset[str],
    upto: Mapping[str, int] | None = None,
) -> Refreshed:
    """Bring every view to the present heads of its inputs. What another attempt has committed meanwhile is not made
    again.

    Args:
        stopped: tables that failed before and are left alone, with what depends on them.
        upto: version per table that is read, to stop there; others are read at their heads.
    """
    done = _Pass(context, levels, stopped, upto).run()
    for number in range(_AGAIN):
        errors = _LOST if number == 0 else _RACES
        lost = {table for table, error in done.failures.items() if isinstance(error, errors)}
        if not lost:
            break
        others = {table: error for table, error in done.failures.items() if table not in lost}
        again = _Pass(context, levels, stopped | others.keys(), upto).run()
        reached = done.reached | again.reached
        done = Refreshed((*done.stages, *again.stages), others | again.failures, again.held, reached=reached)
    return done


@dataclass(frozen=True)
class _Chosen:
    """What became free at once, and is to be computed.

    Attributes:
        untouched: the names of the units of which no row changes.
        ready: {unit: its epoch} of those that were computed with others.
    """

    untouched: frozenset[str]
    ready: Mapping[str, Epoch]


class _Pass:
    """One pass over all levels, of `refresh_all`.

    What comes from outside (event logs, tables of other pipelines) is read at one version throughout, so that the
    stages of a view agree on it. A unit begins when what it waits for is done, whatever else of the level before is
    still at work: where a level waits for its slowest, a core is idle.
    """

    def __init__(
        self, context: RunContext, levels: Levels, stopped: frozenset[str], upto: Mapping[str, int] | None
    ) -> None:
        self._context = context
        self._upto = upto
        self._levels = levels
        self._level = {id(unit): number for number, level in enumerate(levels) for unit in level}
        self._queue = Queue(levels)
        self._broken = dict.fromkeys(stopped, -1)
        """{table: the level at which it failed, or could not be refreshed}."""
        self._heads = Heads(context.lake, read_from_outside(levels), gated_in(levels))
        self._untouched = Untouched(context, self._heads) if upto is None else None
        self._reach = _Reach(self._heads, self._untouched)
        self._results: dict[int, Sequence[StageResult]] = {}
        self._failures: dict[str, StrandlineError] = {}
        self._held: dict[str, ExpectationBroken] = {}

    def run(self) -> Refreshed:
        running: dict[Future[list[StageResult] | StrandlineError], RefreshUnit] = {}
        with ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE, thread_name_prefix="refresh") as pool:
            while (free := self._queue.take()) or running:
                if free:
                    units, chosen = self._chosen(free)
                    running |= {pool.submit(self._one, unit, chosen): unit for unit in units}
                elif running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        self._end(running.pop(future), future.result())
        results = [each for level in self._levels for unit in level for each in self._results.get(id(unit), ())]
        return Refreshed(tuple(results), self._failures, self._held, reached=self._reach.noted())

    def _chosen(self, free: Sequence[RefreshUnit]) -> tuple[list[RefreshUnit], _Chosen]:
        """Those of the units that are to be computed. Of the others nothing is to be done."""
        whole = [unit for unit in free if not self._is_broken(unit)]
        for unit in free:
            if self._is_broken(unit):
                self._break(unit.target, unit)
                self._queue.done(unit)
        resting, untouched = ({}, frozenset[str]()) if self._untouched is None else self._untouched.find(whole)
        self._reach.rest(whole)
        for unit in whole:
            if unit.name in resting:
                self._results[id(unit)] = [resting[unit.name]]
                self._queue.done(unit)
        units = [unit for unit in whole if unit.name not in resting]
        touched = [unit for unit in units if unit.name not in untouched]
        return units, _Chosen(untouched, _computed_together(self._context, self._heads, touched, self._upto))

    def _is_broken(self, unit: RefreshUnit) -> bool:
        """True if a table that it reads or writes failed in an earlier level."""
        level = self._level[id(unit)]
        return any(self._broken.get(table, level) < level for table in (unit.target, *unit.inputs))

    def _break(self, table: str, unit: RefreshUnit) -> None:
        self._broken[table] = min(self._broken.get(table, len(self._levels)), self._level[id(unit)])

    def _one(self, unit: RefreshUnit, chosen: _Chosen) -> list[StageResult] | StrandlineError:
        untouched, ready = unit.name in chosen.untouched, chosen.ready.get(unit.name)
        try:
            done = _refresh(self._context, self._heads, unit, self._upto, untouched=untouched, ready=ready)
            wrong = approve(self._context.lake, self._heads, unit)
            if wrong is not None:
                self._held[unit.target] = wrong
            return done
        except StrandlineError as error:
            return error
        except Exception as error:  # a fault inside Spark: the view stops, typed, with the cause kept
            failed = RefreshFailed(
                sentence("view '{}' stopped: {}", Name(unit.name), _first_line(error)), where=unit.target
            )
            failed.__cause__ = error
            return failed

    def _end(self, unit: RefreshUnit, outcome: list[StageResult] | StrandlineError) -> None:
        if isinstance(outcome, StrandlineError):
            self._failures.update(dict.fromkeys((unit.target, *unit.serves), outcome))
            for table in (unit.target, *unit.serves):
                self._break(table, unit)
        else:
            self._results[id(unit)] = outcome
            self._reach.done(unit, outcome)
        self._queue.done(unit)


class _Reach:
    """What the tables of one pass reflect beyond their vectors: the heads of what they were refreshed from.

    Nothing is noted of a pass that stops at other versions: it has no `Untouched`.
    """

    def __init__(self, heads: Heads, untouched: Untouched | None) -> None:
        self._heads = heads
        self._untouched = untouched
        self._inputs: dict[str, dict[str, TableVersion]] = {}
        self._tables: dict[str, Head] = {}

    def rest(self, items: Sequence[RefreshUnit]) -> None:
        """Note those of the units that are not computed, since nothing touches them."""
        if self._untouched is None:
            return
        for item in items:
            for table, head in self._untouched.tables(item).items():
                self._add(item, table, head)

    def done(self, item: RefreshUnit, results: Sequence[StageResult]) -> None:
        """Note a unit that was refreshed. Where an input was not there, nothing was."""
        if self._untouched is None:
            return
        for result in results:
            head = self._heads.find(result.table) if result.to_vector else None
            if head is not None:
                self._add(item, result.table, head)
        self._untouched.done(item, results)

    def _add(self, item: RefreshUnit, table: str, head: Head) -> None:
        assert self._untouched is not None
        self._tables[table] = head
        for entry, before in head.record.vector.items():
            name = input_of(entry)
            if entry not in (name, f"{item.vector_prefix}/{name}"):
                continue  # of another query into the same stream
            newest = self._untouched.input(name)
            if newest is not None and newest.version > before.version:
                self._inputs.setdefault(table, {})[entry] = newest.at

    def noted(self) -> dict[str, Reached]:
        """By table; of a table that several queries feed, with the inputs of all of them."""
        found = {}
        for table, inputs in self._inputs.items():
            version, record = self._tables[table].version, self._tables[table].record
            found[table] = Reached(version, record.table, record.digest, record.fingerprint, inputs)
        return found


def _computed_together(
    context: RunContext, heads: Heads, items: Sequence[RefreshUnit], upto: Mapping[str, int] | None
) -> dict[str, Epoch]:
    """{unit: its epoch} of the units of one stage, without dead letters, that were computed with others."""
    if len(items) < together.FEWEST:
        return {}
    wanted = []
    for item in items:
        with suppress(StrandlineError):  # its own refresh says what is wrong with it
            stage = item.stages[-1]
            decision = decide(stage, item.options.errors, item.letters(stage), heads)
            if len(item.stages) == 1 and decision.aside is None:
                wanted.append(together.Wanted(item.name, decision.sound, item.owner(stage), item.options.refresh))
    return together.computed_together(context, heads, wanted, upto or {})


def _refresh(
    context: RunContext,
    heads: Heads,
    item: RefreshUnit,
    upto: Mapping[str, int] | None,
    *,
    untouched: bool,
    ready: Epoch | None,
) -> list[StageResult]:
    done: list[StageResult] = []
    for stage in item.stages:
        decision = decide(stage, item.options.errors, item.letters(stage), heads)
        owner, refresh = item.owner(stage), item.options.refresh
        done += refresh_decided(context, heads, decision, owner, refresh, upto=upto, untouched=untouched, ready=ready)
    return done


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


@dataclass(frozen=True)
class _Task:
    """What a worker is to do.

    Attributes:
        context: without session and DuckDB engine, which the worker has its own of.
        memory_mb: of the worker's DuckDB engine.
        arrangements: folder and bytes, see `state_store.arrangements.arrangements_in`.
        levels: as bytes, by which a worker that is used again knows that it has them.
    """

    context: RunContext
    memory_mb: int
    threads: int
    arrangements: tuple[Path | None, int]
    levels: bytes
    stopped: frozenset[str]


class RefreshTasks:
    """The refreshes of a pipeline, each of them one job of a session. To be kept from one refresh to the next."""

    def __init__(self, spark: SparkSession, context: RunContext, settings: Settings, levels: Levels) -> None:
        self._spark = spark
        self._context = context
        self._levels = levels
        slots = spark.sparkContext.defaultParallelism
        self._groups = groups(levels, slots)
        beside = max(1, min(slots, len(self._groups)))
        self._memory_mb = settings.kernel_memory_mb // beside
        self._arrangements = settings.arrangements_space
        self._threads = settings.kernel_threads or max(1, slots // beside)
        self._made: tuple[frozenset[str], frozenset[str], RDD[Refreshed]] | None = None

    def refresh(self, stopped: frozenset[str], waiting: frozenset[str] = frozenset()) -> Refreshed:
        """Bring every view but those that wait to the present heads of its inputs; see `refresh_all`."""
        wanted = [group for group in (without(each, waiting) for each in self._groups) if any(group)]
        if not wanted:
            return Refreshed((), {})
        # To describe a job to the JVM takes a fifth of what an empty one takes, and it is the same one each time.
        if self._made is None or self._made[:2] != (stopped, waiting):
            self._made = (stopped, waiting, self._job(wanted, stopped))
        done = self._made[2].collect()
        results = tuple(result for each in done for result in each.stages)
        failures = {name: error for each in done for name, error in each.failures.items()}
        held = {name: error for each in done for name, error in each.held.items()}
        requests = sum((each.requests for each in done), Requests())
        reached = {name: each for of_task in done for name, each in of_task.reached.items()}
        refused = {name for name, error in failures.items() if isinstance(error, EngineRefused)}
        if not refused or self._context.engine != "auto":
            return Refreshed(results, failures, held, requests, reached)
        left = {name: error for name, error in failures.items() if name not in refused}
        # Here there is a session: Spark runs what DuckDB cannot, and first refreshes are shared by tasks.
        rest = refresh_all(self._context, without(_behind(self._levels, refused), waiting), stopped | left.keys())
        failures, held, reached = left | rest.failures, held | rest.held, reached | rest.reached
        return Refreshed((*results, *rest.stages), failures, held, requests, reached)

    def warm_up(self) -> None:
        """As many tasks as a refresh has, with nothing to do."""
        if self._groups:
            self._job([()] * len(self._groups), frozenset()).collect()

    def _job(self, wanted: Sequence[Levels], stopped: frozenset[str]) -> RDD[Refreshed]:
        """A job with a task for each of these groups; it runs as often as its results are collected."""
        bare = replace(self._context, sessions=None, duckdb_engine=None)
        tasks = [
            _Task(bare, self._memory_mb, self._threads, self._arrangements, pickle.dumps(group), stopped)
            for group in wanted
        ]
        return self._spark.sparkContext.parallelize(tasks, len(tasks)).map(run_task)


def in_tasks(settings: Settings) -> bool:
    """True if refreshes are made in tasks, once there is a session."""
    return settings.engine != "spark" and settings.kernel == "tasks"


def warm_up(spark: SparkSession, context: RunContext, settings: Settings, levels: Levels) -> None:
    """Start the workers, with their imports and DuckDB engines: the first refresh would wait seconds for them."""
    if in_tasks(settings):
        RefreshTasks(spark, context, settings, levels).warm_up()


def run_task(task: _Task) -> Refreshed:
    """A task, in a worker."""
    engine = process_engine(task.context.writer, task.memory_mb, task.threads, task.arrangements)
    context = replace(task.context, duckdb_engine=engine)
    before = REQUESTS.so_far()  # a worker does one task at a time
    done = refresh_all(context, _levels(task.levels), task.stopped)
    return replace(done, requests=REQUESTS.since(before))


def groups(levels: Levels, most: int) -> list[Levels]:
    """The levels cut into groups of which none reads or writes what another writes; the smallest go together.

    Args:
        most: groups that are useful side by side.
    """
    written = {item.target for level in levels for item in level}
    homes: list[set[str]] = []
    for item in (item for level in levels for item in level):
        tables = {item.target, *item.inputs} & written
        met = [home for home in homes if home & tables]
        homes = [home for home in homes if not home & tables] + [tables.union(*met)]
    while len(homes) > most:
        homes.sort(key=len)
        homes = [homes[0] | homes[1], *homes[2:]]
    return [[[item for item in level if item.target in home] for level in levels] for home in homes]


def _behind(levels: Levels, targets: set[str]) -> Levels:
    """What maintains these tables, or reads them, or what reads them."""
    found, reached = [], set(targets)
    for level in levels:
        taken = [item for item in level if {item.target, *item.inputs} & reached]
        reached |= {item.target for item in taken}
        found.append(taken)
    return found


# What was made of a stage in the epoch before is kept with it (`jobs.model.stage`), so it must be the same object. A
# worker does the tasks of a few groups by turns.
@lru_cache(maxsize=16)
def _levels(pickled: bytes) -> Levels:
    levels: Levels = pickle.loads(pickled)  # noqa: S301  (the driver's)
    return levels
