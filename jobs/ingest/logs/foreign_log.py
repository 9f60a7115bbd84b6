"""Tables of others as logs: one partition each, whose records are rows that come or go.

    offset = version × 2³² + place in the version       12·2³² … 12·2³² + 999   the rows of version 12, a snapshot
                                                        13·2³² …                what goes in version 13, then what comes

Places are those in which the table gives its rows (`jobs.ingest.foreign.table`), which depend on its files alone: a
range read again gives the same records. A version's end is the begin of the next, so one that changes no row is passed
like any.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.foreign.table import Changes, Kind, Origin, origin_of
from strandline.jobs.ingest.logs.log import Records, TopicIdentity
from strandline.jobs.model.errors import DeltaMissing, ForeignMissing, TopicMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.ingest.foreign.table import ForeignTable
    from strandline.jobs.ingest.logs.log import Log, Record
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.storage import StorageOptions

PLACES: Final = 1 << 32
"""Offsets that a version has: more rows than one commit changes."""
_PARTITION: Final = 0
_COUNTED: Final = 4096
"""Versions whose rows and bytes are remembered, the newest: of millions a run asks for those at hand."""


@dataclass
class RowRecords(Records):
    """A run of rows of one version, which all come or all go.

    Attributes:
        rows: their values, by the names of the columns.
        known: the columns that the table has at its newest version; one that `rows` lacks is NULL there. None: any.
        gone: they are taken away.
        lost: columns that the table lost with this version, or has others of that name for.
        where: table and version, for messages.
        kind: of the table.
        texts: {column: its one value} of those that are no columns of `rows`, as text.
    """

    rows: pa.Table | None = None
    known: frozenset[str] | None = None
    gone: bool = False
    where: str = ""
    kind: Kind = "delta"
    lost: frozenset[str] = frozenset()
    texts: Mapping[str, str | None] = field(default_factory=dict)


class ForeignTables:
    """The foreign tables of some sources. Threads may share it: one reads at a time.

    Args:
        lake: where what a table does not keep itself is written down.
        seconds: between two looks for a new version, while nothing else is to be done.
    """

    def __init__(self, options: StorageOptions, lake: LakeLayout, seconds: float) -> None:
        self.seconds = seconds
        self._options, self._lake = options, lake
        self._tables: dict[str, ForeignTable] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._lock = threading.RLock()

    def ensure_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Nothing is made: the table is there, or is not."""

    def exists(self, topic: str) -> bool:
        try:
            with self._lock:
                self._table(topic).head()
        except (DeltaMissing, ForeignMissing):
            return False
        return True

    def topics(self) -> list[str]:
        """None: only sources know of foreign tables."""
        return []

    def identity(self, topic: str) -> TopicIdentity:
        """The id of the table, and its newest version: whenever that moves, what was read is looked at again."""
        with self._lock:
            table = self._table(topic)
            return TopicIdentity(table.identity(), {_PARTITION: table.head()})

    def continues(self, topic: str, earlier: str) -> bool:
        """True if the table had that id in its own history: REPLACE gives it another one, and goes on in its log."""
        with self._lock:
            return self._table(topic).had_identity(earlier)

    def leader_epochs(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """{partition: the mark of the version that an offset is in}, in the place of a leader's term."""
        with self._lock:
            table = self._table(topic)
            table.head()  # it notices that the table went back
            found = {partition: table.mark(offset // PLACES) for partition, offset in offsets.items()}
        return {partition: mark for partition, mark in found.items() if mark is not None}

    def begin_offsets(self, topic: str) -> dict[int, int]:
        """Where the source begins. What was removed of the table since is found out when it is read."""
        return {_PARTITION: _origin(topic).first_version * PLACES}

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The begin of the version that comes next."""
        with self._lock:
            return self._end(topic, self._table(topic).head())

    def settled_ends(self, topic: str) -> dict[int, int]:
        """The same, of the newest version that is written down."""
        with self._lock:
            return self._end(topic, self._table(topic).settled())

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
        raise TopicMissing(f"'{topic}' is a table of another writer: nothing is written there")

    def close(self) -> None:
        """Tables are kept for as long as this is."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """The rows with start <= offset < end. Raises as `ForeignTable`."""
        origin = _origin(topic)
        table = open_foreign(origin, self._options, self._lake)  # not shared: whoever reads may stop in between
        known = table.known_columns()
        if start // PLACES > origin.first_version:
            table.check_after(start // PLACES - 1)
        mark, found = table.mark((end - 1) // PLACES), False
        for version in range(start // PLACES, -(-end // PLACES)):
            first, last = max(start - version * PLACES, 0), min(end - version * PLACES, PLACES)
            about = _About(version * PLACES, table.time_of(version), known, table.about(version), table.kind, mark)
            if version > origin.first_version and (lost := table.lost_columns(version)):
                yield replace(about.records(0, 0, Changes(_nothing())), lost=lost)
            for place, changes in _placed(table, origin, version, first):
                if place >= last:
                    break
                found = True
                yield about.records(place, last, changes)
        if not found:
            # Versions that change no row are passed as well, and may be other ones tomorrow.
            yield RowRecords(partition, leader_epoch=mark, rows=_nothing(), known=known, kind=table.kind)

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        """About how many bytes the files have that hold the rows with start <= offset < end."""
        with self._lock:
            total = 0
            for version in range(start // PLACES, -(-end // PLACES)):
                count = self._count(topic, version)
                size = self._remembered(self._sizes, topic, version, self._table(topic).size)
                total += size * _inside(version, count, start, end) // max(count, 1)
            return total

    def span(self, topic: str, partition: int, start: int, end: int) -> int:
        """About how many rows there are with start <= offset < end: as many as the files say that come and go."""
        with self._lock:
            versions = range(start // PLACES, -(-end // PLACES))
            return sum(_inside(each, self._count(topic, each), start, end) for each in versions)

    def whole(self, topic: str, partition: int, start: int, end: int) -> int:
        """The begin of the version that the end is in, or its end where that is the start; of a snapshot any place."""
        origin = _origin(topic)
        version, place = divmod(end, PLACES)
        with self._lock:
            if origin.snapshot and version == origin.version and place < self._count(topic, version):
                return end
            table = self._table(topic)
            until = version
            while until * PLACES > start and not table.is_whole(until - 1):
                until -= 1
            if until * PLACES > start or end <= start:
                return max(until * PLACES, start)
            until, head = start // PLACES + 1, table.head()
            while until <= head and not table.is_whole(until - 1):
                until += 1
            return until * PLACES

    def _end(self, topic: str, head: int) -> dict[int, int]:
        return {_PARTITION: max(head + 1, _origin(topic).first_version) * PLACES}

    def _count(self, topic: str, version: int) -> int:
        """The rows of the snapshot, or about those that come and go with a version."""
        return self._remembered(self._counts, topic, version, self._table(topic).count)

    def _remembered(
        self, known: dict[tuple[str, int], int], topic: str, version: int, measure: Callable[..., int]
    ) -> int:
        if (topic, version) not in known:
            origin = _origin(topic)
            known[topic, version] = measure(version, snapshot=origin.snapshot and version == origin.version)
            if len(known) > _COUNTED:
                del known[next(iter(known))]
        return known[topic, version]

    def _table(self, topic: str) -> ForeignTable:
        if topic not in self._tables:
            self._tables[topic] = open_foreign(_origin(topic), self._options, self._lake)
        return self._tables[topic]


class Logs:
    """The log of an installation, and the foreign tables beside it: a topic's name says which it is.

    Args:
        own: Kafka, or the files in the lake.
    """

    def __init__(self, own: Log, foreign: ForeignTables) -> None:
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

    def continues(self, topic: str, earlier: str) -> bool:
        return self._of(topic).continues(topic, earlier)

    def leader_epochs(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        return self._of(topic).leader_epochs(topic, offsets)

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return self._of(topic).begin_offsets(topic)

    def end_offsets(self, topic: str) -> dict[int, int]:
        return self._of(topic).end_offsets(topic)

    def settled_ends(self, topic: str) -> dict[int, int]:
        return self._of(topic).settled_ends(topic)

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

    def close(self) -> None:
        self._own.close()

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        return self._of(topic).size(topic, partition, start, end)

    def span(self, topic: str, partition: int, start: int, end: int) -> int:
        return self._of(topic).span(topic, partition, start, end)

    def whole(self, topic: str, partition: int, start: int, end: int) -> int:
        return self._of(topic).whole(topic, partition, start, end)


def check_readable(topic: str, settings: Settings, lake: LakeLayout) -> None:
    """Check that every version that a source begins with or has read is there still, with its files.

    Raises:
        DeltaVersionGone, ForeignVersionGone: one is not. And as `ForeignTable`.
    """
    origin = _origin(topic)
    table = open_foreign(origin, settings.storage.options(), lake)
    for version in range(origin.first_version, table.head() + 1):
        table.check_files(version, snapshot=origin.snapshot and version == origin.version)


def open_foreign(origin: Origin, options: StorageOptions, lake: LakeLayout) -> ForeignTable:
    """The table that a source begins at. Raises DeltaMissing, ForeignMissing: it is none that can be opened."""
    if origin.kind == "iceberg":
        from strandline.jobs.ingest.foreign.iceberg import open_iceberg

        return open_iceberg(origin.location, options)
    if origin.kind == "parquet":
        from strandline.jobs.ingest.foreign.parquet_folder import open_folder

        return open_folder(origin, options, lake)
    from strandline.jobs.ingest.foreign.delta_versions import DeltaVersions, open_delta

    return DeltaVersions(open_delta(origin.location, options))


def _placed(table: ForeignTable, origin: Origin, version: int, first: int) -> Iterator[tuple[int, Changes]]:
    """The rows of a version from a place on, in runs, each with the place of its first."""
    place = first
    if origin.snapshot and version == origin.version:
        for rows in table.rows(version, first):
            yield place, Changes(rows)
            place += rows.num_rows
        return
    place = 0
    for changes in table.changes(version):
        for batch in changes.rows.to_batches(max_chunksize=_RUN):
            begin = max(first - place, 0)
            if begin < batch.num_rows:
                yield place + begin, replace(changes, rows=_table(batch).slice(begin))
            place += batch.num_rows


_RUN: Final = 10_000
"""Rows of one run: as many as a run of a topic has."""


def _inside(version: int, count: int, start: int, end: int) -> int:
    """How many of the rows of a version are in a range."""
    first, last = max(start - version * PLACES, 0), min(end - version * PLACES, PLACES)
    return min(last, count) - min(first, count)


def _nothing() -> pa.Table:
    import pyarrow as pa

    return pa.table({})


def _table(batch: pa.RecordBatch) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


@dataclass(frozen=True)
class _About:
    """What the rows of one version have in common."""

    begin: int
    time: int
    known: frozenset[str] | None
    where: str
    kind: Kind
    mark: int | None

    def records(self, place: int, last: int, changes: Changes) -> RowRecords:
        """Args: `last`: the place at which they end at the latest."""
        rows = changes.rows.slice(0, last - place)
        count, first = rows.num_rows, self.begin + place
        return RowRecords(
            _PARTITION,
            offsets=list(range(first, first + count)),
            timestamps=[self.time] * count,
            keys=[b""] * count,
            values=[None if changes.gone else b""] * count,
            headers=[None] * count,
            rows=rows,
            known=self.known,
            gone=changes.gone,
            where=self.where,
            kind=self.kind,
            texts=changes.texts,
            leader_epoch=self.mark,
        )


def _origin(topic: str) -> Origin:
    found = origin_of(topic)
    assert found is not None, "only topics that name a foreign table come here"
    return found
