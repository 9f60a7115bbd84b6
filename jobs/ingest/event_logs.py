"""Event logs: one micro-batch of decoded records becomes at most one commit per log, exactly once.

    micro-batch ──> per source: dead letters first, then the event log

Each commit records the next offset of every partition it holds (`record.offsets`). Records below the offsets of a
table's last commit are left out, so a micro-batch may be repeated, or cut differently after a restart, and nothing is
lost or written twice. Dead letters go first: if the process dies in between, the log is behind, the micro-batch is read
again, and the offsets of the dead letters keep them from being written twice. Event log + dead letters = the topic.

Where the rows are is another matter: in the session (`in_tasks`), or in the driver's memory when they are few
(`in_driver`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.tables import DEAD_LETTER_COLUMNS, META_COLUMNS, ROW_HASH, TOMBSTONE
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import heads
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.failpoints import failpoint
from strandline.state_store.tablespec import TableSpec
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.ingest.offsets import Range
    from strandline.jobs.model.definitions import Source
    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout

Offsets = Mapping[str, int]
"""{partition: next offset}"""

log = logging.getLogger("strandline.ingest")


@dataclass(frozen=True)
class Ingested:
    """One commit: `rows` were appended to `table`, which is now at `version`."""

    source: str
    table: str
    version: int
    rows: int
    dead_letters: bool = False


def log_spec(source: Source) -> TableSpec:
    """The event log of a source: visible columns, meta columns and, if the source is a table, `_tombstone`; of a bag
    also the hash of the row."""
    columns = [(column.name, column.type.spark()) for column in source.columns]
    columns += [(name, sql_type.spark()) for name, sql_type in META_COLUMNS]
    if source.kind == "table":
        columns.append((TOMBSTONE, t.BOOLEAN.spark()))
    if source.bag:
        columns.append((ROW_HASH, t.VARCHAR.spark()))
    return TableSpec(tables.event_log(source), tuple(columns), "append")


def dead_letter_spec(source: Source) -> TableSpec:
    """The dead letters of a source: its records that could not be decoded, and why."""
    columns = tuple((name, sql_type.spark()) for name, sql_type in DEAD_LETTER_COLUMNS)
    return TableSpec(tables.dead_letters(source.name), columns, "append")


@dataclass(frozen=True)
class Target:
    """Where the records of a source go.

    Attributes:
        place: of the source among those of the pipeline: its columns are `s<place>`.
        writer: the writer that the commits name: `pipeline/incarnation`.
        topic_id: of the source's topic, for the commits; empty where it is unknown.
    """

    source: Source
    place: int
    lake: LakeLayout
    writer: str
    topic_id: str

    @classmethod
    def of_all(
        cls, sources: Sequence[Source], lake: LakeLayout, writer: str, topic_ids: Mapping[str, str]
    ) -> list[Target]:
        """Those of a pipeline. Args: `topic_ids` are {topic: id}."""
        return [
            cls(source, place, lake, writer, topic_ids.get(source.topic, "")) for place, source in enumerate(sources)
        ]


def begin_empty(source: Source, lake: LakeLayout, writer: str) -> None:
    """Make the event log of a source of which no record has come yet: a table without rows."""
    spec = log_spec(source)
    head = StoredTable(lake.table(spec.name), spec).ensure(CommitRecord(epoch=0, writer=writer, reason="no record yet"))
    heads.note(lake, spec.name, head.record.table)


class Intake(ABC):
    """The part of one micro-batch that belongs to one source."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._source = target.source

    @abstractmethod
    def _table(self, spec: TableSpec) -> StoredTable:
        """The table to append to, which need not be there yet."""

    @abstractmethod
    def _append_events(self, first: Offsets, before: Mapping[str, int], record: CommitRecord) -> Head:
        """Append the good records to the event log.

        Args:
            first: {partition: offset} from which on they are new; empty when all of them are.
            before: {partition: stream time} that those of its rows do not go below, in microseconds; empty when none
                would.
        """

    @abstractmethod
    def _append_dead_letters(self, first: Offsets, record: CommitRecord) -> Head:
        """Append the broken records to the dead letters; `first` as of `_append_events`."""

    def take(self, ranges: Sequence[Range]) -> list[Ingested]:
        """Commit what the ranges hold that is new; the commits made, in order.

        Raises:
            VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
        """
        before = self._ensured(log_spec(self._source))
        committed = self._offsets(before)
        commits = self._commit_dead_letters(ranges, committed)
        record = self._record(before, ranges)
        failpoint("before-log-commit")
        if any(r.good is not None and r.good >= committed.get(r.partition, 0) for r in ranges):
            head = self._append_events(_new_from(ranges, committed), self._later_than(before, ranges), record)
            commits.append(
                Ingested(self._source.name, tables.event_log(self._source), head.version, head.record.inserted)
            )
        elif any(r.next > committed.get(r.partition, 0) for r in ranges):
            # Broken or aborted records only. The log must not read them again: retention may remove them.
            self._table(log_spec(self._source)).advance(record)
        failpoint("after-log-commit")
        return commits

    def _commit_dead_letters(self, ranges: Sequence[Range], committed: dict[str, int]) -> list[Ingested]:
        """Commit the new dead letters of the micro-batch, if there are any."""
        if all(r.broken is None for r in ranges):
            return []
        name, source = tables.dead_letters(self._source.name), self._source.name
        before = self._ensured(dead_letter_spec(self._source))
        written = self._offsets(before)
        first = {r.partition: max(committed.get(r.partition, 0), written.get(r.partition, 0)) for r in ranges}
        if all(r.broken is None or r.broken < first[r.partition] for r in ranges):
            return []
        head = self._append_dead_letters(_new_from(ranges, first), self._record(before, ranges))
        number = head.record.inserted
        broken = f"{number} record is" if number == 1 else f"{number} records are"
        log.warning("source '%s': %s broken, see table '%s'", source, broken, name)
        return [Ingested(source, name, head.version, head.record.inserted, dead_letters=True)]

    def _offsets(self, head: Head) -> dict[str, int]:
        return dict(head.record.offsets.get(self._source.topic, {}))

    def _later_than(self, head: Head, ranges: Sequence[Range]) -> Mapping[str, int]:
        """The stream times of the head, where a record of the ranges may be below them."""
        times = head.record.stream_times.get(self._source.topic, {})
        return times if any(r.is_late(times[r.partition]) for r in ranges if r.partition in times) else {}

    def _record(self, head: Head, ranges: Sequence[Range]) -> CommitRecord:
        """The next commit after `head`; offsets and stream times never decrease."""
        topic = self._source.topic
        offsets = self._offsets(head)
        times = dict(head.record.stream_times.get(topic, {}))
        terms = dict(head.record.leader_epochs.get(topic, {}))
        for r in ranges:
            if r.leader_epoch is not None and r.next > offsets.get(r.partition, 0):
                # A table of others is marked by its versions, also by those that change no row.
                last = r.next - 1 if origin_of(topic) is not None else max(r.good or 0, r.broken or 0)
                terms[r.partition] = [last, r.leader_epoch]
            offsets[r.partition] = max(r.next, offsets.get(r.partition, 0))
            if r.running_time is not None:
                times[r.partition] = max(r.running_time, times.get(r.partition, r.running_time))
        return replace(
            head.record,
            epoch=head.record.epoch + 1,
            offsets={topic: offsets},
            stream_times={topic: times},
            leader_epochs={topic: terms} if terms else {},
            topics={topic: self._target.topic_id} if self._target.topic_id else head.record.topics,
            writer=self._target.writer,
            mode="ingest",
            reason=sentence("records of topic '{}' for source '{}'", topic, Name(self._source.name)),
        )

    def _ensured(self, spec: TableSpec) -> Head:
        head = self._table(spec).ensure(CommitRecord(epoch=0, writer=self._target.writer, reason="first use"))
        if head.record.epoch == 0:
            heads.note(self._target.lake, spec.name, head.record.table)
        return head


def _new_from(ranges: Sequence[Range], offsets: Offsets) -> Offsets:
    """The next offsets of a table, where the ranges hold records below them: mostly none.

    Then a query needs no condition: with its numbers the plan would be a new one in each micro-batch, for which Spark
    generates and compiles code.
    """
    return offsets if any(r.begins_before(offsets.get(r.partition, 0)) for r in ranges) else {}
