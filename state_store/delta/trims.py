"""Trims of event logs: plan which oldest files go, and commit their removal, and state what went."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from strandline.state_store.commits import TRIM, Head, Trimmed
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import commit_without_files, removal
from strandline.state_store.delta.data_files import data_of, reading, stated_checksum
from strandline.state_store.delta.log import inside
from strandline.state_store.delta.statistics import row_count
from strandline.state_store.digest import Digest
from strandline.state_store.failpoints import failpoint
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    import pyarrow as pa

    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath


# The plan of a trim: which of the oldest files of an event log go by age or size, and who keeps the others.
#
#     files by age   |  3 days  |  2 days  |  9 hours  |  1 hour  |      limit: 1 day, so two are due
#                    └─ goes ───┴─ kept: a reader has not taken in its last events
#
# A file goes whole, with all events in it, and never one whose partition has an older event in a file that stays:
# what stays of each partition begins at one offset. Only files that are due are opened, and those that may overlap
# with them.

PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIME: Final = "_timestamp"

Offsets = dict[int, int]
"""{partition: offset}"""


@dataclass(frozen=True)
class TrimLimits:
    """How much an event log keeps; None: no end.

    Attributes:
        before: milliseconds since the epoch: a file goes when each of its events is older.
        most_bytes: the oldest files go as long as what stays has this many bytes.
    """

    before: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True)
class Keeper:
    """Who keeps events of a log, and why.

    Attributes:
        who: a view or a reader.
        upto: {partition: offset}: events below have been taken in, and may go; None: every event is kept.
    """

    who: str
    why: str
    upto: Mapping[int, int] | None = None

    def __str__(self) -> str:
        return sentence("{}: {}", self.who, self.why)


@dataclass(frozen=True)
class Aged:
    """A file of an event log.

    Attributes:
        until: its largest event time, in milliseconds since the epoch.
        begins, ends: per partition its first offset, and the one after its last.
    """

    name: str
    rows: int
    size: int
    until: int
    begins: Offsets
    ends: Offsets

    def held_by(self, keeper: Keeper) -> bool:
        """Tell whether the keeper needs an event of the file."""
        return keeper.upto is None or any(end > keeper.upto.get(each, 0) for each, end in self.ends.items())


@dataclass(frozen=True)
class TrimPlan:
    """What a trim takes from one version of an event log.

    Attributes:
        due: what the limits say, the oldest first.
        files: what goes: those of `due` that nobody keeps.
        keepers: who keeps a file that is due.
        overlaps: files that are due and nobody needs, with later offsets than a file that stays.
    """

    version: int
    due: tuple[Aged, ...] = ()
    files: tuple[Aged, ...] = ()
    keepers: tuple[Keeper, ...] = ()
    overlaps: int = 0

    @property
    def rows(self) -> int:
        """The events that go."""
        return sum(each.rows for each in self.files)

    @property
    def size(self) -> int:
        """The bytes that go."""
        return sum(each.size for each in self.files)

    @property
    def until(self) -> int:
        """The largest event time that goes, in milliseconds since the epoch; 0: nothing goes."""
        return max((each.until for each in self.files), default=0)

    @property
    def begins(self) -> Offsets:
        """{partition: the first offset that stays}, of the partitions of which something goes."""
        found: Offsets = {}
        for each in self.files:
            found |= {partition: max(end, found.get(partition, 0)) for partition, end in each.ends.items()}
        return found

    def held_for(self, keeper: Keeper) -> int:
        """The events that are due and stay for somebody."""
        return sum(each.rows for each in self.due if each.held_by(keeper))


def is_due(snapshot: Snapshot, limits: TrimLimits) -> bool:
    """True if the limits say a file, by the log's statistics alone: no file is opened."""
    return bool(_due(snapshot, limits))


def plan_trim(path: LakePath, snapshot: Snapshot, limits: TrimLimits, keepers: Sequence[Keeper]) -> TrimPlan:
    """Plan the trim of one version of an event log.

    Raises:
        VersionGone, CorruptState: a file that is due does not read.
    """
    names = _due(snapshot, limits)
    if not names:
        return TrimPlan(snapshot.version)
    due = [_aged(path, name, snapshot.files[name], until) for name, until in names.items()]
    holding = [keeper for keeper in keepers if any(each.held_by(keeper) for each in due)]
    free = [each for each in due if not any(each.held_by(keeper) for keeper in holding)]
    goes = _beginning(path, snapshot, due, free)
    return TrimPlan(snapshot.version, tuple(due), tuple(goes), tuple(holding), len(free) - len(goes))


def _due(snapshot: Snapshot, limits: TrimLimits) -> dict[str, int]:
    """The files that the limits say, with their largest event times, the oldest first; none where a file's statistics
    do not tell, or a row was deleted: that is no event log as we write it."""
    known = {name: _until(body) for name, body in snapshot.files.items()}
    times = {name: time for name, time in known.items() if time is not None}
    if len(times) < len(known) or any(body.get("deletionVector") for body in snapshot.files.values()):
        return {}
    left = sum(int(body["size"]) for body in snapshot.files.values())
    found: dict[str, int] = {}
    for name in sorted(times, key=lambda each: times[each]):
        left -= int(snapshot.files[name]["size"])
        old = limits.before is not None and times[name] < limits.before
        if not old and (limits.most_bytes is None or left < limits.most_bytes):
            break
        found[name] = times[name]
    return found


def _beginning(path: LakePath, snapshot: Snapshot, due: Sequence[Aged], free: Iterable[Aged]) -> list[Aged]:
    """Those of the free files that lie before everything that stays, in each of their partitions."""
    goes = list(free)
    last = max((end for each in goes for end in each.ends.values()), default=0)
    opened = {each.name: each for each in due}
    stays = {name: opened.get(name) for name in snapshot.files.keys() - {each.name for each in goes}}
    first: Offsets = {}
    for name, file in stays.items():
        if file is None and _smallest(snapshot.files[name]) < last:
            file = _aged(path, name, snapshot.files[name], 0)
        _earlier(first, file)
    while behind := [each for each in goes if any(end > first.get(p, end) for p, end in each.ends.items())]:
        for file in behind:
            goes.remove(file)
            _earlier(first, file)
    return goes


def _earlier(first: Offsets, file: Aged | None) -> None:
    """Note the first offsets of a file that stays."""
    for partition, offset in file.begins.items() if file is not None else ():
        first[partition] = min(offset, first.get(partition, offset))


def _aged(path: LakePath, name: str, body: Mapping[str, Any], until: int) -> Aged:
    import pyarrow.compute as pc

    with reading(path):
        rows = data_of(path, inside(path, name), stated_checksum(body)).to_table(columns=[PARTITION, OFFSET])
    ranges = rows.group_by(PARTITION).aggregate([(OFFSET, "min"), (OFFSET, "max")])
    partitions = ranges[PARTITION].to_pylist()
    begins = dict(zip(partitions, ranges[f"{OFFSET}_min"].to_pylist(), strict=True))
    ends = dict(zip(partitions, pc.add(ranges[f"{OFFSET}_max"], 1).to_pylist(), strict=True))
    return Aged(name, row_count(body), int(body["size"]), until, begins, ends)


def _until(body: Mapping[str, Any]) -> int | None:
    """The largest event time of a file by its statistics, in milliseconds since the epoch; None: they do not tell."""
    with suppress(KeyError, TypeError, ValueError):
        found = datetime.fromisoformat(json.loads(body["stats"])["maxValues"][TIME])
        return int((found - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return None


def _smallest(body: Mapping[str, Any]) -> int:
    """The smallest offset of a file, by its statistics; 0 where they do not tell."""
    with suppress(KeyError, TypeError, ValueError):
        return int(json.loads(body["stats"])["minValues"][OFFSET])
    return 0


# A trim: retention takes the oldest files out of an event log, as one commit that says what went.
#
#     version 7   a b c d e f       digest A + B
#     version 8       c d e f       digest B        mode `trim`, of what went: rows, bytes, offsets, time, digest A
#
# Its removals are marked as no change of data, as those of a compaction are: nobody who reads the log's changes takes
# them for deletions, so what was computed from the events keeps what it has counted. Whoever reads the log at a
# version from here on finds the events that are left; the versions before are whole for as long as they are kept.


def trim(path: LakePath, head: Head, snapshot: Snapshot, plan: TrimPlan) -> Head:
    """Carry out a plan, which must have files, in one commit; return the new head. The writer's lock must be held.

    Args:
        head, snapshot: of the version that the plan was made for.

    Raises:
        CommitConflict: another writer has committed since. Nothing was changed.
        VersionGone, CorruptState: a file that is to go does not read, so nobody could prove what went.
        DiskFailed: as of `commit`.
    """
    files = {each.name: snapshot.files[each.name] for each in plan.files}
    went = reader.digest_of_rows(path, replace(snapshot, files=files))
    failpoint("after-trim-digest")
    made = _record(head.record, plan, went).identified(snapshot.table_id)
    removed = [{"remove": {**removal(body), "dataChange": False}} for body in files.values()]
    return commit_without_files(path, head, snapshot, [log.commit_info("TRIM", made), *removed])


def what_went(path: LakePath, version: int, visible: pa.Schema) -> pa.Table:
    """The rows that the trim of a version took, each with weight −1, as a changelog over these columns.

    Raises:
        VersionGone, CorruptState: a file of them is gone or broken.
    """
    from strandline.state_store.delta import rows

    bodies = [action["remove"] for action in log.read_actions(path, version) if "remove" in action]
    files = tuple(log.DataFile(log.inside(path, body["path"]), None, stated_checksum(body)) for body in bodies)
    return rows.changes_of(path, log.Commit(version, 0, "", None, (), files, ()), visible)


def _record(before: CommitRecord, plan: TrimPlan, went: Digest) -> CommitRecord:
    """The record of the trim: the epoch, offsets and stream times of the head, and what has gone so far."""
    so_far = before.trimmed or Trimmed(0, 0, {}, 0, "")
    trimmed = Trimmed(
        rows=so_far.rows + went.count,
        size=so_far.size + plan.size,
        begins={**so_far.begins, **{str(partition): offset for partition, offset in plan.begins.items()}},
        until=max(so_far.until, plan.until),
        digest=str(went),
    )
    return replace(
        before,
        mode=TRIM,
        reason=f"retention: {went.count} events of {len(plan.files)} files",
        inserted=0,
        deleted=0,
        digest=str(Digest.parse(before.digest) - went),
        trimmed=trimmed,
    )
