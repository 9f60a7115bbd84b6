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
from typing import TYPE_CHECKING, Any, Final, Literal

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.topics import check_kind
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import EncodeFailed, InvalidQuery
from strandline.jobs.publish.encoder import Encoder, RecordOrigin, live_records, newest_generation
from strandline.jobs.publish.topic import Position, published, published_views, topic_as_source
from strandline.state_store.commits import Head
from strandline.state_store.delta import log, reader, rows
from strandline.state_store.delta.commit import flush_log
from strandline.state_store.errors import InputReplaced, VersionGone
from strandline.state_store.layout import LakeLayout
from strandline.state_store.leases import ReaderLease
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.jobs.ingest.logs.log import Record
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.publish.topic import ChangelogTopic
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.paths import LakePath


# The plan of one publication: from the version that the topic holds to the table's head, and by which way.
#
# nothing       the topic holds the head
# changes       the changes of each version in between, from the table's feed
# difference    the rows of the head against the live records of the topic: where the feed does not reach back to the
#               topic's version, or nothing says which that is

Way = Literal["nothing", "changes", "difference"]


@dataclass(frozen=True)
class PublishPlan:
    """What is to be published.

    Attributes:
        position: what the topic holds; None: nothing that is known.
        head: what it is to hold.
        reason: for the way, in words.
        generation: of the records to be written; None: one more than that of any record that is there.
    """

    view: str
    topic: str
    position: Position | None
    head: Head
    way: Way
    reason: str
    generation: int | None

    def __str__(self) -> str:
        return sentence("'{}' to topic '{}': {}, {}", Name(self.view), self.topic, self.way, self.reason)

    def as_json(self) -> dict[str, Any]:
        """The plan as data."""
        at = self.position.version if self.position is not None else None
        found = {"view": self.view, "topic": self.topic, "from_version": at, "to_version": self.head.version}
        return {**found, "way": self.way, "reason": self.reason}


def plan_publication(table: LakePath, view: str, topic: str, position: Position | None) -> PublishPlan:
    """The plan for a topic at that position.

    Raises:
        TableMissing: the view has no table yet.
        CorruptState, ForeignWrite: as of `reader.head`.
    """
    head = reader.head(table)
    if head is None:
        raise log.missing(table)
    if position is None:
        reason = "the topic does not say which version it holds"
        return PublishPlan(view, topic, position, head, "difference", reason, None)
    way, reason, goes_on = _way(table, head, position)
    return PublishPlan(view, topic, position, head, way, reason, position.generation + (not goes_on))


def _way(table: LakePath, head: Head, position: Position) -> tuple[Way, str, bool]:
    """The way, the reason for it, and whether the table's versions go on from the one that the topic holds."""
    version = position.version
    if version > head.version:
        why = f"the topic holds version {version}, and the table went back to {head.version}"
        return "difference", why, False
    try:
        same = reader.version_at(table, version).same(position.at)
    except VersionGone:
        why = f"the topic holds version {version}, which the table's log no longer has"
        return "difference", why, position.at.table == head.record.table
    if not same:
        why = f"version {version} of the table is another commit than the one that the topic holds"
        return "difference", why, False
    if reader.record_at(table, version).rekeyed != head.record.rekeyed:
        why = f"the rows have another key than those of version {version}, which the topic holds"
        return "difference", why, True
    if version == head.version:
        return "nothing", f"the topic holds version {version}, the newest", True
    return "changes", f"versions {version + 1} to {head.version}", True


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
            InputReplaced: the table has other columns than the topic's records, or another key; open the publisher
                anew.
            TopicTaken: the topic has records of others. Nothing was written.
            PublisherFenced: another publisher has begun.
            EncodeFailed: a row of the head cannot be written in the topic's format. Versions before it may have been.
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
            except EncodeFailed:
                # A version on the way has a row that the format cannot hold. If the head has none, that is said.
                self._check_rows(plan.head)
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
        rekeyed = head.record.rekeyed
        same_key = rekeyed is None or set(rekeyed.key) == set(self._topic.source.key)
        if found != self._encoder.columns or not same_key:
            raise InputReplaced(
                sentence("the columns of '{}', or its key, are others than those that are published", Name(self._view)),
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
                origin = RecordOrigin(position.at.table, position.generation, commit.version)
                yield from self._encoder.changes(changes, origin, commit.timestamp)

    def _check_rows(self, head: Head) -> None:
        """Check, before the topic is read, that the format can hold the rows. Raises EncodeFailed: it cannot."""
        import pyarrow as pa

        for batch in reader.scan(self._table, head.version):
            for _ in self._encoder.pairs(pa.Table.from_batches([batch])):
                pass

    def _write_difference(self, head: Head, generation: int) -> int:
        """Write what the rows at the head have and the topic has not, and tombstones for what only the topic has."""
        there = live_records(self._topic.log, self._name, self._view, _hash)
        position = Position.of(self._view, head, generation)
        return self._write(self._difference(position, there), position)

    def _difference(self, position: Position, there: dict[bytes, bytes]) -> Iterator[Record]:
        import pyarrow as pa

        origin = RecordOrigin(position.at.table, position.generation, position.version)
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


# The publisher of a view, opened from its definition as the catalog has it now.


def open_publisher(settings: Settings, name: str) -> Publisher:
    """The publisher of the view `name`; nothing is written before its `catch_up`.

    Raises:
        UnknownName: there is no such view.
        InvalidQuery: it has no changelog topic.
        TopicsElsewhere: the lake's topics are of the other kind.
    """
    lake = LakeLayout(settings.lake)
    source = topic_as_source(published_view(Catalog(lake), name))
    encoder = Encoder(source, registry_of(settings, lake))
    return Publisher(lake.table(name), open_topic(source, settings, lake), encoder)


def views_to_publish(settings: Settings, names: Sequence[str]) -> list[View]:
    """The views of these names; without names, all that have a changelog topic. Errors as of `published_view`."""
    catalog = Catalog(LakeLayout(settings.lake))
    if names:
        return [published_view(catalog, name) for name in names]
    return published_views(catalog.definitions())


def published_view(catalog: Catalog, name: str) -> View:
    """The definition of a view with a changelog topic.

    Raises:
        UnknownName: there is no such view.
        InvalidQuery: it has no changelog topic.
    """
    definition = catalog.get(name)
    if not isinstance(definition, View) or not published(definition):
        raise InvalidQuery(
            sentence("'{}' has no changelog topic", Name(name)),
            hint="give a table or materialized view one: … WITH (KAFKA_TOPIC = 'name') AS SELECT …",
        )
    return definition


def registry_of(settings: Settings, lake: LakeLayout) -> Callable[[], Any]:
    """What opens the schema registry when a format needs it."""

    def opened() -> Any:
        from strandline.jobs.ingest.formats.registry import open_registry

        return open_registry(settings, lake)

    return opened


# Where a changelog topic stands: the version that it holds, and how far that is behind the view's table.


@dataclass(frozen=True)
class TopicStanding:
    """The standing of one topic.

    Attributes:
        position: what it holds; None before the first publication, and where nothing says it any more.
        lag: versions of the table that it does not hold; 0 where those since have changed no row. None without a
            position.
    """

    topic: str
    position: Position | None
    lag: int | None


def topic_standing(view: View, settings: Settings, lake: LakeLayout) -> TopicStanding:
    """The standing of the topic of a published view.

    Raises:
        SourceUnavailable, SourceDenied: the brokers do not answer.
        TopicsElsewhere: the lake's topics are of the other kind.
        CorruptState: what the topic or the table says of its version does not read back.
    """
    source = topic_as_source(view)
    topic = open_topic(source, settings, lake)
    try:
        position = topic.position()
    finally:
        topic.close()
    head = reader.head(lake.table(view.name))
    if position is None or head is None:
        return TopicStanding(source.topic, position, None)
    same = position.digest == head.record.digest
    return TopicStanding(source.topic, position, 0 if same else max(head.version - position.version, 1))


def open_topic(source: Source, settings: Settings, lake: LakeLayout) -> ChangelogTopic:
    """The topic, to be read; to write, `begin`.

    Raises:
        TopicsElsewhere: the lake's topics are of the other kind.
    """
    check_kind(settings, lake)
    if settings.kafka.bootstrap_servers:
        from strandline.jobs.publish.kafka_topic import KafkaTopic

        return KafkaTopic(source, settings, lake)
    from strandline.jobs.publish.topic import LocalTopic

    return LocalTopic(source, settings, lake)
