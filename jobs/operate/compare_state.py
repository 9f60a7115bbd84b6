"""The state strategies compared on a view of the lake: what each stores, and what an epoch and a read cost.

    inputs of the view ──copied──> scratch lake, its newest commits taken back
                                       │  one strategy after the other: full, shared, partial
                                       v
                        first load ──> a commit comes back, the view follows: an epoch ──> … ──> reads by key

The three are those of the literature on state stores: full state (Flink), shared state (Differential Dataflow,
Materialize), partial state (Noria). All give the same rows, which is checked. The live lake is only read.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import visible_relation
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import EngineRefused, UnknownName
from strandline.jobs.operate.recovery.ground import copy_tables, rolled_back
from strandline.jobs.operate.verify.difference import difference
from strandline.jobs.operate.verify.findings import sized
from strandline.jobs.operate.verify.tables import oldest_base
from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.partial.pull import Upqueries
from strandline.jobs.partial.view import PartialView
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared import shared_tables
from strandline.state_store.delta import log, reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.model.definitions import State
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.partial.pull import Key
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.paths import LakePath

STRATEGIES: Final[tuple[State, ...]] = ("full", "shared", "partial")

EPOCHS: Final = 10
"""Commits of the inputs that are taken in one by one, unless it is said how many: enough for a median."""
_READS: Final = 50
"""Keys that are read: the median of fifty is stable to a few percent."""
_WARM_SECONDS: Final = 10.0
"""Of a first load that takes longer, the second or so for libraries is no part that anybody compares by."""
_PREFIX: Final = "strandline-compare-"
_BESIDE: Final = 4
"""Versions of a log that are looked through for each commit that changes rows: the others merge files."""
_BAR: Final = 30
"""Characters of the longest bar of the chart."""


@dataclass(frozen=True)
class StateCost:
    """The cost of one strategy; what was not measured is None.

    Attributes:
        refused: why the view cannot be kept in this way; empty if it can.
        rows: of the view; None of partial state, which stores none.
        stored_bytes: files of the view and of its inner stages.
        reused: inner stages that other views of the lake keep already: with them, these bytes cost nothing more.
        memory_bytes: of the keys that were read, in a reader of partial state.
        load_seconds: the first refresh, over all rows of the inputs.
        epoch_seconds: the median of the epochs; of partial state, what a reader takes to drop the touched keys.
        read_seconds: a look-up of one key that is there.
        computed_seconds: a look-up of one key that partial state must compute.
        differs: how its rows differ from those of full state; empty when they do not.
    """

    state: State
    refused: str = ""
    rows: int | None = None
    stored_bytes: int | None = None
    reused: tuple[str, ...] = ()
    memory_bytes: int | None = None
    load_seconds: float | None = None
    epoch_seconds: float | None = None
    read_seconds: float | None = None
    computed_seconds: float | None = None
    differs: str = ""


@dataclass(frozen=True)
class Comparison:
    """All strategies of one view; its text is a table and a chart.

    Attributes:
        epochs: commits of the inputs that were taken in one by one.
        changes: rows inserted and deleted in these commits.
    """

    view: str
    epochs: int
    changes: int
    costs: tuple[StateCost, ...]

    @property
    def equal(self) -> bool:
        """True if no strategy gives other rows."""
        return not any(each.differs for each in self.costs)

    def as_json(self) -> list[dict[str, Any]]:
        """One object for each strategy."""
        about = {"view": self.view, "epochs": self.epochs, "changes": self.changes}
        return [{**about, **asdict(each)} for each in self.costs]

    def __str__(self) -> str:
        lines = [
            f"{self.view}: {self.epochs} epochs, {self.changes:,} changed rows of its inputs",
            "",
            f"{'state':<8} {'rows':>10} {'stored':>10}"
            + "".join(f" {each:>11}" for each in ("first load", "an epoch", "a read", "computed")),
            *(_line(each) for each in self.costs),
        ]
        notes = [f"{each.state}: {said}" for each in self.costs for said in _notes(each)]
        return "\n".join([*lines, "", *notes, *([""] if notes else []), *_chart(self.costs)])


def compare_state(settings: Settings, name: str, *, epochs: int = EPOCHS, scratch: Path | None = None) -> Comparison:
    """Keep a view in each way over a copy of its inputs, and measure. The copy is removed at the end.

    Args:
        epochs: the most commits of the inputs that are taken in one by one.
        scratch: an existing folder for the copy; best on the lake's own disk, where files need no copying. Default:
            the system's temporary folder.

    Raises:
        UnknownName: there is no such view.
        TableMissing: an input has no commit yet.
        CorruptState, ForeignWrite, VersionGone: an input is broken.
        SqlError: the view's query no longer fits its inputs.
    """
    live = LakeLayout(settings.lake)
    catalog = Catalog(live)
    view = catalog.find(name)
    if not isinstance(view, View):
        views = [catalog.name_map.of(each.name) for each in catalog.definitions() if isinstance(each, View)]
        raise UnknownName.among("view", name, views)
    costs: list[StateCost] = []
    rows: pa.Table | None = None
    counted = (0, 0)
    # What runs first also loads libraries and starts an engine: where that matters, it is run once before it counts.
    for state in ("full", *STRATEGIES):
        if len(costs) == 1 and (costs[0].load_seconds or 0.0) > _WARM_SECONDS:
            continue
        with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=scratch) as folder:
            trial = _Trial(settings, view, state, Path(folder), epochs)
            counted = trial.counted
            try:
                if state == "partial":
                    costs.append(trial.partial(rows))
                else:
                    cost, rows = trial.stored(rows)
                    costs.append(cost)
            except EngineRefused as error:
                costs.append(StateCost(state, f"it needs Spark: {error.message}"))
    return Comparison(name, *counted, tuple(costs[-len(STRATEGIES) :]))


class _Trial:
    """One strategy over a copy of the inputs."""

    def __init__(self, settings: Settings, view: View, state: State, folder: Path, epochs: int) -> None:
        self._settings = settings
        self._state = state
        self._live = Catalog(LakeLayout(settings.lake))
        self._view = replace(view, options={**view.options, "STATE": state})
        self._lake = copy_tables(LakeLayout(settings.lake), view.inputs, folder)
        self._catalog = Catalog(self._lake)
        self._library = Library(self._catalog.functions.values(), settings.functions.modules)
        self._inputs = _Inputs([_on_disk(self._lake, each) for each in view.inputs], epochs)
        self.counted = (self._inputs.epochs, self._inputs.changes)

    def stored(self, expected: pa.Table | None) -> tuple[StateCost, pa.Table]:
        """The cost of full or shared state, and the rows.

        Args:
            expected: the rows that another strategy gave.
        """
        planned = maintained([self._view], self._catalog)
        levels = [[replace(item, blocking=(), gated=frozenset()) for item in level] for level in planned]
        with DuckDBEngine(*self._settings.kernel_size) as engine:
            context = RunContext(None, self._lake, f"compare/{os.getpid()}", self._library, engine, "duckdb")
            follow = partial(_refresh, context, levels)
            load = _seconds(follow)
            epoch = _median(_seconds(follow) for _ in self._inputs.come_back())
        rows = reader.read_rows(self._lake.table(self._view.name))
        kept = [stage.table for level in levels for item in level for stage in item.stages]
        paths = [self._lake.table(each) for table in kept for each in (table, tables.dead_letters(table))]
        cost = StateCost(
            self._state,
            rows=rows.num_rows,
            stored_bytes=sum(reader.size_bytes(each) for each in paths if reader.head(each) is not None),
            reused=tuple(table for table in kept if table in self._kept_by_others()),
            load_seconds=load,
            epoch_seconds=epoch,
            read_seconds=self._look_up(rows),
            differs="" if expected is None else difference(expected, rows),
        )
        return cost, rows

    def partial(self, expected: pa.Table | None) -> StateCost:
        """The cost of partial state.

        Args:
            expected: the rows that another strategy gave, of which some keys are read.
        """
        try:
            plan = partial_plan(self._view, self._catalog)
        except StrandlineError as error:
            return StateCost("partial", error.message)
        upqueries = Upqueries(plan, self._lake, self._library)
        opened = partial(PartialView, plan, self._lake, upqueries, self._view.maintenance.cache_bytes)
        keys = [] if expected is None else _some_of(expected, plan.key)
        following = opened()
        following.read(keys)
        epoch = _median(_seconds(following.advance) for _ in self._inputs.come_back())
        cold = opened()
        cold.advance()
        computed = _median(_seconds(partial(cold.read, [key])) for key in keys)
        read = _median(_seconds(partial(cold.kept, [key])) for key in keys)
        return StateCost(
            "partial",
            stored_bytes=0,
            memory_bytes=cold.counts.bytes,
            epoch_seconds=epoch,
            read_seconds=read,
            computed_seconds=computed,
            differs="" if expected is None else _differing(expected, following, keys),
        )

    def _kept_by_others(self) -> frozenset[str]:
        others = (each for each in self._live.definitions() if isinstance(each, View) and each.name != self._view.name)
        return frozenset(table for each in others for table in shared_tables(each, self._live))

    def _look_up(self, rows: pa.Table) -> float | None:
        """The seconds of a look-up by key in a replica in memory; None of a view without a visible key."""
        key = visible_relation(self._view).key
        if not key:
            return None
        table = self._lake.table(self._view.name)
        replica = Replica(self._view.name, MemoryStore(), Layout(reader.schema(table), key))
        Follower(table, replica, "compare").catch_up()
        with replica.reading() as now:
            return _median(_seconds(partial(now.get, each)) for each in _some_of(rows, key))


class _Inputs:
    """The inputs of a view in a scratch lake: their newest commits are taken back, and come back one at a time.

    Args:
        paths: the folders of the tables.
        most: commits with changed rows that are taken back, of all tables together; each keeps its first one.

    Attributes:
        epochs: how many were taken back.
        changes: the rows that they insert and delete.

    Raises:
        TableMissing: an input has no commit.
    """

    def __init__(self, paths: Sequence[Path], most: int) -> None:
        commits = [(each, path) for path in paths for each in _newest(path, most)]
        newest = sorted(commits, key=lambda each: (each[0].timestamp, each[0].version))[-most:] if most else []
        self.epochs = len(newest)
        self.changes = sum(_changed(each) for each, _ in newest)
        self._steps = [(path, each.version) for each, path in newest]
        self._entries: dict[Path, dict[int, bytes]] = {}
        for path in {path for path, _ in self._steps}:
            first = min(version for each, version in self._steps if each == path)
            newer = (version for version in log.versions(path) if version >= first)
            self._entries[path] = {version: _entry(path, version).read_bytes() for version in newer}
            rolled_back(path, first - 1)

    def come_back(self) -> Iterator[None]:
        """Put the commits back, one for each step, with those beside them that change no row."""
        for path, version in self._steps:
            for each in sorted(self._entries[path]):
                if each <= version:
                    _entry(path, each).write_bytes(self._entries[path].pop(each))
            yield


def _newest(path: LakePath, most: int) -> list[Commit]:
    """The newest commits of a table that change rows; its first one is not among them."""
    newest = log.newest_version(path)
    base = None if newest is None else oldest_base(path, newest)
    if newest is None or base is None:
        raise log.missing(path)
    begin = max(base, newest - most * _BESIDE)
    found = [each for each in log.read_history(path, begin, newest) if _changed(each)]
    return found if begin >= 0 else found[1:]


def _entry(path: Path, version: int) -> Path:
    file = log.commit_file(path, version)
    assert isinstance(file, Path), "a copy lies on this machine's disk"
    return file


def _on_disk(lake: LakeLayout, table: str) -> Path:
    path = lake.table(table)
    assert isinstance(path, Path), "a copy lies on this machine's disk"
    return path


def _changed(commit: Commit) -> int:
    return 0 if commit.record is None else commit.record.inserted + commit.record.deleted


def _refresh(context: RunContext, levels: Sequence[Sequence[RefreshUnit]]) -> None:
    for error in refresh_all(context, levels, frozenset()).failures.values():
        raise error


def _some_of(rows: pa.Table, key: Sequence[str]) -> list[Key]:
    """Some keys of these rows, the same ones each time."""
    keys = sorted({tuple(row.values()) for row in rows.select(list(key)).to_pylist()}, key=repr)
    return Random(1).sample(keys, min(_READS, len(keys)))  # noqa: S311 — not a secret


def _differing(expected: pa.Table, view: PartialView, keys: Sequence[Key]) -> str:
    """How the rows of some keys differ from those that are expected."""
    import pyarrow as pa

    wanted, key = set(keys), view.plan.key
    mask = [tuple(row.values()) in wanted for row in expected.select(list(key)).to_pylist()]
    found = [row for rows in view.read(keys).rows for row in rows]
    return difference(expected.filter(pa.array(mask, pa.bool_())), pa.Table.from_pylist(found, schema=view.plan.schema))


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _median(taken: Iterable[float]) -> float | None:
    """The median; None of nothing."""
    found = list(taken)
    return statistics.median(found) if found else None


# The text of a comparison: a table, then a bar for each epoch.


def _line(cost: StateCost) -> str:
    cells = (
        "" if cost.rows is None else f"{cost.rows:,}",
        "" if cost.stored_bytes is None else sized(cost.stored_bytes) if cost.stored_bytes else "nothing",
        *map(_time, (cost.load_seconds, cost.epoch_seconds, cost.read_seconds, cost.computed_seconds)),
    )
    return f"{cost.state:<8} {cells[0]:>10} {cells[1]:>10}" + "".join(f" {each:>11}" for each in cells[2:])


def _notes(cost: StateCost) -> Iterator[str]:
    if cost.refused:
        yield cost.refused
    if cost.reused:
        yield f"other views keep {len(cost.reused)} of its inner stages already"
    if cost.memory_bytes is not None:
        yield f"a reader that has read {_READS} keys at most keeps {sized(cost.memory_bytes)} in memory"
    if cost.differs:
        yield f"ITS ROWS DIFFER: {cost.differs}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return (
        f"{seconds:,.2f} s"
        if seconds >= 1
        else f"{seconds * 1e3:.1f} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.0f} µs"
    )


def _chart(costs: Sequence[StateCost]) -> Iterator[str]:
    measured = [(each.state, each.epoch_seconds) for each in costs if each.epoch_seconds is not None]
    longest = max((seconds for _, seconds in measured), default=0.0)
    if longest:
        yield "an epoch"
        for state, seconds in measured:
            yield f"{state:<8} {'█' * max(1, round(seconds / longest * _BAR)):<{_BAR}} {_time(seconds)}"
