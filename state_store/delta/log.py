"""Delta's log without a JVM: list it, read one commit or the history between two, write the next commit.

    _delta_log/<version, 20 digits>.json                  one commit: see `entry`
    _delta_log/<version, 20 digits>.checkpoint.parquet    everything up to a version: see `checkpoint`
    _delta_log/_last_checkpoint                           where the newest of those is

Reading a commit takes 0.1 ms, opening the table several; and a head is read before and after every epoch.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from zlib import crc32

from strandline.state_store.commits import MEMBER, REBUILD, stated
from strandline.state_store.delta.data_files import stated_checksum
from strandline.state_store.delta.entry import ENGINE, Action, decode, encode, hinted_version
from strandline.state_store.errors import (
    CorruptState,
    ForeignWrite,
    KeyRefused,
    StorageUnavailable,
    TableMissing,
    VersionGone,
)
from strandline.state_store.files import Remembered, Unchanged, create
from strandline.state_store.layout import name_of, table_at
from strandline.state_store.paths import Location, file_names, side_by_side
from strandline.state_store.tablespec import CHECKPOINT_INTERVAL
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.state_store.commits import CommitRecord, Statement
    from strandline.state_store.paths import LakePath


# Names in a table's log, and the versions that a listing of it shows.

LOG: Final = "_delta_log"
"""The folder of the log, in the table's."""

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")


def commit_name(version: int) -> str:
    """The name of a commit's file."""
    return f"{version:020d}.json"


def has_turn(path: LakePath, version: int, every: int) -> bool:
    """True for one of so many versions of a table, and for another one of the next table: the epochs of many go
    together, and what is done now and then for each of them would be done for all at once.

    The first is in the second half of so many: of a table that is looked at before there is anything to do, twice as
    much would wait for the next time.
    """
    return (version + 1 + crc32(path.name.encode()) % (every // 2)) % every == 0


def listed_commits(path: LakePath) -> list[int]:
    """The versions of which the log holds the commit, in no order; none when there is no table."""
    return _numbered(path, _COMMIT)


def listed_checkpoints(path: LakePath) -> list[int]:
    """The versions of which the log holds a checkpoint, in no order; none when there is no table."""
    return _numbered(path, _CHECKPOINT)


def last_commit_from(path: LakePath, version: int) -> int | None:
    """The last version of those that follow `version` without a gap; None when `version` itself is not there."""
    folder = log_folder(path)
    if isinstance(folder, Location):
        # All names past one cost as much as a look for one. Without its suffix a name comes before itself.
        found = {each.name for each in folder.list(after=f"{version:020d}")}
        if commit_name(version) not in found:
            return None
        while commit_name(version + 1) in found:
            version += 1
        return version
    last, names = version, f"{folder}/"
    # Checkpoints are at most some tens of commits apart: looking for each file is cheaper than listing a long log.
    while _is_there(names + commit_name(last + 1)):
        last += 1
    return last if last > version or _is_there(names + commit_name(version)) else None


def _is_there(file: str) -> bool:
    # A path is an object of many parts: to make one takes longer than to look.
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _numbered(path: LakePath, name: re.Pattern[str]) -> list[int]:
    try:
        return [int(found[1]) for each in file_names(path / LOG) if (found := name.fullmatch(each))]
    except FileNotFoundError:
        return []


_NEWEST: Final = Remembered[int]()
"""The newest version of a table when it was asked for last: whoever asks again looks from there on."""

_ENTRIES: Final = Unchanged[tuple[list[Action], "CommitRecord | None"]](2 << 20)
"""An epoch asks several times for the same entries. Decoded they take ten times their bytes."""


@dataclass(frozen=True)
class DataFile:
    """The absolute path of a data file, the `deletionVector` of its deleted rows, and its CRC-32 if it is known."""

    path: LakePath
    deletion_vector: Mapping[str, Any] | None = None
    checksum: str | None = None


@dataclass(frozen=True)
class Commit:
    """One commit: the files that it adds to the table and removes from it.

    Attributes:
        timestamp: milliseconds since the epoch, by the writer's clock.
        record: our record, or None when the commit is not one of ours.
        added: data files that belong to the table after it, of commits that change rows (compaction does not).
        removed: data files that belonged to it before. A file in both has a new deletion vector.
        change_files: files that list the changes, if the commit wrote any; then `added` and `removed` are not needed.
    """

    version: int
    timestamp: int
    operation: str
    record: CommitRecord | None
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    change_files: tuple[DataFile, ...]

    @property
    def only_adds(self) -> bool:
        """True if the commit deletes no row."""
        return not self.removed and all(file.deletion_vector is None for file in self.added)

    @property
    def changes_rows(self) -> bool:
        """False for compaction, and for a commit that says something about the table only."""
        return bool(self.added or self.removed or self.change_files)


def newest_version(path: LakePath) -> int | None:
    """The newest version of the table at `path`; None when there is no table."""
    known = _NEWEST.find(path)
    found = None if known is None else last_commit_from(path, known)
    if found is None:
        hinted = hinted_version(hint_file(path))
        found = None if hinted is None else last_commit_from(path, hinted)
    if found is None:
        found = max(listed_commits(path), default=None)
    if found is not None and found != known:
        _NEWEST.note(path, found)
    return found


def read_commit(path: LakePath, version: int) -> Commit:
    """The commit of `version`.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log no longer holds the version, or does not hold it yet.
        CorruptState: the commit is broken, or names a file outside the table.
    """
    actions, record = _read(path, version)
    try:
        return _commit(path, version, actions, record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptState(
            sentence("a commit of '{}' does not read back", table_at(path)), where=str(commit_file(path, version))
        ) from error


def read_record(path: LakePath, version: int) -> CommitRecord | None:
    """The record of the commit of `version`, or None when it is not one of ours; errors as of `read_commit`."""
    return _read(path, version)[1]


def read_history(path: LakePath, after: int, upto: int) -> list[Commit]:
    """The commits after `after` up to and including `upto`, without a gap; errors as of `read_commit`.

    Raises:
        ForeignWrite: another tool changed rows, and no rebuild has set that right since.
    """
    commits = [*side_by_side(lambda version: read_commit(path, version), range(after + 1, upto + 1), path)]
    rebuilt = max((c.version for c in commits if c.record is not None and c.record.mode == REBUILD), default=-1)
    for commit in commits:
        if commit.version > rebuilt:
            check_ours(path, commit)
    return commits


def check_ours(path: LakePath, commit: Commit) -> None:
    """Raise ForeignWrite if another tool made the commit, and it changes rows."""
    if commit.record is None and commit.changes_rows:
        raise ForeignWrite(
            sentence(
                "version {} of '{}' is not ours: another tool's {} changed its rows",
                commit.version,
                table_at(path),
                commit.operation or "commit",
            ),
            where=str(path),
            hint=sentence("its rows no longer follow from its inputs; type: strandline rebuild {}", table_at(path)),
        )


def read_actions(path: LakePath, version: int) -> list[Action]:
    """The actions of the commit of `version`; errors as of `read_commit`."""
    return _read(path, version)[0]


def read_entries(path: LakePath, after: int, upto: int) -> Iterator[list[Action]]:
    """The actions of the commits after `after` up to and including `upto`; errors as of `read_commit`."""
    return side_by_side(lambda version: read_actions(path, version), range(after + 1, upto + 1), path)


def write_commit(path: LakePath, version: int, actions: Sequence[Action]) -> bool:
    """Make `version`, flushed to disk; False, and nothing written, when it is there. `commit_info` is the first.

    Raises:
        StorageUnavailable: an object store gave no answer, and does not show the entry. It may do so later.
    """
    return write_entry(path, version, encode(actions))


def write_entry(path: LakePath, version: int, data: bytes) -> bool:
    """`write_commit` of actions that are encoded already."""
    file = commit_file(path, version)
    try:
        made = create(file, data)
    except StorageUnavailable:
        # The answer was lost, perhaps not the entry. Its nonce makes its bytes unlike those of any other writer.
        if not file.exists():
            raise
        made = False
    return made or (isinstance(file, Location) and file.read_bytes() == data)


def note_entry(
    path: LakePath, version: int, data: bytes, actions: Sequence[Action], record: CommitRecord | None
) -> None:
    """Remember what an entry says that this process has just written: it need not be decoded."""
    _ENTRIES.note(commit_file(path, version), data, ([*actions], record))


def commit_info(operation: str, record: CommitRecord) -> Action:
    """The action that says what a commit is, and carries its record; `with_statement` completes it."""
    info = {"timestamp": now_ms(), "operation": operation, "operationParameters": {}, "engineInfo": ENGINE}
    return {"commitInfo": {**info, "userMetadata": record.to_json()}}


def with_statement(actions: Sequence[Action], statement: Statement) -> list[Action]:
    """A commit that states what the table is after it. `commit_info` is the first of the actions."""
    info, *others = actions
    return [{"commitInfo": {**info["commitInfo"], MEMBER: statement.as_json()}}, *others]


def read_stated(path: LakePath, version: int) -> tuple[CommitRecord | None, Statement | None]:
    """The record and the statement of the commit of `version`, each None where it has none; errors as of
    `read_commit`."""
    actions, record = _read(path, version)
    return record, None if record is None else stated(info_of(actions))


def info_of(actions: Sequence[Action]) -> Action:
    """What a commit says of itself; empty where it does not."""
    found: Action = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return found


def missing(path: LakePath) -> TableMissing:
    """The error for a table that is not there."""
    return TableMissing(
        sentence("there is no table '{}'", table_at(path)),
        where=str(path),
        hint="run its pipeline once, or check the lake's root",
    )


def log_folder(path: LakePath) -> LakePath:
    """The folder of a table's log."""
    return path / LOG if isinstance(path, Location) else _folder_on_disk(path)


@lru_cache(maxsize=1 << 14)
def _folder_on_disk(path: Path) -> Path:
    return path / LOG


def commit_file(path: LakePath, version: int) -> LakePath:
    """The file of one commit."""
    return log_folder(path) / commit_name(version)


def checkpoint_file(path: LakePath, version: int) -> LakePath:
    """The file of the checkpoint of one version."""
    return path / LOG / f"{version:020d}.checkpoint.parquet"


def hint_file(path: LakePath) -> LakePath:
    """The file that names the last checkpoint."""
    return path / LOG / "_last_checkpoint"


def checkpoints_before(path: LakePath, version: int) -> Iterator[int]:
    """The versions up to and with `version` that may have a checkpoint, the newest first."""
    # Listing costs as much as the log is long, so the one that the hint names comes first.
    hinted = hinted_version(hint_file(path))
    if hinted is not None and version - CHECKPOINT_INTERVAL < hinted <= version:
        yield hinted
    yield from reversed(checkpoints(path, upto=version))


def checkpoints(path: LakePath, upto: int) -> list[int]:
    """The versions up to and with `upto` of which the log holds a checkpoint, the oldest first, by looking."""
    return sorted(found for found in listed_checkpoints(path) if found <= upto)


def versions(path: LakePath) -> list[int]:
    """The versions of which the log holds the commit, the oldest first, by looking: a gap has no name."""
    return sorted(listed_commits(path))


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _read(path: LakePath, version: int) -> tuple[list[Action], CommitRecord | None]:
    file = commit_file(path, version)
    try:
        return _ENTRIES.read(file, lambda: decode(file.read_bytes(), file))
    except FileNotFoundError:
        newest = newest_version(path)
        if newest is None:
            raise missing(path) from None
        # Clean-ups remove the oldest commits, and none between others.
        lost = 0 < version < newest and commit_file(path, version - 1).exists()
        raise VersionGone(
            sentence("version {} of '{}' is not in its log", version, table_at(path)),
            where=str(path),
            hint=sentence("type: strandline rebuild {}", Name(name_of(path.name), shlex.quote))
            if lost
            else "read the table anew",
        ) from None


def _commit(path: LakePath, version: int, actions: list[Action], record: CommitRecord | None) -> Commit:
    info = info_of(actions)
    files: dict[str, list[DataFile]] = {"add": [], "remove": [], "cdc": []}
    for action in actions:
        for name, found in files.items():
            body = action.get(name)
            # A file that lists changes has the mark as well, always false: it is no data of the table.
            if body and (name == "cdc" or body.get("dataChange", True)):
                file = inside(path, body["path"])
                found.append(DataFile(file, body.get("deletionVector"), stated_checksum(body)))
    return Commit(
        version=version,
        timestamp=int(info.get("timestamp", 0)),
        operation=str(info.get("operation", "")),
        record=record,
        added=tuple(files["add"]),
        removed=tuple(files["remove"]),
        change_files=tuple(files["cdc"]),
    )


def inside(path: LakePath, name: str) -> LakePath:
    """The file that an action names. Ours are all below the table; a path outside it is refused.

    Raises:
        CorruptState: it is outside.
    """
    relative = PurePosixPath(unquote(name))
    try:
        if "://" not in name and not relative.is_absolute() and ".." not in relative.parts:
            return path / str(relative)
    except KeyRefused:
        pass
    raise CorruptState(
        sentence("the log of '{}' names a file outside the table: '{}'", table_at(path), name), where=str(path)
    )
