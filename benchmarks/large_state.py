"""What is larger than memory, hot, or of very many keys: does it drain, in how much memory, and is it right?

    python -m benchmarks.large_state [--cases hot keys lake] [--gigabytes 20]

    hot    5,000,000 rows, nine of ten of one key: COUNT, SUM and MAX per key, and per name of the key by a join; then
           1,000 rows more, and the hot key gets another name
    keys   10,000,000 events of as many keys: COUNT and SUM per key; then 1,000 events more
    lake   a keyed table of rows of 1,000 bytes that hardly compress, and a view: log and tables are `--gigabytes`; then
           1,000 rows are replaced

Everything lies in the event logs before the first refresh, which a run's tasks do, with a run's settings: 2 GB for the
kernel (STRANDLINE_KERNEL_MEMORY_MB) and 2 GB for Spark's JVM (STRANDLINE_SPARK__DRIVER_MEMORY). Printed are the
seconds of the first refresh and of the one after it, the size of the lake, and the most memory that this process, the
JVM and the workers held together. Counts and sums are compared with those of what was put in.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.histories import PIPELINE, History
from benchmarks.measuring.peak_memory import PeakMemory
from strandline.jobs.catalog.relations import event_log
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.refresh_views import RefreshTasks
from strandline.jobs.run.spark import spark_session
from strandline.state_store.delta import reader
from strandline.state_store.paths import sizes_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART: Final = 500_000
"""Events of a commit of an event log."""
_WIDTH: Final = 1_000
_WIDE_PART: Final = 100_000
_GIGABYTE: Final = 1_000_000_000

Events = Iterator[dict[str, pa.Table]]
"""The commits, in order: {source: its events}."""


@dataclass(frozen=True)
class Case:
    """A lake to be filled, and what must come out.

    Attributes:
        events: the commits of a lake that is to be of so many gigabytes.
        changes: one more commit, for an epoch after the first refresh.
        check: raises AssertionError unless the views of the history are right.
    """

    statements: str
    events: Callable[[float], Events]
    changes: Callable[[], dict[str, pa.Table]]
    check: Callable[[History], None]


def main() -> None:
    """Drain each case, and print its line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the lake of the case 'lake'")
    asked = parser.parse_args()
    print(f"{'':<6} {'events':>12} {'lake GB':>8} {'first s':>8} {'next s':>8} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.cases:
            print(drained(name, Path(folder) / name, asked.gigabytes), flush=True)


def drained(name: str, root: Path, gigabytes: float) -> str:
    """Fill the lake of a case, refresh it, refresh it again after 1,000 changes; the line of the table.

    Raises:
        AssertionError: a view is not right.
        StrandlineError: it did not drain.
    """
    case = CASES[name]
    history = History.over(root, case.statements)
    events = sum(append(history, commit) for commit in case.events(gigabytes))
    with PeakMemory() as peak, spark_session(load_settings().spark, "bench-large") as spark:
        first = refresh(spark, history)
        append(history, case.changes())
        small = refresh(spark, history)
    case.check(history)
    size = sum(sizes_below(root).values()) / _GIGABYTE
    return f"{name:<6} {events:>12,} {size:>8.1f} {first:>8.1f} {small:>8.2f} {peak.megabytes:>8,.0f}"


def append(history: History, commit: dict[str, pa.Table]) -> int:
    """Append to the event logs; the events."""
    for name, events in commit.items():
        source = history.interpreter.catalog.get(name)
        assert isinstance(source, Source)
        history.append(event_log(source), events)
    return sum(events.num_rows for events in commit.values())


def refresh(spark: SparkSession, history: History) -> float:
    """Bring every view to the heads of the logs as a run does; the seconds it took.

    Raises:
        StrandlineError: a view could not be refreshed.
    """
    began = time.monotonic()
    settings = load_settings(lake=history.lake.root)
    context = RunContext(None, history.lake, f"{PIPELINE}/1")
    for failure in RefreshTasks(spark, context, settings, history.levels()).refresh(frozenset()).failures.values():
        raise failure
    return time.monotonic() - began


# ---------------------------------------------------------------- a hot key

_HOT_EVENTS: Final = 5_000_000
_HOT_KEYS: Final = 10_000


def _hot_events(_: float) -> Events:
    yield {"town": pa.table({"key": np.arange(_HOT_KEYS), "name": pa.array(f"town {n}" for n in range(_HOT_KEYS))})}
    for first in range(0, _HOT_EVENTS, PART):
        yield {"sale": _hot_sales(first, PART)}


def _hot_sales(first: int, count: int) -> pa.Table:
    number = np.arange(first, first + count)
    key = np.where(number % 10 == 0, number // 10 % _HOT_KEYS, 0)
    return pa.table({"id": number, "key": key, "amount": number % 1_000})


def _check_hot(history: History) -> None:
    totals = reader.read_rows(history.lake.table("totals"))
    events = _HOT_EVENTS + 1_000
    expected = sum(pc.sum(_hot_sales(first, count)["amount"]).as_py() for first, count in _parts(_HOT_EVENTS, 1_000))
    assert (pc.sum(totals["n"]).as_py(), pc.sum(totals["total"]).as_py()) == (events, expected)
    assert pc.max(totals["n"]).as_py() > 0.9 * events
    named = dict(
        zip(*reader.read_rows(history.lake.table("named")).select(["name", "n"]).to_pydict().values(), strict=True)
    )
    assert sum(named.values()) == events
    assert "town 0" not in named
    assert named["hot"] == pc.max(totals["n"]).as_py()


def _parts(events: int, more: int) -> Iterator[tuple[int, int]]:
    yield from ((first, PART) for first in range(0, events, PART))
    yield events, more


# ---------------------------------------------------------------- very many keys

_KEYS: Final = 10_000_000


def _key_events(_: float) -> Events:
    for first in range(0, _KEYS, PART):
        yield {"sale": pa.table({"key": _scattered(np.arange(first, first + PART)), "amount": np.full(PART, 7)})}


def _scattered(numbers: np.ndarray) -> np.ndarray:
    """Each number once, in no order: an odd factor permutes the numbers below a power of two, and so does a shift."""
    return numbers * 2_654_435_761 % (1 << 40)


def _check_keys(history: History) -> None:
    rows = reader.read_rows(history.lake.table("totals"))
    assert rows.num_rows == _KEYS
    assert pc.sum(rows["n"]).as_py() == _KEYS + 1_000
    assert pc.sum(rows["total"]).as_py() == 7 * (_KEYS + 1_000)


# ---------------------------------------------------------------- larger than memory


def _wide_events(gigabytes: float) -> Events:
    # The rows lie in the log and in the table.
    for first in range(0, int(gigabytes * _GIGABYTE / 2 / _WIDTH), _WIDE_PART):
        yield {"wide": _wide(first, _WIDE_PART)}


def _wide(first: int, count: int) -> pa.Table:
    """Rows with a text of printable bytes by chance, of which compression gains a fifth at most."""
    drawn = np.random.default_rng(first).integers(33, 127, count * _WIDTH, dtype=np.uint8)
    ends = pa.py_buffer(np.arange(0, count * _WIDTH + 1, _WIDTH, dtype=np.int32))
    payload = pa.StringArray.from_buffers(count, ends, pa.py_buffer(drawn))
    number = np.arange(first, first + count)
    return pa.table({"id": number, "kind": number % 1_000, "payload": payload})


def _check_wide(history: History) -> None:
    kinds = reader.read_rows(history.lake.table("kinds"))
    rows = pc.sum(kinds["n"]).as_py()
    # The changes replaced the first rows.
    head = reader.head(history.lake.table("wide"))
    assert head is not None
    assert rows == head.record.rows
    assert pc.sum(kinds["bytes"]).as_py() == rows * _WIDTH
    assert kinds.num_rows == 1_000


CASES: Final = {
    "hot": Case(
        """
        CREATE TABLE town (key BIGINT PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='town', PARTITIONS=1);
        CREATE TABLE sale (id BIGINT PRIMARY KEY, key BIGINT, amount BIGINT) WITH (KAFKA_TOPIC='sale', PARTITIONS=1);
        CREATE MATERIALIZED VIEW totals AS
          SELECT key, COUNT(*) AS n, SUM(amount) AS total, MAX(amount) AS most FROM sale GROUP BY key;
        CREATE MATERIALIZED VIEW named AS
          SELECT name, COUNT(*) AS n, MAX(amount) AS most FROM sale JOIN town ON sale.key = town.key GROUP BY name;
        """,
        _hot_events,
        lambda: {"sale": _hot_sales(_HOT_EVENTS, 1_000), "town": pa.table({"key": [0], "name": ["hot"]})},
        _check_hot,
    ),
    "keys": Case(
        """
        CREATE STREAM sale (key BIGINT, amount BIGINT) WITH (KAFKA_TOPIC='sale', PARTITIONS=1);
        CREATE MATERIALIZED VIEW totals AS SELECT key, COUNT(*) AS n, SUM(amount) AS total FROM sale GROUP BY key;
        """,
        _key_events,
        lambda: {"sale": pa.table({"key": _scattered(np.arange(1_000) * 9_973), "amount": np.full(1_000, 7)})},
        _check_keys,
    ),
    "lake": Case(
        """
        CREATE TABLE wide (id BIGINT PRIMARY KEY, kind BIGINT, payload VARCHAR)
          WITH (KAFKA_TOPIC='wide', PARTITIONS=1);
        CREATE MATERIALIZED VIEW kinds AS
          SELECT kind, COUNT(*) AS n, SUM(LENGTH(payload)) AS bytes FROM wide GROUP BY kind;
        """,
        _wide_events,
        lambda: {"wide": _wide(0, 1_000)},
        _check_wide,
    ),
}


if __name__ == "__main__":
    main()
