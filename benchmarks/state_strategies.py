"""The three state strategies side by side: what is stored, what an epoch costs, how fast a key is read.

    python -m benchmarks.state_strategies [--events 200000] [--changes 1000] [--epochs 7] [--keys 100000]
                                          [--reads 400000] [--write docs/state.md] [--note TEXT]

Two workloads, each under STATE = full, shared and partial, over the same history: the article's query (category → its
products in `info` → their visits), and ten views over that join. Then a Zipf mix of reads of a view with one row for
each key, of which a reader keeps a third of the bytes that all keys take in the same form. All of it in this process,
by DuckDB; a stored view is read from a replica in memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.histories import PIPELINE, PRODUCTS, History
from benchmarks.shared_views import arrangements, views
from benchmarks.strategy_page import Measured, Mix, written
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import View
from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.partial.pull import Key, Upqueries
from strandline.jobs.partial.view import PartialView
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import RefreshUnit
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore

STATES = ("full", "shared", "partial")
WARM_UP = 2
READS = 50
"""Of each kind, different keys each time; the median counts."""
LIST = 500
"""The keys of one request of the Zipf mix."""
SKEW = 1.1
"""The exponent of the Zipf mix: key n of all is read in proportion to n ** -1.1."""
SHARE = 1 / 3
"""Of the bytes of all keys, what a reader of the mix may keep."""
MIX = (
    "CREATE MATERIALIZED VIEW mixed WITH (STATE='partial') AS"
    " SELECT product, user, COUNT(*) AS visits, SUM(length) AS total FROM visit GROUP BY product, user;"
)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    events: int
    changes: int
    epochs: int
    keys: int
    reads: int


def main() -> None:
    """Measure, print, and write the page's part if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, most in (("events", 200_000), ("changes", 1_000), ("epochs", 7), ("keys", 100_000), ("reads", 400_000)):
        parser.add_argument(f"--{name}", type=int, default=most)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--note", default="nothing else ran", help="what else the machine did meanwhile")
    asked = parser.parse_args()
    size = Size(asked.events, asked.changes, asked.epochs, asked.keys, asked.reads)
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory() as folder, DuckDBEngine("1000MB", 2) as duckdb_engine:
        for workload, count in (("the article's query", 1), ("ten views over the join", 10)):
            for state in STATES:
                root = Path(folder) / f"{count}-{state}"
                measured.append(
                    _measured(workload, state, History.begin(root, views(count, state), size.keys), size, duckdb_engine)
                )
                print(measured[-1], flush=True)
        history = History.begin(Path(folder) / "mix", MIX, size.keys)
        mix = _mixed(history, size, duckdb_engine)
    print(mix)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; {asked.note}"
    text = written(measured, mix, f"{size.events:,} events, epochs of {size.changes:,} changes; {machine}")
    print(text)
    if asked.write is not None:
        head = asked.write.read_text().split("<!-- measured", 1)[0].rstrip()
        asked.write.write_text(f"{head}\n\n{text}")


def _measured(workload: str, state: str, history: History, size: Size, duckdb_engine: DuckDBEngine) -> Measured:
    """One workload under one strategy."""
    history.add(size.events)
    for level in history.levels():
        _refresh(history, level, duckdb_engine)
    keys: list[Key] = [(f"c{number}",) for number in range(READS)]
    if state == "partial":
        view = _opened(history, "view_0")
        miss = _median(partial(view.read, [key]) for key in keys)
        hit = _median(partial(view.kept, [key]) for key in keys)
        stored = view.counts.bytes
        return Measured(workload, state, stored, _epoch(history, size, duckdb_engine, view.advance), hit, miss)

    def refresh() -> None:
        for level in history.levels()[1:]:
            _refresh(history, level, duckdb_engine)

    epoch = _epoch(history, size, duckdb_engine, refresh)
    with _replica(history, "view_0").reading() as now:
        hit = _median(partial(now.get, key) for key in keys)
    return Measured(workload, state, _stored(history), epoch, hit, None)


def _epoch(history: History, size: Size, duckdb_engine: DuckDBEngine, follow: Callable[[], object]) -> float:
    """The median seconds in which something follows an epoch's changes, once the sources hold them."""
    seconds = []
    for _ in range(WARM_UP + size.epochs):
        history.add(size.changes)
        _refresh(history, history.levels()[0], duckdb_engine)
        seconds.append(_median([follow]))
    return statistics.median(seconds[WARM_UP:])


def _refresh(history: History, level: Sequence[RefreshUnit], duckdb_engine: DuckDBEngine) -> None:
    context = RunContext(None, history.lake, f"{PIPELINE}/1", duckdb_engine=duckdb_engine, engine="duckdb")
    for failure in refresh_all(context, [level], frozenset()).failures.values():
        raise failure


def _stored(history: History) -> int:
    """The bytes of the files of all views and of their inner tables."""
    own = [each.name for each in history.interpreter.catalog.definitions() if isinstance(each, View)]
    tables = [*own, *(name for name, _ in arrangements(history))]
    return sum(reader.size_bytes(history.lake.table(name)) for name in tables)


def _opened(history: History, name: str, budget: int = 1 << 40) -> PartialView:
    catalog = history.interpreter.catalog
    definition = catalog.get(name)
    assert isinstance(definition, View)
    plan = partial_plan(definition, catalog)
    return PartialView(plan, history.lake, Upqueries(plan, history.lake, Library((), ())), budget)


def _replica(history: History, name: str) -> Replica:
    table = history.lake.table(name)
    definition = history.interpreter.catalog.get(name)
    assert isinstance(definition, View)
    replica = Replica(name, MemoryStore(), Layout(reader.schema(table), definition.row_key))
    Follower(table, replica, "bench").catch_up()
    return replica


def _median(calls: Iterable[Callable[[], object]]) -> float:
    """The median seconds of some calls."""
    taken = []
    for call in calls:
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _mixed(history: History, size: Size, duckdb_engine: DuckDBEngine) -> Mix:
    """The Zipf mix of reads; what the first half of it reads fills the cache, the second half counts."""
    history.add(size.events)
    _refresh(history, history.levels()[0], duckdb_engine)
    keys: list[Key] = [(f"p{n % PRODUCTS}", f"u{n // PRODUCTS}") for n in range(size.keys)]
    full = _all_bytes(history, keys)
    view = _opened(history, "mixed", int(full * SHARE))
    Random(1).shuffle(keys)
    weights = [(rank + 1) ** -SKEW for rank in range(len(keys))]
    drawn = Random(2).choices(keys, weights, k=size.reads)
    lists = [drawn[at : at + LIST] for at in range(0, len(drawn), LIST)]
    for each in lists[: len(lists) // 2]:
        view.read(each)
    before = view.counts
    for each in lists[len(lists) // 2 :]:
        view.read(each)
    after = view.counts
    hits, misses = after.hits - before.hits, after.misses - before.misses
    return Mix(len(keys), SKEW, full, after.bytes, hits / (hits + misses), after.evictions)


def _all_bytes(history: History, keys: Sequence[Key]) -> int:
    """The bytes of all keys in the form that a reader keeps them in: what a cache of the whole view takes."""
    view = _opened(history, "mixed")
    for at in range(0, len(keys), 10_000):
        view.read(keys[at : at + 10_000])
    return view.counts.bytes


if __name__ == "__main__":
    main()
