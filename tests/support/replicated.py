"""A table and its replica: epochs of random changes, and the rows that there must be, kept as plain dicts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import reader
from strandline.state_store.replicas.follow import Follower, RestoreProgress
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout
from strandline.state_store.tablespec import TableSpec
from tests.support.arrow_table import ArrowTable, Row
from tests.support.replica_backends import Backend

SCHEMA = pa.schema(
    [
        ("town", pa.string()),
        ("n", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("__state", pa.struct([("c", pa.int64())])),
    ]
)
COLUMNS = (("town", "STRING"), ("n", "BIGINT"), ("tags", "MAP<STRING, BIGINT>"))
KEYED = TableSpec("keyed", COLUMNS, "keyed", ("town", "n"), "STRUCT<c: BIGINT>")
# Its key is not visible: rows may be equal.
COUNTED = TableSpec("counted", COLUMNS, "keyed", ("__state.c",), "STRUCT<c: BIGINT>")
SPECS = {"keyed": KEYED, "counted": COUNTED}

# The share of the rows that go in an epoch.
_GOING = 0.3
_TOWNS = (None, "", "a", "a\0", "b" * 450, "ä")


class Replicated:
    """A table whose epochs are a function of their number, so that any process can write or check them.

    Args:
        folder: of this test alone.
        per_epoch: rows that come in an epoch; as many keys go or are replaced, on average, once there are some.
    """

    def __init__(self, folder: Path, kind: str, per_epoch: int = 6) -> None:
        self.spec = SPECS[kind]
        self.folder = folder
        self.table = ArrowTable(folder / kind, SCHEMA, self.spec)
        self.per_epoch = per_epoch
        self.rows: list[Row] = []
        if not self.table.path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self.table.create(CommitRecord(epoch=0))

    def epoch(self, seed: int) -> Head:
        """One more epoch: some rows go, some of them come back at once, and others come."""
        random = Random(seed)
        # Equal rows go together: the table is written by what a row is.
        gone = {text for text in sorted({str(row) for row in self.rows}) if random.random() < _GOING}
        kept = [row for row in self.rows if str(row) not in gone]
        taken = {_key(row) for row in kept}
        come = []
        for _ in range(self.per_epoch):
            row = _row(random)
            if self.spec is COUNTED or _key(row) not in taken:
                taken.add(_key(row))
                come.append(row)
        head = self.table.apply(come, lambda row: str(row) in gone)
        self.rows = kept + come
        return head

    def epochs(self, count: int, seed: int = 0) -> None:
        for number in range(count):
            self.epoch(seed * 1000 + number)

    def replica(self, backend: Backend, name: str = "replica") -> Replica:
        """The replica in this folder, opened."""
        return Replica(name, backend.open(self.folder / name), self.layout())

    def layout(self) -> Layout:
        return Layout(pa.schema([SCHEMA.field(name) for name in self.spec.visible]), unique_key(self.spec))

    def follower(self, replica: Replica, reports: list[RestoreProgress] | None = None) -> Follower:
        return Follower(self.table.path, replica, "reader", (reports if reports is not None else []).append)


def rows_at(table: ArrowTable, version: int) -> Counter[str]:
    """The visible rows of a version."""
    names = list(table.spec.visible)
    return Counter(str(_sorted(row)) for row in reader.read_rows(table.path, version, names).to_pylist())


def rows_of(replica: Replica) -> tuple[int, Counter[str]]:
    """The version of a replica and its rows, by a scan with its count checked."""
    with replica.reading() as now:
        found = Counter(str(_sorted(row)) for batch in now.scan() for row in batch.to_pylist())
        assert replica.digest() == now.state.digest
        return now.version, found


def assert_equal(replica: Replica, table: ArrowTable) -> int:
    """The replica's rows are those of the table at its version, whatever that is; the version."""
    version, found = rows_of(replica)
    assert found == rows_at(table, version)
    return version


def _key(row: Row) -> tuple[Any, ...]:
    return row["town"], row["n"]


def _row(random: Random) -> Row:
    tags = [(name, random.randrange(3)) for name in random.sample("xyz", random.randrange(3))]
    return {"town": random.choice(_TOWNS), "n": random.randrange(-4, 4), "tags": tags, "__state": {"c": 1}}


def _sorted(row: Row) -> Row:
    return {**row, "tags": sorted(row["tags"]) if row["tags"] is not None else None}


def unique_key(spec: TableSpec) -> tuple[str, ...] | None:
    """The visible columns that identify a row; None if rows may be equal, or the key is not visible."""
    if spec.storage != "keyed" or not set(spec.key) <= set(spec.visible):
        return None
    return spec.key
