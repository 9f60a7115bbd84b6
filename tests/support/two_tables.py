"""Two tables that show what a kill may break: an event log, and a keyed table folded from it.

    source (event n is a function of n)  ──>  events (append, offsets in the record)  ──>  latest (keyed, vector)

`latest` has for each key the newest event, and the number and sum of all. What is committed is noted in a file, by one
append each, after `commit` has returned: that is what a user was told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import flush_log
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import WriterLease, WriterLock, lease, writer_lock
from strandline.state_store.paths import LakePath, Location
from strandline.state_store.tablespec import WEIGHT, TableSpec
from tests.support.arrow_table import ArrowTable, Row

# So few that most epochs replace rows.
KEYS = 5
TOPIC = "source"
EVENTS, LATEST = "events", "latest"

EVENTS_SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("amount", pa.int64())])
LATEST_SCHEMA = pa.schema(
    [("k", pa.int64()), ("last_id", pa.int64()), ("total", pa.int64()), ("__state", pa.struct([("n", pa.int64())]))]
)
EVENTS_SPEC = TableSpec(EVENTS, (("id", "BIGINT"), ("k", "BIGINT"), ("amount", "BIGINT")), "append")
LATEST_SPEC = TableSpec(
    LATEST, (("k", "BIGINT"), ("last_id", "BIGINT"), ("total", "BIGINT")), "keyed", ("k",), "STRUCT<n: BIGINT>"
)

Report = Callable[[str, Head], None]
"""Told of each commit that was made: the table's name and its head."""


def event(number: int) -> Row:
    """The event at one offset of the source."""
    return {"id": number, "k": number * 7919 % KEYS, "amount": number % 101 - 50}


def folded(rows: list[Row], into: dict[int, Row]) -> dict[int, Row]:
    """The rows of `latest` after these events, of the keys that they touch; `into` is as it was before."""
    now: dict[int, Row] = {}
    for row in rows:
        old = now.get(row["k"]) or into.get(row["k"]) or {"total": 0, "__state": {"n": 0}, "last_id": -1}
        now[row["k"]] = {
            "k": row["k"],
            "last_id": max(old["last_id"], row["id"]),
            "total": old["total"] + row["amount"],
            "__state": {"n": old["__state"]["n"] + 1},
        }
    return now


class TwoTables:
    """The tables of one lake, and the writer of their epochs."""

    def __init__(self, root: LakePath, report: Report = lambda _table, _head: None) -> None:
        self.lake = LakeLayout(root)
        self.events = ArrowTable(self.lake.table(EVENTS), EVENTS_SCHEMA, EVENTS_SPEC)
        self.latest = ArrowTable(self.lake.table(LATEST), LATEST_SCHEMA, LATEST_SPEC)
        self._report = report

    def ensure(self) -> None:
        """Make the tables that are not there."""
        for table in (self.events, self.latest):
            if log.newest_version(table.path) is None:
                self._report(table.spec.name, table.create(CommitRecord(epoch=0)))

    def epoch(self, events: int) -> None:
        """Take in the next events of the source, then refresh `latest` to the head of the log."""
        self.ingest(events)
        self.refresh()

    def ingest(self, events: int) -> None:
        """One epoch of the event log, from the offset in its record."""
        head = _head(self.events)
        start = head.record.offsets.get(TOPIC, {}).get("0", 0)
        record = replace(
            head.record, epoch=head.record.epoch + 1, mode="ingest", offsets={TOPIC: {"0": start + events}}
        )
        made = self.events.apply([event(number) for number in range(start, start + events)], None, record)
        self._report(EVENTS, made)

    def refresh(self) -> None:
        """One epoch of `latest`, from the commit in its vector; none when the log has not moved."""
        head, upto = _head(self.latest), _head(self.events)
        before = head.record.vector.get(EVENTS)
        if before is not None:
            assert reader.version_at(self.events.path, before.version).same(before), "the log is another one"
            if before.version == upto.version:
                return
        flush_log(self.events.path)
        changes = reader.read_changes(self.events.path, before.version if before else None, upto.version)
        rows = [row for row in changes.to_pylist() if row[WEIGHT] == 1]
        keys = {row["k"] for row in rows}
        old = {row["k"]: row for row in self.latest.stored(head.version) if row["k"] in keys}
        record = replace(head.record, epoch=head.record.epoch + 1, mode="delta", vector={EVENTS: upto.at})
        made = self.latest.apply(list(folded(rows, old).values()), lambda row: row["k"] in keys, record)
        self._report(LATEST, made)


@contextmanager
def locked(path: LakePath) -> Iterator[WriterLock | WriterLease]:
    """The writer's lock; on an object store a lease."""
    with lease(path, "two tables") if isinstance(path, Location) else writer_lock(path, "two tables") as held:
        yield held


def run(root: LakePath, told: Path, events: int, epochs: int) -> None:
    """Write epochs under the writer's lock; each commit is noted in `told` as a line of JSON."""
    notes = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def report(table: str, head: Head) -> None:
        os.write(notes, f"{json.dumps([table, head.version, head.record.nonce])}\n".encode())

    lake = TwoTables(root, report)
    with locked(lake.lake.lock("two")) as lock:
        lake.ensure()
        for _ in range(epochs):
            lock.check()
            lake.epoch(events)


def _head(table: ArrowTable) -> Head:
    head = reader.head(table.path)
    assert head is not None
    return head
