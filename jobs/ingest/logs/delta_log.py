"""Foreign Delta tables as logs: one partition each, whose records are rows that come or go.

    offset = version × 2³² + place in the version       12·2³² … 12·2³² + 999   the rows of version 12, a snapshot
                                                        13·2³² …                what goes in version 13, then what comes

Places are those in which `jobs.ingest.delta.rows` gives the rows, which depend on the files alone: a range read again
gives the same records. A version's end is the begin of the next, so a commit that changes no row is passed like any.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.delta.origin import Origin, origin_of
from strandline.jobs.ingest.delta.table import ForeignTable
from strandline.jobs.ingest.logs.log import Records, TopicIdentity
from strandline.jobs.model.errors import DeltaMissing, TopicMissing
from strandline.state_store.errors import SettingsError
from strandline.state_store.storage.open import StorageOptions, lake_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.ingest.logs.log import Log, Record
    from strandline.jobs.model.settings import Settings

PLACES: Final = 1 << 32
"""Offsets that a version has: more rows than one commit changes."""
_PARTITION: Final = 0
_COUNTED: Final = 1024
"""Versions whose rows are remembered, the newest: a run of months meets millions, and asks for those at hand."""


@dataclass
class RowRecords(Records):
    """A run of rows of one version, which all come or all go.

    Attributes:
        rows: their values, by the names of the columns.
        known: the columns that the table has at its newest version; one that `rows` lacks is NULL there.
        gone: they are taken away.
        where: table and version, for messages.
    """

    rows: pa.Table | None = None
    known: frozenset[str] = frozenset()
    gone: bool = False
    where: str = ""


class DeltaLog:
    """The foreign tables of some sources. Threads may share it: one reads at a time.

    Args:
        seconds: between two looks for a new version, while nothing else is to be done.
    """

    def __init__(self, options: StorageOptions, seconds: float) -> None:
        self.seconds = seconds
        self._options = options
        self._tables: dict[str, ForeignTable] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._lock = threading.RLock()

    def ensure_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Nothing is made: the table is there, or is not."""

    def exists(self, topic: str) -> bool:
        try:
            with self._lock:
                self._table(topic).head()
        except DeltaMissing:
            return False
        return True

    def topics(self) -> list[str]:
        """None: only sources know of foreign tables."""
        return []

    def identity(self, topic: str) -> TopicIdentity:
        """The id of the table."""
        with self._lock:
            table = self._table(topic)
            return TopicIdentity(table.schema(table.head()).id)

    def leader_epochs(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """None are known: there are no leaders."""
        return {}

    def begin_offsets(self, topic: str) -> dict[int, int]:
        """Where the source begins. What was removed of the table since is found out when it is read."""
        return {_PARTITION: _origin(topic).first_version * PLACES}

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The begin of the version that comes next."""
        with self._lock:
            head = self._table(topic).head()
        return {_PARTITION: max(head + 1, _origin(topic).first_version) * PLACES}

    def wait(self, offsets: Mapping[str, Mapping[int, int]], seconds: float) -> None:
        """Look for new versions again and again, at the pace that the settings give."""
        deadline = time.monotonic() + seconds
        while not self.beyond(offsets) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, self.seconds))

    def beyond(self, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """True if a table has a version at or after its offset."""
        return any(
            self.end_offsets(topic)[_PARTITION] > offset
            for topic, partitions in offsets.items()
            for offset in partitions.values()
        )

    def produce(self, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        """Refused: nothing is written into the table of another."""
        raise TopicMissing(f"'{topic}' is a Delta table of another writer: nothing is written there")

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """The rows with start <= offset < end.

        Raises:
            DeltaVersionGone: a version, or a file of it, was removed.
            DeltaUnsupported, DeltaSchemaChanged: a version cannot be read.
        """
        origin = _origin(topic)
        table = open_table(origin.location, self._options)  # not shared: whoever reads may stop in between
        known = frozenset(node.name for node in table.schema(table.head()).columns)
        for version in range(start // PLACES, -(-end // PLACES)):
            first, last = max(start - version * PLACES, 0), min(end - version * PLACES, PLACES)
            where = f"'{table.path}', version {version}"
            moment = table.timestamp(version)
            for place, rows, gone in _placed(table, origin, version, first):
                if place >= last:
                    break
                yield _records(version * PLACES + place, rows.slice(0, last - place), gone, moment, known, where)

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        """About how many bytes the files have that hold the rows with start <= offset < end."""
        with self._lock:
            table, origin = self._table(topic), _origin(topic)
            total = 0
            for version in range(start // PLACES, -(-end // PLACES)):
                share = self._span(topic, version, start, end) / max(self._count(topic, version), 1)
                if origin.snapshot and version == origin.version:
                    total += int(share * sum(int(each.get("size") or 0) for each in table.files(version)))
                else:
                    total += int(share * table.commit(version).size)
            return total

    def span(self, topic: str, partition: int, start: int, end: int) -> int:
        """About how many rows there are with start <= offset < end: as many as the files say that come and go."""
        with self._lock:
            return sum(self._span(topic, each, start, end) for each in range(start // PLACES, -(-end // PLACES)))

    def whole(self, topic: str, partition: int, start: int, end: int) -> int:
        """The begin of the version that the end is in, or its end where that is the start; of a snapshot any place."""
        origin = _origin(topic)
        version, place = divmod(end, PLACES)
        with self._lock:
            if origin.snapshot and version == origin.version and place < self._count(topic, version):
                return end
        return version * PLACES if version * PLACES > start or place == 0 else (version + 1) * PLACES

    def _span(self, topic: str, version: int, start: int, end: int) -> int:
        """The rows of a version that are in a range."""
        count = self._count(topic, version)
        first, last = max(start - version * PLACES, 0), min(end - version * PLACES, PLACES)
        return min(last, count) - min(first, count)

    def _count(self, topic: str, version: int) -> int:
        """The rows of the snapshot, or about those that come and go in a commit."""
        if (topic, version) not in self._counts:
            from strandline.jobs.ingest.delta.rows import count_of

            origin, table = _origin(topic), self._table(topic)
            if origin.snapshot and version == origin.version:
                self._counts[topic, version] = count_of(table, version)
            else:
                self._counts[topic, version] = table.commit(version).rows
            if len(self._counts) > _COUNTED:
                del self._counts[next(iter(self._counts))]
        return self._counts[topic, version]

    def _table(self, topic: str) -> ForeignTable:
        location = _origin(topic).location
        if location not in self._tables:
            self._tables[location] = open_table(location, self._options)
        return self._tables[location]


class Logs:
    """The log of an installation, and the foreign tables beside it: a topic's name says which it is.

    Args:
        own: Kafka, or the files in the lake.
    """

    def __init__(self, own: Log, foreign: DeltaLog) -> None:
        self._own, self._foreign = own, foreign

    def _of(self, topic: str) -> Log:
        return self._foreign if origin_of(topic) is not None else self._own

    def ensure_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Create the topic unless it is there; an existing one is left as it is."""
        self._of(topic).ensure_topic(topic, partitions, replicas)

    def exists(self, topic: str) -> bool:
        return self._of(topic).exists(topic)

    def topics(self) -> list[str]:
        """The names of all topics of the own log, sorted."""
        return self._own.topics()

    def identity(self, topic: str) -> TopicIdentity:
        return self._of(topic).identity(topic)

    def leader_epochs(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        return self._of(topic).leader_epochs(topic, offsets)

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return self._of(topic).begin_offsets(topic)

    def end_offsets(self, topic: str) -> dict[int, int]:
        return self._of(topic).end_offsets(topic)

    def wait(self, offsets: Mapping[str, Mapping[int, int]], seconds: float) -> None:
        """Wait for a record of any of them. Between two looks at the tables, the own log is waited for."""
        foreign = {topic: each for topic, each in offsets.items() if origin_of(topic) is not None}
        own = {topic: each for topic, each in offsets.items() if topic not in foreign}
        if not foreign or not own:
            (self._foreign if foreign else self._own).wait(offsets, seconds)
            return
        deadline = time.monotonic() + seconds
        while not self._foreign.beyond(foreign) and (left := deadline - time.monotonic()) > 0:
            ends = {topic: self._own.end_offsets(topic) for topic in own}
            if any(end > own[topic].get(each, 0) for topic, found in ends.items() for each, end in found.items()):
                return
            self._own.wait(own, min(left, self._foreign.seconds))

    def produce(self, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        return self._of(topic).produce(topic, records)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        return self._of(topic).read(topic, partition, start, end)

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        return self._of(topic).size(topic, partition, start, end)

    def span(self, topic: str, partition: int, start: int, end: int) -> int:
        return self._of(topic).span(topic, partition, start, end)

    def whole(self, topic: str, partition: int, start: int, end: int) -> int:
        return self._of(topic).whole(topic, partition, start, end)


def check_readable(topic: str, settings: Settings) -> None:
    """Check that every version that a source begins with or has read is there still, with its files.

    Raises:
        DeltaVersionGone: one is not. DeltaMissing, DeltaUnsupported: the table cannot be read.
    """
    from strandline.jobs.ingest.delta.rows import check_files

    origin = _origin(topic)
    table = open_table(origin.location, settings.storage.options())
    for version in range(origin.first_version, table.head() + 1):
        check_files(table, version, snapshot=origin.snapshot and version == origin.version)


def open_table(location: str, options: StorageOptions) -> ForeignTable:
    """The foreign table at a path or URL. Nothing is read yet. Raises DeltaMissing: it is none that can be opened."""
    try:
        return ForeignTable(lake_path(location, options))
    except SettingsError as error:
        raise DeltaMissing(f"'{location}' names no Delta table: {error.message}", hint=error.hint) from error


def _placed(table: ForeignTable, origin: Origin, version: int, first: int) -> Iterator[tuple[int, pa.Table, bool]]:
    """The rows of a version from a place on, in runs, each with the place of its first and whether they go."""
    from strandline.jobs.ingest.delta.rows import changes_of, rows_of

    place = first
    if origin.snapshot and version == origin.version:
        for rows in rows_of(table, version, first):
            yield place, rows, False
            place += rows.num_rows
        return
    place = 0
    for changes in changes_of(table, version):
        for batch in changes.rows.to_batches(max_chunksize=_RUN):
            begin = max(first - place, 0)
            if begin < batch.num_rows:
                yield place + begin, _table(batch).slice(begin), changes.gone
            place += batch.num_rows


_RUN: Final = 10_000
"""Rows of one run: as many as a run of a topic has."""


def _table(batch: pa.RecordBatch) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _records(first: int, rows: pa.Table, gone: bool, moment: int, known: frozenset[str], where: str) -> RowRecords:
    count = rows.num_rows
    return RowRecords(
        _PARTITION,
        offsets=list(range(first, first + count)),
        timestamps=[moment] * count,
        keys=[b""] * count,
        values=[None if gone else b""] * count,
        headers=[None] * count,
        rows=rows,
        known=known,
        gone=gone,
        where=where,
    )


def _origin(topic: str) -> Origin:
    found = origin_of(topic)
    assert found is not None, "only topics that name a foreign table come here"
    return found
