"""Snapshot of a version: its live files, from the last checkpoint before it and the commits since.

    checkpoint(v)  ──>  files, table, protocol  ──commit v+1──> … ──commit n──>  snapshot of n

A commit that removes a file and adds it again has given it another deletion vector.

A snapshot is proven when it is made: its files have the rows that its record states, by what the log says of each (see
`RowSums`). A checkpoint from which they do not add up is passed over as one that does not read: an older one, or the
commits alone, may still lead there.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.commits import MEMBER, CommitRecord, Statement, is_record, stated, table_mark
from strandline.state_store.delta import log
from strandline.state_store.delta.entry import decode, rebuild_hint
from strandline.state_store.delta.statistics import RowSums, unbounded
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.files import place_of
from strandline.state_store.layout import name_of, table_at
from strandline.state_store.paths import Location
from strandline.state_store.tablespec import CHECKPOINT_INTERVAL
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from strandline.state_store.delta.entry import Action
    from strandline.state_store.files import Place
    from strandline.state_store.paths import LakePath


_log = logging.getLogger("strandline.store")


@dataclass(frozen=True)
class Snapshot:
    """A table at one version.

    Attributes:
        files: {path as the log has it: the file's `add` action}.
        transactions: {application: the `txn` action}.
        sums: what the log says of the rows of the files.
        record: our newest one since the checkpoint; None: there is none, or another tool has changed rows since.
    """

    version: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sums: RowSums = field(default_factory=RowSums)
    record: CommitRecord | None = None
    changed_since: bool = False
    """Another tool has changed rows since our newest record: nobody states what rows there are."""
    stated: Statement | None = None
    """What our newest entry since the checkpoint states; None: nothing, or another tool has made a commit since."""
    base: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """The files of the checkpoint that it was read from."""

    @property
    def table_id(self) -> str:
        """The identity that the table was given when it was made."""
        return str(self.metadata["id"])

    @property
    def actions(self) -> list[Action]:
        """The actions that a checkpoint of the version holds."""
        live: list[Action] = [{"protocol": dict(self.protocol)}, {"metaData": dict(self.metadata)}]
        live += [{"txn": dict(body)} for body in self.transactions.values()]
        # In a checkpoint no file is news.
        return live + [{"add": {**body, "dataChange": False}} for body in self.files.values()]

    @property
    def schema_json(self) -> str:
        """The stored columns, as Delta's `schemaString`."""
        return str(self.metadata["schemaString"])

    @property
    def difference(self) -> str:
        """What the log says of the rows, where it is not what was committed; empty: it is, or nobody can tell."""
        if self.record is not None and self.record.table not in ("", self.table_id):
            return f"its log is that of another table, '{self.table_id}'"
        if self.stated is not None and self.stated.table != table_mark(self.metadata):
            return "its columns or properties are others by the log"
        found = "" if self.record is None else self.sums.difference(self.record, self.schema_json)
        if not found and self.stated is not None and self.stated.marks.files != self.sums.marks.files:
            return "it has other files by the log, or other deletion vectors"
        return found

    @property
    def vouched(self) -> bool:
        """False if what the log says of the files, their bounds among it, is not what was committed."""
        return self.stated is None or self.stated.marks.said == self.sums.marks.said

    @property
    def statement(self) -> Statement:
        """What the entry of this version states."""
        return Statement(self.version, self.sums.marks, table_mark(self.metadata))


def read_snapshot(path: LakePath, version: int) -> Snapshot:
    """The table at `version`, proven.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log no longer holds the version, or does not hold it yet.
        CorruptState: a commit since the last checkpoint is broken, or the files have not the rows that were committed.
    """
    wrong: CorruptState | None = None
    for first, state in _starts(path, version):
        try:
            found = _after(path, version, state, log.read_entries(path, first, version))
        except VersionGone:
            if wrong is None:
                raise
            break  # without that checkpoint the log does not lead there
        try:
            return _proven(path, found)
        except CorruptState as error:
            if first >= 0:
                _log.warning("the checkpoint of version %d of '%s' is passed over: %s", first, path.name, error.message)
            wrong = wrong or error
    assert wrong is not None, "the log itself is the last of the starts"
    raise wrong


def unproven_snapshot(path: LakePath, version: int) -> Snapshot:
    """The table at `version` as the newest checkpoint and the commits since say, for who looks for what is wrong.

    Raises:
        TableMissing, VersionGone, CorruptState: as of `read_snapshot`, but for the last.
    """
    first, state = next(_starts(path, version))
    return _vouched(path, _with_record(path, _after(path, version, state, log.read_entries(path, first, version))))


def moved_on(path: LakePath, before: Snapshot, commits: Sequence[Sequence[Action]]) -> Snapshot:
    """The table after some more commits, proven.

    Args:
        commits: the actions of each version after `before`.

    Raises:
        CorruptState: one of the commits is broken, or the files have not the rows that were committed.
    """
    state = _State(
        before.metadata,
        before.protocol,
        dict(before.files),
        dict(before.transactions),
        before.sums,
        before.record,
        info={MEMBER: before.stated.as_json()} if before.stated is not None else {},
        base=before.base,
    )
    return _proven(path, _after(path, before.version + len(commits), state, commits))


def _proven(path: LakePath, snapshot: Snapshot) -> Snapshot:
    """The snapshot with its record; without bounds that nobody vouches for. Raises CorruptState: its files have other
    rows."""
    found = _with_record(path, snapshot)
    if found.difference:
        raise CorruptState(
            sentence("the rows of '{}' are not those that were committed: {}", table_at(path), found.difference),
            where=f"{path}, version {found.version}",
            hint=rebuild_hint(name_of(path.name)),
        )
    return _vouched(path, found)


def _vouched(path: LakePath, snapshot: Snapshot) -> Snapshot:
    """The snapshot without bounds that nobody vouches for: no file is left out by what was not committed.

    First those of the checkpoint alone: a commit that found them wrong states what is left.
    """
    if snapshot.vouched:
        return snapshot
    base = snapshot.base
    of_commits = {name: body for name, body in snapshot.files.items() if base.get(name) is not body}
    without = {name: unbounded(body) for name, body in snapshot.files.items()}
    for files in (without | of_commits, without):
        found = replace(snapshot, files=files, sums=reduce(RowSums.plus, files.values(), RowSums()))
        if found.vouched:
            return found
    _log.warning("the statistics of '%s' are others than were committed: it is read without them", path.name)
    return found


def _with_record(path: LakePath, snapshot: Snapshot) -> Snapshot:
    """The snapshot with the record of its own commit, where it came from a checkpoint alone."""
    if snapshot.record is not None or snapshot.changed_since:
        return snapshot
    try:
        record, said = log.read_stated(path, snapshot.version)
        return replace(snapshot, record=record, stated=said)
    except (VersionGone, CorruptState):  # nobody can tell then; who reads that commit is told
        return snapshot


def _after(path: LakePath, version: int, state: _State, commits: Iterable[Sequence[Action]]) -> Snapshot:
    try:
        for actions in commits:
            state.take(actions)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptState(sentence("a commit of '{}' does not read back", table_at(path)), where=str(path)) from error
    if "id" not in state.metadata:
        raise CorruptState(sentence("the log of '{}' says nothing about the table", table_at(path)), where=str(path))
    return Snapshot(
        version,
        state.metadata,
        state.protocol,
        state.files,
        state.transactions,
        state.sums,
        state.newest,
        state.changed_since,
        state.stated,
        state.base,
    )


@dataclass
class _State:
    """A snapshot in the making: one commit after the other is taken in, without a copy for each."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    files: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    sums: RowSums = field(default_factory=RowSums)
    record: CommitRecord | None = None
    changed_since: bool = False
    _said: str | None = None
    """The newest record as text: of the many commits since a checkpoint only the last one's is needed."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Where our newest entry states what the table is."""
    base: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def newest(self) -> CommitRecord | None:
        """Our newest record; None after a commit of another tool that changes rows."""
        return self.record if self._said is None else CommitRecord.from_json(self._said)

    @property
    def stated(self) -> Statement | None:
        """What our newest entry states; None after a commit of another tool."""
        return stated(self.info)

    def take(self, actions: Sequence[Action]) -> None:
        """The actions of the next commit."""
        for action in actions:
            if "remove" in action:
                self._without(action["remove"]["path"])
        for action in actions:
            if "add" in action:
                self._without(action["add"]["path"])
                self.files[action["add"]["path"]] = action["add"]
                self.sums = self.sums.plus(action["add"])
            self.metadata = action.get("metaData", self.metadata)
            self.protocol = action.get("protocol", self.protocol)
            if "txn" in action:
                self.transactions[action["txn"]["appId"]] = action["txn"]
        self._note(actions)

    def _without(self, name: str) -> None:
        before = self.files.pop(name, None)
        if before is not None:
            self.sums = self.sums.plus(before, -1)

    def _note(self, actions: Sequence[Action]) -> None:
        """Note what the commit states of the rows; after one of another tool that changes some, nobody knows."""
        info = log.info_of(actions)
        said = info.get("userMetadata")
        self.info = info if is_record(said) else {}
        if is_record(said):
            self._said, self.changed_since = said, False
        elif any(action.get(name, {}).get("dataChange") for action in actions for name in ("add", "remove")):
            self.record, self._said, self.changed_since = None, None, True


def _starts(path: LakePath, version: int) -> Iterator[tuple[int, _State]]:
    """Where the log may be read from: each checkpoint that reads back, with its version, the newest first; at last −1
    and nothing."""
    for number in dict.fromkeys(log.checkpoints_before(path, version)):
        # Arrow is loaded for it: what reads only heads, plans, or young tables does without.
        from strandline.state_store.delta.checkpoint import live_actions

        actions = live_actions(log.checkpoint_file(path, number))
        if actions is not None:
            state = _State()
            state.take(actions)
            state.changed_since = False
            state.base = dict(state.files)
            yield number, state
    yield -1, _State()


# Snapshots that follow the log: the next version costs the commits in between, not all of them.
#
#     at(t, 7)   checkpoint and commits are read                                   as `read_snapshot` does
#     at(t, 8)   is the entry of 7 the same still? one stat; then entry 8 is taken in
#     at(t, 8)   is the entry of 8 the same still? one stat
#     at(t, 3)   read anew: it is before everything that is kept
#
# A snapshot is kept with the entry it stands on. An entry has a nonce, so as long as it is there as it was,
# everything before it is too. A table that was restored, rolled back or made anew has another one, or none, and is
# read anew.

# A refresh reads an input as it was and as it is, and its own table before and after its commit.
_VERSIONS = 2
_NOWHERE: Final = (0, 0, 0, 0)
"""The place of an entry that was not read: its content tells."""


@dataclass(frozen=True)
class _Mark:
    """What tells an entry from another one under its name.

    Attributes:
        place: of the file. As long as it is the same the bytes are not looked at.
        content: a hash of the bytes.
    """

    place: Place
    content: bytes


@dataclass(frozen=True)
class _Kept:
    """A snapshot, and the entry of its version as it was read."""

    snapshot: Snapshot
    mark: _Mark


class Snapshots:
    """The newest snapshots of some tables, for a process that refreshes them again and again. Threads may share it.

    Measured with 10,000 live files (timeit, best of many on 2 busy cores): `read_snapshot` 800 ms, from a checkpoint
    25 commits back; `at` for the next version 0.3 ms, of which 0.1 ms is a copy of the list of files; for the same
    version again 9 µs. Memory: the list of files once for each kept version, their bodies once.

    Args:
        tables: how many tables to keep at least; the one that was asked for longest ago goes first.
        files: of as many live files in all, further tables are kept.
    """

    def __init__(self, tables: int = 100, files: int = 1 << 15) -> None:
        self._tables = tables
        self._most_files = files
        self._files = 0
        self._kept: OrderedDict[LakePath, tuple[_Kept, ...]] = OrderedDict()
        self._lock = Lock()

    def at(self, path: LakePath, version: int) -> Snapshot:
        """The table at `version`, as `read_snapshot` gives it, and with its errors.

        On an object store it is read anew: to ask whether an entry is the same costs as much as to read it.
        """
        if isinstance(path, Location):
            return read_snapshot(path, version)
        for kept in sorted(self._of(path), key=_version, reverse=True):
            behind = version - kept.snapshot.version
            # Further back a checkpoint is cheaper than the commits since.
            if 0 <= behind <= CHECKPOINT_INTERVAL and _stands(path, kept):
                found = self._moved_on(path, kept, version)
                if found is not None:
                    return found
        return self._read(path, version)

    def note(self, path: LakePath, snapshot: Snapshot, data: bytes) -> None:
        """Keep the snapshot of a version that this process has just made: its entry need not be read.

        Args:
            snapshot: proven.
            data: the entry, with which the file is compared when it is asked for.
        """
        if isinstance(path, Path):
            self._keep(path, _Kept(snapshot, _Mark(_NOWHERE, _content(data))))

    def forget(self, path: LakePath) -> None:
        """Forget a table."""
        with self._lock:
            self._files -= _files(self._kept.pop(path, ()))

    def _moved_on(self, path: Path, kept: _Kept, version: int) -> Snapshot | None:
        """The snapshot of `version`, made from an earlier one; None where the log does not lead from it to there."""
        if kept.snapshot.version == version:
            return kept.snapshot
        commits: list[list[Action]] = []
        mark = kept.mark
        for number in range(kept.snapshot.version + 1, version + 1):
            file = _entry_file(path, number)
            try:
                mark, data = _read_entry(file)
                actions, record = decode(data, file)
            except (FileNotFoundError, CorruptState):
                return None  # a checkpoint may lead past it
            if record is not None and record.table not in ("", kept.snapshot.table_id):
                return None
            commits.append(actions)
        try:
            found = moved_on(path, kept.snapshot, commits)
        except CorruptState:
            return None  # the log read from its beginning says what is wrong with it
        # Once more: the table may have been replaced while its entries were read.
        if not _stands(path, kept):
            return None
        self._keep(path, _Kept(found, mark))
        return found

    def _read(self, path: Path, version: int) -> Snapshot:
        try:
            mark = _read_entry(_entry_file(path, version))[0]
        except FileNotFoundError:
            return read_snapshot(path, version)
        kept = _Kept(read_snapshot(path, version), mark)
        if _stands(path, kept):
            self._keep(path, kept)
        return kept.snapshot

    def _of(self, path: Path) -> tuple[_Kept, ...]:
        with self._lock:
            if path in self._kept:
                self._kept.move_to_end(path)
            return self._kept.get(path, ())

    def _keep(self, path: Path, kept: _Kept) -> None:
        with self._lock:
            before = self._kept.get(path, ())
            others = (each for each in before if _version(each) != _version(kept))
            self._kept[path] = (kept, *others)[:_VERSIONS]
            self._kept.move_to_end(path)
            self._files += _files(self._kept[path]) - _files(before)
            while len(self._kept) > self._tables and self._files > self._most_files:
                self._files -= _files(self._kept.popitem(last=False)[1])


def _files(kept: tuple[_Kept, ...]) -> int:
    return 1 + len(kept[0].snapshot.files) if kept else 0


def _version(kept: _Kept) -> int:
    return kept.snapshot.version


def _stands(path: Path, kept: _Kept) -> bool:
    """True if the entry of the snapshot's version is there as it was read."""
    file = _entry_file(path, kept.snapshot.version)
    try:
        return place_of(file.stat()) == kept.mark.place or _read_entry(file)[0].content == kept.mark.content
    except FileNotFoundError:
        return False


def _entry_file(path: Path, version: int) -> Path:
    file = log.commit_file(path, version)
    assert isinstance(file, Path), "on a disk"
    return file


def _read_entry(file: Path) -> tuple[_Mark, bytes]:
    """The bytes of an entry, and their mark. Raises FileNotFoundError."""
    with file.open("rb") as opened:
        place = place_of(os.fstat(opened.fileno()))
        data = opened.read()
    return _Mark(place, _content(data)), data


def _content(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
