"""What one version of a table reflects: a version of everything below it, the records of topics, the event time.

    totals@7 ──vector──> totals__stage_1@9 ──vector──> orders@12 ──offsets──> topic orders, partition 0 up to 4,711

Read from the records of commits, which name their inputs, so neither the catalog nor a plan is needed. A change that
leaves a table as it is makes no commit of it; that it was looked at is in its pipeline's notes (`state_store.reached`).
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.jobs.model import tables
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone
from strandline.state_store.reached import read_reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.state_store.commits import CommitRecord, TableVersion
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.reached import Reached

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Offsets = dict[str, dict[int, int]]
"""{topic: {partition: the offset behind the last one}}."""


@dataclass(frozen=True)
class Reflected:
    """One version of one table, and what it is made of.

    Attributes:
        committed: milliseconds since the epoch, by its writer's clock.
        versions: {table: version} of the table itself and of all below it. Where two ways lead to one table, the older.
        offsets: of the event logs below it.
        event_time: the largest event time of those, microseconds since the epoch; None when there are no events yet.
        noted: some of that is by a pipeline's notes, and not by the commits alone.
    """

    table: str
    version: int
    committed: int
    versions: Mapping[str, int]
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    event_time: int | None = None
    noted: bool = False


class Notes:
    """The notes of a lake's pipelines, each read once."""

    def __init__(self, lake: LakeLayout) -> None:
        self._lake = lake
        self._read: dict[str, Mapping[str, Reached]] = {}

    @property
    def are_the_last(self) -> bool:
        """False once a pipeline that was asked for may have noted something since."""
        return all(read_reached(self._lake, name) is found for name, found in self._read.items() if name)

    def beyond(self, table: str, version: int, record: CommitRecord) -> Mapping[str, TableVersion]:
        """The entries of a table's vector that it is further than; none where nothing is noted that holds of it.

        An input that is another table by now, or has lost the version, makes the note worthless.
        """
        pipeline = record.pipeline
        if pipeline not in self._read:
            self._read[pipeline] = read_reached(self._lake, pipeline) if pipeline else {}
        noted = self._read[pipeline].get(table)
        if noted is None or not noted.of(version, record):
            return {}
        try:
            inputs = ((self._lake.table(tables.input_of(entry)), at) for entry, at in noted.inputs.items())
            holds = all(reader.version_at(path, at.version).same(at) for path, at in inputs)
        except StoreError:
            return {}
        return noted.inputs if holds else {}


def reflected(
    lake: LakeLayout, table: str, version: int, notes: Notes | None = None, *, by_commits: bool = False
) -> Reflected:
    """What that version reflects.

    Args:
        notes: those that are read already.
        by_commits: leave the notes out: what the vectors of the commits say is as true, and may be less.

    Raises:
        TableMissing, VersionGone: the log of the table does not hold the version.
        CorruptState, ForeignWrite: as of `state_store.delta.reader.head`.
    """
    found = {table: version}
    offsets: Offsets = {}
    times: list[int] = []
    todo = [table]
    read = None if by_commits else notes or Notes(lake)
    noted = False
    while todo:
        name = todo.pop()
        try:
            record = reader.record_at(lake.table(name), found[name])
        except StoreError:
            if name == table:
                raise
            continue  # its rows are not asked for; that its commits are gone or broken is its own readers' matter
        for topic, partitions in record.offsets.items():
            offsets.setdefault(topic, {}).update({int(partition): end for partition, end in partitions.items()})
        times += [time for partitions in record.stream_times.values() for time in partitions.values()]
        beyond = read.beyond(name, found[name], record) if read is not None else {}
        noted |= bool(beyond)
        for entry, below in {**record.vector, **beyond}.items():
            input_name = tables.input_of(entry)
            if below.version < found.get(input_name, below.version + 1):
                found[input_name] = below.version
                todo.append(input_name)
    committed = log.read_commit(lake.table(table), version).timestamp
    return Reflected(table, version, committed, found, offsets, max(times, default=None), noted)


def instant(microseconds: int | None) -> str | None:
    """Microseconds since the epoch as ISO 8601."""
    if microseconds is None:
        return None
    return (_EPOCH + dt.timedelta(microseconds=microseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_ms(committed: int | None) -> int | None:
    """Milliseconds since a commit."""
    return None if committed is None else max(0, time.time_ns() // 1_000_000 - committed)


def settled(lake: LakeLayout, table: str, version: int) -> int:
    """The newest version up to this one that changed rows; −1 if none did: versions with equal rows are one.

    Compaction and epochs without a change add versions that readers need not tell apart. What lies before the commits
    that are kept counts as one version.
    """
    for number in range(version, -1, -1):
        try:
            if log.read_commit(lake.table(table), number).changes_rows:
                return number
        except VersionGone:
            return number
    return -1
