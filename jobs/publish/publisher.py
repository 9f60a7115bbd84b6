"""The publisher of one view: brings its changelog topic from the version that it holds to the table's head.

    position in the topic ──plan──> nothing
                                    changes      one write for some versions, each whole ──┐
                                    difference   one write ────────────────────────────────┴─> position at the head

Nothing outside the topic says where it stands, so a kill anywhere is answered by beginning again. The lease on the
table keeps the changes that the topic has not yet.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.publish.encoder import Encoder, Origin
from strandline.jobs.publish.live_records import live_records, newest_generation
from strandline.jobs.publish.plan import PublishPlan, plan_publication
from strandline.jobs.publish.position import Position
from strandline.state_store.commits import Head
from strandline.state_store.delta import log, reader, rows
from strandline.state_store.delta.commit import flush_log
from strandline.state_store.errors import InputReplaced, VersionGone
from strandline.state_store.leases import ReaderLease
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.ingest.logs.log import Record
    from strandline.jobs.publish.topic import ChangelogTopic
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.paths import LakePath

TRANSACTION_ROWS: Final = 20_000
"""Versions are written together until they have so many rows: a transaction takes some 20 ms, whatever is in it."""
RENEW_SECONDS: Final = 86_400.0
"""A topic that nothing changes is written its position again once a day: brokers forget it after a week."""


@dataclass(frozen=True)
class Published:
    """What a publication did.

    Attributes:
        version: the version that the topic holds now.
        records: written, tombstones among them.
        writes: transactions of Kafka, or segments of the local log.
    """

    view: str
    topic: str
    version: int
    way: str
    records: int
    writes: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The result as data."""
        return {**vars(self), "seconds": round(self.seconds, 3)}


class Publisher:
    """See the module. Not safe for two threads. After an error, close it and open another.

    Args:
        table: the folder of the view's table.
        topic: not begun yet.
    """

    def __init__(self, table: LakePath, topic: ChangelogTopic, encoder: Encoder) -> None:
        self._table = table
        self._topic = topic
        self._encoder = encoder
        self._view, self._name = topic.source.name, topic.source.topic
        self._lease = ReaderLease(table, f"topic-{self._name}")
        self._position: Position | None = None
        self._begun = False
        self._written = 0.0

    def plan(self) -> PublishPlan:
        """What `catch_up` would do now. Errors as of `plan_publication` and `ChangelogTopic.position`."""
        if not self._begun:
            self._position = self._topic.position()
        return plan_publication(self._table, self._view, self._name, self._position)

    def catch_up(self) -> Published:
        """Bring the topic to the table's head as it is when this begins.

        Raises:
            TableMissing: the view has no table yet.
            InputReplaced: the table has other columns than the topic's records; open the publisher anew.
            TopicTaken: the topic has records of others. Nothing was written.
            PublisherFenced: another publisher has begun.
            EncodeFailed: a row cannot be written in the topic's format. Versions before it may have been.
            CorruptState, ForeignWrite, VersionGone: the table is broken.
            Others: as of `ChangelogTopic`.
        """
        began = time.monotonic()
        self._begin()
        plan = self.plan()
        self._lease.renew(plan.position.version if plan.way == "changes" and plan.position else plan.head.version)
        self._check_columns(plan.head)
        # What the power may still take away must not be told to others.
        flush_log(self._table)
        way, records, writes = plan.way, 0, 0
        generation = plan.generation
        if generation is None:
            generation = newest_generation(self._topic.log, self._name) + 1
        if plan.way == "changes":
            try:
                records, writes = self._write_changes(plan, generation)
            except VersionGone:
                # The lease came too late: what remains to be said is said by the rows.
                way = "difference"
        if way == "difference":
            records, writes = records + self._write_difference(plan.head, generation), writes + 1
        elif way == "nothing" and time.monotonic() - self._written > RENEW_SECONDS:
            self._write((), Position.of(self._view, plan.head, generation))
        self._lease.renew(plan.head.version)
        return Published(self._view, self._name, plan.head.version, way, records, writes, time.monotonic() - began)

    def close(self) -> None:
        """Publish no more for now; the lease stays, so that the next one goes on from here."""
        self._topic.close()

    def _begin(self) -> None:
        if not self._begun:
            # In this order: only once no other publisher can write, what the topic says is what it holds.
            self._topic.begin()
            self._position = self._topic.position()
            self._written = time.monotonic() - RENEW_SECONDS
            self._begun = True

    def _check_columns(self, head: Head) -> None:
        found = reader.schema(self._table, head.version).names
        if found != self._encoder.columns:
            raise InputReplaced(
                sentence("the columns of '{}' are others than those that are published", Name(self._view)),
                where=str(self._table),
                hint="open the publisher anew, with the view's definition",
            )

    def _write_changes(self, plan: PublishPlan, generation: int) -> tuple[int, int]:
        """Write the versions up to the head; (records, writes).

        Raises:
            VersionGone: the feed has a gap, or another tool's rows in it that were mended since.
        """
        assert plan.position is not None
        commits = log.read_history(self._table, plan.position.version, plan.head.version)
        if any(commit.record is None and commit.changes_rows for commit in commits):
            raise VersionGone(sentence("the feed of '{}' has changes that are not ours", Name(self._view)))
        records = writes = 0
        for group in _grouped(commits):
            last = group[-1].version
            head = Head(last, reader.record_at(self._table, last))
            position = Position.of(self._view, head, generation)
            records += self._write(self._changes(group, position), position)
            writes += 1
            self._lease.renew(last)
        return records, writes

    def _changes(self, commits: Sequence[Commit], position: Position) -> Iterator[Record]:
        schema = reader.schema(self._table, commits[-1].version)
        for commit in commits:
            if commit.changes_rows:
                changes = rows.changes_of(self._table, commit, schema)
                origin = Origin(position.at.table, position.generation, commit.version)
                yield from self._encoder.changes(changes, origin, commit.timestamp)

    def _write_difference(self, head: Head, generation: int) -> int:
        """Write what the rows at the head have and the topic has not, and tombstones for what only the topic has."""
        there = live_records(self._topic.log, self._name, self._view, _hash)
        position = Position.of(self._view, head, generation)
        return self._write(self._difference(position, there), position)

    def _difference(self, position: Position, there: dict[bytes, bytes]) -> Iterator[Record]:
        import pyarrow as pa

        origin = Origin(position.at.table, position.generation, position.version)
        timestamp = log.read_commit(self._table, position.version).timestamp
        number = 0
        for batch in reader.scan(self._table, position.version):
            for key, value in self._encoder.pairs(pa.Table.from_batches([batch])):
                if there.pop(key, None) != _hash(value):
                    number += 1
                    yield self._encoder.record(key, value, origin, number, timestamp)
        for key in there:
            number += 1
            yield self._encoder.record(key, None, origin, number, timestamp)

    def _write(self, records: Iterator[Record] | tuple[Record, ...], position: Position) -> int:
        count = self._topic.write(records, position)
        self._position, self._written = position, time.monotonic()
        return count


def _grouped(commits: Sequence[Commit]) -> Iterator[list[Commit]]:
    """Neighbouring commits that are written together."""
    group: list[Commit] = []
    rows = 0
    for commit in commits:
        group.append(commit)
        rows += commit.record.inserted + commit.record.deleted if commit.record is not None else 0
        if rows >= TRANSACTION_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _hash(value: bytes) -> bytes:
    """What tells one value of a key from another; 128 bits, for the memory of a topic with many keys."""
    return hashlib.blake2b(value, digest_size=16).digest()
