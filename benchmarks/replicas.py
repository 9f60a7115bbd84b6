"""Replicas: seconds from nothing to LIVE, and reads per second, for each backend on this machine.

    python -m benchmarks.replicas [ROWS] [FOLDER]

Seconds are those of the clock and, in brackets, of the processor: on a busy machine the second is the one to compare.
A reading is a version's rows held still; `get` is within one reading, `reading + get` begins one for each row,
`Replica.get` has none, and `multi_get` asks for 100 keys at once. `of bytes` is the store alone, without key and row.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.delta.commit import RowChanges, commit, create_table, new_table_id
from strandline.state_store.delta.data_files import stage_files
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.lmdb import LmdbStore
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore, Store
from strandline.state_store.tablespec import TableSpec

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("total", pa.float64()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
COLUMNS = (("k", "BIGINT"), ("name", "STRING"), ("total", "DOUBLE"), ("n", "BIGINT"), ("at", "TIMESTAMP"))
SPEC = TableSpec("bench", COLUMNS, "keyed", ("k",))
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "rocksdb": RocksStore,
    "lmdb": LmdbStore,
}
READS = 50_000
FILES = 8
AT_ONCE = 100


def main() -> None:
    """The table of figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        table = Path(folder) / "table"
        _make(table, rows)
        print(f"{rows:,} rows, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for name, make in STORES.items():
            _measure(name, make, Path(folder) / name, table, rows)


def _measure(name: str, make: Callable[[Path], Store], path: Path, table: Path, rows: int) -> None:
    layout = Layout(SCHEMA, ("k",))
    with _timed(f"{name}: from nothing to LIVE"):
        store = make(path)
        replica = Replica(name, store, layout)
        Follower(table, replica, name).catch_up()
    with _timed(f"{name}: reading back and comparing the digest"):
        assert replica.digest() == replica.state.digest
    keys = [(key,) for key in Random(2).sample(range(rows), min(READS, rows))]
    for title in ("get, first time", "get, second time"):
        with replica.reading() as now, _timed(f"{name}: {title}", len(keys)):
            for key in keys:
                now.get(key)
    with _timed(f"{name}: reading + get", len(keys)):
        for key in keys:
            with replica.reading() as now:
                now.get(key)
    with _timed(f"{name}: Replica.get", len(keys)):
        for key in keys:
            replica.get(key)
    with _timed(f"{name}: multi_get", len(keys)):
        for start in range(0, len(keys), AT_ONCE):
            replica.multi_get(keys[start : start + AT_ONCE])
    stored = [layout.keys.of_values(key) for key in keys]
    with _timed(f"{name}: of bytes", len(keys)):
        for each in stored:
            store.point(each)
    replica.close()
    if name != "memory":
        with _timed(f"{name}: opened again to LIVE"):
            replica = Replica(name, make(path), layout)
            Follower(table, replica, name).catch_up()
        replica.close()
        size = sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
        print(f"{name}: {size / 1e6:.0f} MB on disk")


def _make(table: Path, rows: int) -> None:
    """A table of so many rows in some files, the keys in no order."""
    keys = list(range(rows))
    Random(1).shuffle(keys)
    made = pa.table(
        {
            "k": keys,
            "name": [f"customer {key}" for key in keys],
            "total": [key * 1.5 for key in keys],
            "n": keys,
            "at": pa.array(keys, pa.timestamp("us", "UTC")),
        },
        schema=SCHEMA,
    )
    from deltalake import Schema

    record = replace(CommitRecord(epoch=0), digest=str(Digest())).identified(new_table_id())
    create_table(table, Schema.from_arrow(SCHEMA).to_json(), SPEC.properties, record)
    size = -(-rows // FILES)
    staged = stage_files([[made.slice(start, size)] for start in range(0, rows, size)], SCHEMA, table, 1, ("k",))
    head = reader.head(table)
    assert head is not None
    digest = str(digest_of_table(made.to_batches()))
    commit(table, head, replace(record, epoch=1, inserted=rows, digest=digest), RowChanges(staged))


@contextmanager
def _timed(title: str, count: int = 0) -> Iterator[None]:
    clock, processor = time.perf_counter(), time.process_time()
    yield
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    if count:
        print(f"{title}: {count / clock:,.0f} per second ({count / processor:,.0f})")
    else:
        print(f"{title}: {clock:.2f} s ({processor:.2f})")


if __name__ == "__main__":
    main()
