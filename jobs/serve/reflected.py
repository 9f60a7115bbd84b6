"""What one version of a table reflects: a version of everything below it, the records of topics, the event time.

    totals@7 ──vector──> totals__stage_1@9 ──vector──> orders@12 ──offsets──> topic orders, partition 0 up to 4,711

Read from the records of commits alone. They name their inputs, so neither the catalog nor a plan is needed.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.jobs.model import tables
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.state_store.layout import LakeLayout

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
    """

    table: str
    version: int
    committed: int
    versions: Mapping[str, int]
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    event_time: int | None = None


def reflected(lake: LakeLayout, table: str, version: int) -> Reflected:
    """What that version reflects.

    Raises:
        TableMissing, VersionGone: the log of the table does not hold the version.
        CorruptState, ForeignWrite: as of `state_store.delta.reader.head`.
    """
    found = {table: version}
    offsets: Offsets = {}
    times: list[int] = []
    todo = [table]
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
        for entry, below in record.vector.items():
            input_name = tables.input_of(entry)
            if below.version < found.get(input_name, below.version + 1):
                found[input_name] = below.version
                todo.append(input_name)
    committed = log.read_commit(lake.table(table), version).timestamp
    return Reflected(table, version, committed, found, offsets, max(times, default=None))


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
