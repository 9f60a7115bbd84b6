"""What a commit costs, and how much of it is flushing.

    python -m benchmarks.commits [--rows 1000000] [--changes 1000] [--commits 200] [--folder DIR]

A keyed table of `--rows` rows in one data file. Each commit replaces `--changes` of them, whose positions are known, as
an engine that carries them along hands them over: files of new rows, positions that go, a record. No Spark. First with
every flush, then with `fsync` doing nothing.

    stage      the file of new rows is written (Arrow, Parquet)
    snapshot   the table's files are read from the last checkpoint and the commits since
    data       its footer and checksum are read, and it is flushed with its folder
    vectors    the vectors of the rows that go are written and flushed
    entry      the log entry is written, named and flushed
    checkpoint every 50th commit
    commit     all but stage
    flushes    what of it `fsync` took
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from deltalake import Schema
from pyroaring import BitMap64

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import commit, log
from strandline.state_store.delta.commit import create_table, make_checkpoint, new_table_id
from strandline.state_store.delta.data_files import Staged, stage_rows
from strandline.state_store.delta.deletion_vectors import write_vectors
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.tablespec import TableSpec

SCHEMA = pa.schema([("k", pa.int64()), ("category", pa.string()), ("total", pa.float64())])
SPEC = TableSpec("t", (("k", "BIGINT"), ("category", "STRING"), ("total", "DOUBLE")), "keyed", ("k",))
# The first commits pay for imports.
WARM_UP = 5
PARTS = ("stage", "snapshot", "data", "vectors", "entry", "checkpoint", "flushes", "commit")


@dataclass
class Clock:
    """Seconds by part, one number for each commit."""

    now: dict[str, float] = field(default_factory=dict)
    parts: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, its time added to a part."""

        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                self.now[part] = self.now.get(part, 0.0) + time.perf_counter() - began

        return timed

    def next(self) -> None:
        """The end of a commit."""
        for part, seconds in self.parts.items():
            seconds.append(self.now.get(part, 0.0))
        self.now = {}


def main() -> None:
    """Measure with and without flushes, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to be measured; default: the system's own")
    asked = parser.parse_args()
    for flushes in (True, False):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            report(measure(Path(folder), asked.rows, asked.changes, asked.commits, flushes=flushes), flushes)


def measure(folder: Path, rows: int, changes: int, commits: int, *, flushes: bool) -> Clock:
    """Make the table, then so many commits."""
    table, clock = folder / "t", Clock()
    fsync = clock.timed("flushes", os.fsync if flushes else lambda _handle: None)
    with (
        patch.object(os, "fsync", fsync),
        patch.object(Staged, "flushed", _method(clock.timed("data", Staged.flushed))),
        patch.object(commit, "write_vectors", clock.timed("vectors", write_vectors)),
        patch.object(log, "write_entry", clock.timed("entry", log.write_entry)),
        patch.object(commit, "read_snapshot", clock.timed("snapshot", read_snapshot)),
        patch.object(commit, "make_checkpoint", clock.timed("checkpoint", make_checkpoint)),
    ):
        head, places = _first(table, rows), _Places(rows, changes)
        for number in range(commits + WARM_UP):
            _commit(table, head, places, number, clock)
            head = places.head
            if number == WARM_UP - 1:
                clock.parts = {part: [] for part in PARTS}
    return clock


@dataclass
class _Places:
    """Which rows change next: always those of the first file, each only once."""

    rows: int
    changes: int
    file: str = ""
    head: Head = field(default_factory=lambda: Head(0, CommitRecord(0)))

    def next(self, number: int) -> BitMap64:
        """Spread over the file, other ones each time."""
        step = self.rows // self.changes
        return BitMap64(range(number % step, step * self.changes, step))


def _commit(table: Path, head: Head, places: _Places, number: int, clock: Clock) -> None:
    gone = places.next(number)
    rows = _rows(list(gone))
    record = replace(head.record, epoch=head.record.epoch + 1, mode="delta")
    first = [*table.rglob("part-0.parquet"), *table.glob("epoch-*.parquet")][:1]
    places.file = places.file or first[0].relative_to(table).as_posix()
    staged = clock.timed("stage", stage_rows)(rows, table, record.epoch, SPEC.indexed)
    changed = commit.RowChanges(staged, {places.file: gone})
    places.head = clock.timed("commit", commit.commit)(table, head, record, changed)
    clock.next()


def _first(table: Path, rows: int) -> Head:
    made = CommitRecord(0).identified(new_table_id())
    assert create_table(table, Schema.from_arrow(SCHEMA).to_json(), SPEC.properties, made)
    record = replace(made, epoch=1)
    return commit.commit(
        table, Head(0, made), record, commit.RowChanges(stage_rows(_rows(list(range(rows))), table, 1))
    )


def _rows(keys: list[int]) -> pa.Table:
    columns = [pa.array(keys), pa.array([f"category {k % 97}" for k in keys]), pa.array([k / 7 for k in keys])]
    return pa.table(columns, schema=SCHEMA)


def _method(call: Callable[..., Any]) -> Callable[[Staged], Any]:
    return lambda staged: call(staged)


def report(clock: Clock, flushes: bool) -> None:
    """One line for each part: milliseconds at p50 and p99; then commits a second, staging included."""
    print(f"\n{'with' if flushes else 'without'} flushes      p50 ms    p99 ms")
    for part, seconds in clock.parts.items():
        p99 = statistics.quantiles(seconds, n=100)[98]
        print(f"  {part:<16}{statistics.median(seconds) * 1000:>9.2f}{p99 * 1000:>10.2f}")
    whole = [one + two for one, two in zip(clock.parts["stage"], clock.parts["commit"], strict=True)]
    print(f"  {len(whole) / sum(whole):.0f} commits a second")


if __name__ == "__main__":
    main()
