"""The refresh of a pipeline in Spark's tasks: one job, and in each task DuckDB refreshes views that hang together.

    levels ──hang together──> groups ──a task each──> refresh_all by the worker's DuckDB ──> results
                                                        └─ what it leaves to Spark ──> refresh_all in the session

Spark schedules the tasks, starts them again and shows them. A task that runs twice, one after the other or side by
side, commits nothing twice: an epoch follows the one before it, and of two writers of a version the first one wins; the
other goes on from there (see `refresh_views`).
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.errors import EngineRefused
from strandline.jobs.run.refresh_views import Refreshed, refresh_all
from strandline.jobs.run.schedule import Levels, without
from strandline.state_store.duckdb.engine import process_engine
from strandline.state_store.storage_verbs import REQUESTS, Requests

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark import RDD
    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings


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
