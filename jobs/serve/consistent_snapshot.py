"""A consistent snapshot: one version of each table of a query, such that all reflect the same of what lies below them.

    heads   orders@12   by_customer@7 (orders@12)   by_town@5 (orders@9)
    cut     orders@9    by_customer@4 (orders@9)    by_town@5 (orders@9)

What one version reflects is a version of everything below it, the records of topics, and the event time. It is read
from the records of commits, which name their inputs, so neither the catalog nor a plan is needed:

    totals@7 ──vector──> totals__stage_1@9 ──vector──> orders@12 ──offsets──> topic orders, partition 0 up to 4,711

A table that changes left as it is reflects them without a commit: that it was looked at is in its pipeline's notes
(`state_store.commits`).
From the heads, each table that is ahead of another over a common input goes back until it is not. No consistent
snapshot lies between, so what is left in the end is the newest one. A table that is not there yet holds nobody back.
"""

from __future__ import annotations

import base64
import datetime as dt
import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.jobs.model import tables
from strandline.jobs.serve.errors import NoConsistentSnapshot, RequestRefused, SnapshotExpired
from strandline.state_store.commits import TableVersion, read_reached
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.heads import newest_version
from strandline.state_store.errors import StoreError, VersionGone
from strandline.state_store.stored_state import members_in, sealed_members
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.state_store.commits import CommitRecord, Reached
    from strandline.state_store.layout import LakeLayout


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Reach:
    """How far a topic is reflected.

    Attributes:
        ends: {partition: the offset behind the last record}.
        ids: of the topics of that name that the records came from, as far as they are known: one that was deleted and
            made again has offsets that say nothing of the former one's.
    """

    ends: Mapping[int, int]
    ids: frozenset[str] = frozenset()

    def and_also(self, other: Reach) -> Reach:
        """What both reflect."""
        both = self.ends.keys() | other.ends.keys()
        least = {number: min(self.ends.get(number, 0), other.ends.get(number, 0)) for number in both}
        return Reach(least, self.ids | other.ids)


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
    offsets: Mapping[str, Reach] = field(default_factory=dict)
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
    offsets: dict[str, Reach] = {}
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
            known = offsets.get(topic, Reach({}))
            ends = {**known.ends, **{int(partition): end for partition, end in partitions.items()}}
            offsets[topic] = Reach(ends, known.ids | {each for each in [record.topics.get(topic)] if each})
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


_NOTHING = -1
"""The version of an input that a table does not reflect at all yet, as just after it was made."""


@dataclass(frozen=True)
class ConsistentSnapshot:
    """One version of each table; None for a table that is not there, or was not at that moment: it has no rows."""

    tables: Mapping[str, Reflected | None]

    def version(self, table: str) -> int | None:
        """The version of a table; None: it has no rows."""
        found = self.tables[table]
        return None if found is None else found.version

    @property
    def versions(self) -> dict[str, int]:
        """{table: version} of those that have one."""
        return {name: found.version for name, found in self.tables.items() if found is not None}

    @property
    def committed(self) -> int | None:
        """When the oldest of the versions was committed, milliseconds since the epoch."""
        return min((found.committed for found in self.tables.values() if found is not None), default=None)

    @property
    def event_time(self) -> int | None:
        """The smallest of the tables' event times, microseconds since the epoch."""
        times = (found.event_time for found in self.tables.values() if found is not None)
        return min((time for time in times if time is not None), default=None)

    @property
    def offsets(self) -> dict[str, Reach] | None:
        """{topic: how far it is reflected} by every table of the snapshot, of those that are made of the topic; None: a
        table is not there, and reflects nothing."""
        found: dict[str, Reach] = {}
        for each in self.tables.values():
            if each is None:
                return None
            for topic, reach in each.offsets.items():
                found[topic] = found[topic].and_also(reach) if topic in found else reach
        return found

    def reaches(self, topic: str, offsets: Iterable[tuple[int, int]]) -> bool:
        """True if every table that is made of a topic reflects its records up to these offsets, and one is.

        Args:
            offsets: (partition, the offset behind the last record).
        """
        there = [found.offsets for found in self.tables.values() if found is not None]
        made = [offsets[topic].ends for offsets in there if topic in offsets]
        return bool(made) and all(each.get(partition, 0) >= offset for each in made for partition, offset in offsets)


def newest_snapshot(tables: Iterable[str], lake: LakeLayout) -> ConsistentSnapshot:
    """The newest consistent cut of these tables.

    Raises:
        NoConsistentSnapshot: it needs a version that is not kept any more.
        TableLost: one was made, and is not there any more.
        CorruptState, ForeignWrite: a table below cannot be read.
    """
    notes = Notes(lake)
    found = _heads(tables, lake, notes)
    if _ahead(found, _inputs(found), lake):
        found = _heads(tables, lake, notes)  # no note that was read is of a version after these heads
    known = _inputs(found)
    while ahead := _ahead(found, known, lake):
        for name, common in ahead.items():
            found[name] = _before(found[name], common, lake)
    return ConsistentSnapshot(found)


def _heads(tables: Iterable[str], lake: LakeLayout, notes: Notes) -> dict[str, Reflected | None]:
    heads = {name: newest_version(lake, name) for name in sorted(set(tables))}
    return {name: None if at is None else reflected(lake, name, at, notes) for name, at in heads.items()}


def _inputs(found: Mapping[str, Reflected | None]) -> dict[str, frozenset[str]]:
    return {name: frozenset(each.versions) for name, each in found.items() if each is not None}


def _ahead(
    found: Mapping[str, Reflected | None], known: Mapping[str, frozenset[str]], lake: LakeLayout
) -> dict[str, str]:
    """{table that reflects more of a common input than another does: that input}."""
    standing = {name: each for name, each in found.items() if each is not None}
    ahead: dict[str, str] = {}
    for common in sorted({name for each in standing for name in known[each]}):
        raw = {name: each.versions.get(common, _NOTHING) for name, each in standing.items() if common in known[name]}
        if len(set(raw.values())) > 1:
            versions = {name: settled(lake, common, version) for name, version in raw.items()}
            least = min(versions.values())
            ahead |= {name: common for name, version in versions.items() if version > least}
    return ahead


def _before(table: Reflected | None, common: str, lake: LakeLayout) -> Reflected | None:
    """What its commits alone say that it reflects, then the version before; None before the first, when there was no
    table."""
    assert table is not None
    if table.noted:
        return reflected(lake, table.table, table.version, by_commits=True)
    if table.version == 0:
        return None
    try:
        return reflected(lake, table.table, table.version - 1)
    except VersionGone as error:
        raise NoConsistentSnapshot(
            sentence(
                "'{}' is ahead of the other tables of the query over '{}', and the version that fits them is not "
                "kept any more",
                Name(table.table),
                Name(common),
            ),
            hint="ask again when they have caught up: `strandline status` shows which is behind",
        ) from error


# A pinned cut: versions of many tables that fit together, to be read again for as long as it is held.
#
#     pin ──> {by_town: 12, by_day: 7, …}, until … ──text──> a token that a client sends back with each request
#
# What is pinned is one consistent cut (`jobs.serve.consistent_snapshot`) of all tables that keep up. A table that
# stands far behind the others would drag them back to where it is, so it is left out; whoever reads it at the cut is
# told so.

_DRAG_MS: Final = 10_000
"""So much older than its newest version may the pinned version of a table be, for another table's sake: some epochs."""
_LONGEST_TEXT: Final = 100_000
_AGAIN: Final = "pin a new cut: POST /v1/cuts, or begin a new transaction"


@dataclass(frozen=True)
class Pinned:
    """A pinned cut.

    Attributes:
        tables: the commit of each; None: the table was not there yet, and has no rows.
        until: when it expires, milliseconds since the epoch.
    """

    tables: Mapping[str, TableVersion | None]
    until: int

    @property
    def versions(self) -> dict[str, int]:
        """{table: version} of those that have one."""
        return {name: at.version for name, at in self.tables.items() if at is not None}

    def text(self) -> str:
        """The token that stands for it."""
        tables = {name: None if at is None else [at.version, at.table, at.nonce] for name, at in self.tables.items()}
        return base64.urlsafe_b64encode(zlib.compress(sealed_members({"tables": tables, "until": self.until}))).decode()

    @classmethod
    def read(cls, text: str) -> Pinned:
        """The cut that a token stands for.

        Raises:
            RequestRefused: it is no token of a cut.
        """
        try:
            unpacked = zlib.decompressobj().decompress(base64.urlsafe_b64decode(text[:_LONGEST_TEXT]), _LONGEST_TEXT)
            found = members_in(unpacked)
            tables = {name: None if at is None else TableVersion(*at) for name, at in found["tables"].items()}
            return cls(tables, int(found["until"]))
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise RequestRefused("'cut' is none that was pinned here", hint="POST /v1/cuts answers with one") from error

    def cut(self, names: Iterable[str], lake: LakeLayout) -> ConsistentSnapshot:
        """The cut of these tables.

        Raises:
            SnapshotExpired: its time is over, or a version is not kept any more.
            NoConsistentSnapshot: a table is not in it.
        """
        return ConsistentSnapshot({name: self.at(name, lake) for name in sorted(set(names))})

    def at(self, name: str, lake: LakeLayout) -> Reflected | None:
        """What a table's version reflects; None where it was not there. Errors as of `cut`."""
        if log.now_ms() > self.until:
            raise SnapshotExpired("the cut has expired", hint=_AGAIN)
        if name not in self.tables:
            raise NoConsistentSnapshot(
                f"'{name}' is not in the pinned cut: it was made since, or stood far behind the others", hint=_AGAIN
            )
        pinned = self.tables[name]
        if pinned is None:
            return None
        try:
            if reader.version_at(lake.table(name), pinned.version).same(pinned):
                return reflected(lake, name, pinned.version)
        except VersionGone as error:
            raise SnapshotExpired(f"version {pinned.version} of '{name}' is not kept any more", hint=_AGAIN) from error
        raise SnapshotExpired(f"version {pinned.version} of '{name}' is another commit now", hint=_AGAIN)


def pin(tables: Iterable[str], lake: LakeLayout, seconds: float, first: Sequence[str] = ()) -> Pinned:
    """Pin the newest consistent cut.

    Args:
        tables: all that may be read.
        first: of those, the ones for whose sake others are left out.

    Raises: as `newest_snapshot`, of `first`.
    """
    names = [name for name in sorted(set(tables)) if name not in first]
    found = _cut_of_all([*first, *names], lake)
    if found is None:
        found = newest_snapshot(first, lake)
        for name in names:
            found = _with(name, found, lake) or found
    held = {
        name: None if at is None else reader.version_at(lake.table(name), at.version)
        for name, at in found.tables.items()
    }
    return Pinned(held, log.now_ms() + int(seconds * 1000))


def _cut_of_all(names: Sequence[str], lake: LakeLayout) -> ConsistentSnapshot | None:
    """The newest cut of all these tables; None where there is none, or one drags others back."""
    try:
        found = newest_snapshot(names, lake)
        return None if any(_dragged(newest_snapshot([name], lake), found) for name in names) else found
    except (StoreError, NoConsistentSnapshot):
        return None


def _with(name: str, cut: ConsistentSnapshot, lake: LakeLayout) -> ConsistentSnapshot | None:
    """The cut with one more table; None where that cannot be read, has no place in it, or drags others back."""
    try:
        found = newest_snapshot([*cut.tables, name], lake)
    except (StoreError, NoConsistentSnapshot):
        return None
    return None if _dragged(cut, found) else found


def _dragged(before: ConsistentSnapshot, after: ConsistentSnapshot) -> bool:
    """True if a table of the cut stands much further back in the other one."""
    for name, at in before.tables.items():
        now = after.tables[name]
        if at is not None and (now is None or at.committed - now.committed > _DRAG_MS):
            return True
    return False
