"""The plan of a compaction: which files of a table become which new ones, and why. It is data, and can be printed.

Files stand on levels by their live rows, as in a log-structured merge tree of tiers:

    level 0: 1–7 rows    level 1: 8–63    level 2: 64–511    …    a full file: no level, never merged

When a level holds `FANOUT` files, they and all smaller ones become one file, which stands at least one level higher. So
a row is written again at most once a level, O(log n) times; a level keeps fewer than `FANOUT` files between two
compactions; and a few small files never make a big one be written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.delta.statistics import row_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.state_store.delta.snapshot import Snapshot

FANOUT: Final = 8
"""Ten million rows are eight levels: each row is written up to eight times more, and some thirty files are kept on
average. 16 writes a fifth less and keeps twice as many files, each of which a read of the table must open."""

FULL_BYTES: Final = 64 << 20
"""Parquet bytes from which a file is not merged any more: read in a fraction of a second, and skipped by its bounds
when it has none of the keys that are asked for. Also the most that one merge reads, since it sorts in memory."""

PLAN_BYTES: Final = 4 * FULL_BYTES
"""The most that one compaction reads: the writer waits for it, some seconds at this size. The rest comes next time."""

REWRITE_SHARE: Final = 0.5
"""The part of deleted rows from which a file is written again alone: at a half, a deleted row pays for a live one."""

REWRITE_ROWS: Final = 10_000
"""A smaller file is not written again alone: reading its deleted rows costs less than the flushes of a commit."""


@dataclass(frozen=True)
class Merge:
    """One new file, with the live rows of some others.

    Attributes:
        files: the others, as the log calls them, in the order of the log.
        rows: their live rows.
        size: their bytes of Parquet.
    """

    files: tuple[str, ...]
    rows: int
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{len(self.files)} files, {self.rows:,} rows, {self.size / 1e6:.1f} MB: {self.reason}"


@dataclass(frozen=True)
class CompactionPlan:
    """What a compaction does to one version of a table. Without merges there is nothing to do.

    Attributes:
        files: the live files at that version.
    """

    version: int
    files: int
    merges: tuple[Merge, ...]

    @property
    def reason(self) -> str:
        """The reasons of all merges, for the record of the commit."""
        return "; ".join(dict.fromkeys(merge.reason for merge in self.merges))

    def __str__(self) -> str:
        merged = sum(len(merge.files) for merge in self.merges)
        first = f"version {self.version}, {self.files} files: {merged} of them become {len(self.merges)}"
        return "\n".join([first, *(f"  {merge}" for merge in self.merges)])


@dataclass(frozen=True)
class _File:
    name: str
    live: int
    rows: int
    size: int

    @property
    def level(self) -> int:
        return _level(self.live)

    @property
    def live_size(self) -> int:
        return self.size * self.live // max(self.rows, 1)


def plan_compaction(snapshot: Snapshot) -> CompactionPlan:
    """The plan for a table at one version.

    Raises:
        CorruptState: the log does not say how many rows a file has.
    """
    files = [_file(name, body) for name, body in snapshot.files.items()]
    chosen, top = _due([file for file in files if file.live_size < FULL_BYTES])
    why = f"{FANOUT} or more files of fewer than {FANOUT ** (top + 1):,} rows"
    merges = [_merge(part, why) for part in _parts(chosen) if len(part) > 1]
    taken = {name for merge in merges for name in merge.files}
    # First, or small files that are always due would keep a large one waiting for ever.
    rewrites = [_merge([file], _deleted(file)) for file in files if file.name not in taken and _worn(file)]
    return CompactionPlan(snapshot.version, len(files), tuple(_within([*rewrites, *merges])))


def _due(files: Sequence[_File]) -> tuple[list[_File], int]:
    """The files of the highest level that is due and of all levels below it, in order; and that level."""
    counts = [sum(file.level == level for file in files) for level in range(1 + max([0, *(f.level for f in files)]))]
    top = max((level for level, count in enumerate(counts) if count >= FANOUT), default=-1)
    while top >= 0:
        # What comes out may be the one that another level waits for.
        reached = _level(sum(file.live for file in files if file.level <= top))
        if reached >= len(counts) or counts[reached] + 1 < FANOUT:
            break
        top = reached
    return [file for file in files if file.level <= top], top


def _parts(files: Iterable[_File]) -> Iterable[list[_File]]:
    """The files in order, cut where a new one would be more than full."""
    part: list[_File] = []
    for file in files:
        if part and sum(each.size for each in [*part, file]) > FULL_BYTES:
            yield part
            part = []
        part.append(file)
    yield part


def _within(merges: Iterable[Merge]) -> Iterable[Merge]:
    """The first merges, of which there is at least one, that read no more than a compaction may."""
    total = 0
    for merge in merges:
        if total and total + merge.size > PLAN_BYTES:
            return
        total += merge.size
        yield merge


def _worn(file: _File) -> bool:
    return file.rows >= REWRITE_ROWS and file.rows - file.live > REWRITE_SHARE * file.rows


def _deleted(file: _File) -> str:
    return f"{file.rows - file.live:,} of {file.rows:,} rows are deleted"


def _merge(files: Sequence[_File], reason: str) -> Merge:
    names = tuple(file.name for file in files)
    return Merge(names, sum(file.live for file in files), sum(file.size for file in files), reason)


def _file(name: str, body: Mapping[str, Any]) -> _File:
    vector = body.get("deletionVector")
    rows = row_count(body)
    return _File(name, rows - (int(vector["cardinality"]) if vector else 0), rows, int(body["size"]))


def _level(rows: int) -> int:
    level = 0
    while rows >= FANOUT:
        rows //= FANOUT
        level += 1
    return level
