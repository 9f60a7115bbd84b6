"""Follow a table: bring a replica from nothing to LIVE, and keep it at the table's head from then on.

    REGISTERED ──lease at V──> RESTORING ──all rows of V──> VERIFIED ──each version from V+1──> LIVE
         ^                         │                            │
         └── V is gone ────────────┴── the feed is gone, the table was replaced, or the rows do not fit

A feed with a gap is never read over: the answer is the newest version, from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.state_store.commits import TableVersion
from strandline.state_store.delta import log, reader, rows
from strandline.state_store.delta.rows import Wanted, rows_of
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest
from strandline.state_store.errors import DuplicateKey, InputReplaced, NegativeWeight, ReplicaDiverged, VersionGone
from strandline.state_store.layout import table_at
from strandline.state_store.leases import ReaderLease
from strandline.state_store.replicas.state import Phase
from strandline.state_store.tablespec import arrow_schema
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.state_store.commits import Head
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath
    from strandline.state_store.replicas.replica import Replica


# The rows of one version of a table, loaded into a replica piece by piece, and verified.
#
#     files of the snapshot at V, in the order of their names ──> pieces ──> one write each: rows and how far they reach
#
# So a restore that is killed goes on with the next piece: the files of a version, and the rows that are live in them,
# are the same at every look.

PIECE_ROWS: Final = 1 << 16
"""Rows in one write: what a kill costs, some 0.2 s of work, and what a restore holds in memory."""


def restore(table: LakePath, replica: Replica, report: Report) -> None:
    """Load what is missing of the version that the replica is RESTORING from, and verify it.

    Raises:
        VersionGone: the version, or a file of it, is gone.
        CorruptState: a file of the table is broken.
        ReplicaDiverged: the rows that were stored are not those of the table.
    """
    assert replica.state.at is not None
    version = replica.state.at.version
    snapshot = read_snapshot(table, version)
    expected = _expected(table, snapshot)
    clock = Clock(version, expected.count, replica.state.rows)
    report(clock.progress(replica.state.rows))
    for file in sorted(snapshot.files):
        if file < replica.state.file:
            continue
        skipped = replica.state.file_rows if file == replica.state.file else 0
        for piece in _pieces(table, snapshot, file, replica.layout.schema, skipped):
            replica.load(piece, file)
            report(clock.progress(replica.state.rows))
    replica.verify(expected)


def _expected(table: LakePath, snapshot: Snapshot) -> Digest:
    """The digest that the table's record states; of a record without one, that of its rows."""
    stated = reader.record_at(table, snapshot.version).digest
    return Digest.parse(stated) if stated else reader.digest_of_rows(table, snapshot)


def _pieces(
    table: LakePath, snapshot: Snapshot, file: str, visible: pa.Schema, skipped: int
) -> Iterator[pa.RecordBatch]:
    """The live rows of one file but for the first ones."""
    alone = replace(snapshot, files={file: snapshot.files[file]})
    wanted = Wanted(arrow_schema(snapshot.metadata["schemaString"]), tuple(visible.names), {})
    for batch in rows_of(table, alone, wanted):
        if skipped >= batch.num_rows:
            skipped -= batch.num_rows
            continue
        for start in range(skipped, batch.num_rows, PIECE_ROWS):
            yield batch.slice(start, PIECE_ROWS)
        skipped = 0


# Progress of a restore, and when it will be done.


@dataclass(frozen=True)
class RestoreProgress:
    """A moment of a restore.

    Attributes:
        version: the version that is being restored.
        rows: rows that are loaded, by this process or one that was killed before.
        total: rows to load; 0 if it is not known.
        seconds: how long this process has been at it.
        resumed: the rows that were there when it began.
    """

    version: int
    rows: int
    total: int
    seconds: float
    resumed: int = 0

    @property
    def share(self) -> float:
        """The loaded share, from 0 to 1."""
        return min(1.0, self.rows / self.total) if self.total else 1.0

    @property
    def rows_per_second(self) -> float:
        return (self.rows - self.resumed) / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The expected time to the end, at the speed so far; None until there is one."""
        speed = self.rows_per_second
        return max(0, self.total - self.rows) / speed if speed else None

    def __str__(self) -> str:
        left = self.seconds_left
        when = "" if left is None else f", {left:.0f} s left"
        return f"version {self.version}: {self.rows:,} of {self.total:,} rows ({self.share:.0%}){when}"


Report = Callable[[RestoreProgress], None]


class Clock:
    """The measure of one restore.

    Args:
        rows: rows that are loaded already.
    """

    def __init__(self, version: int, total: int, rows: int) -> None:
        self._version, self._total, self._rows = version, total, rows
        self._since = time.monotonic()

    def progress(self, rows: int) -> RestoreProgress:
        """The progress when so many rows are loaded."""
        return RestoreProgress(self._version, rows, self._total, time.monotonic() - self._since, self._rows)


ATTEMPTS: Final = 3
"""Of one call: what was there when it began, a restore from nothing, and another one because a clean-up overtook that.
What fails then is the table's fault."""

# What a restore from nothing mends. A broken table is not among it: the rows that are there stay and are served.
_BEGIN_ANEW: Final = (VersionGone, InputReplaced, ReplicaDiverged, NegativeWeight, DuplicateKey)


def _silent(progress: RestoreProgress) -> None:
    """A report that nobody reads."""


class Follower:
    """A replica and the table that it follows.

    Args:
        table: the folder of the table.
        reader_name: the name of the lease; one for each replica, the same at each start.
        report: told of each piece of a restore.
    """

    def __init__(self, table: LakePath, replica: Replica, reader_name: str, report: Report = _silent) -> None:
        self._table = table
        self._replica = replica
        self._lease = ReaderLease(table, reader_name)
        self._report = report
        self._checked = False

    def catch_up(self) -> TableVersion:
        """Bring the replica to the head that the table has at the start; return the version that it is at then.

        A kill at any point is harmless, and so is a write that has no answer: the next call goes on where this one was.

        Raises:
            TableMissing: there is no table.
            ForeignWrite: another tool changed rows. The replica stays at the version before.
            CorruptState: the table is broken, or the replica's store. The replica stays as it is.
            InputReplaced: the table has other columns; open the replica anew.
            VersionGone, ReplicaDiverged, NegativeWeight, DuplicateKey: also a restore from nothing met it.
            Others: as of `Store.write`.
        """
        attempt = 1
        self._replica.look()
        while True:
            head = self._head()
            try:
                if not self._checked:
                    self._replica.check_kept()
                    self._checked = True
                if self._replica.state.phase in (Phase.REGISTERED, Phase.RESTORING):
                    self._restore(head)
                return self._follow(head)
            except _BEGIN_ANEW:
                if attempt == ATTEMPTS:
                    raise
                attempt += 1
                self._replica.begin()

    def leave(self) -> None:
        """Stop following and withdraw the lease."""
        self._lease.withdraw()

    def _head(self) -> Head:
        head = reader.head(self._table)
        if head is None:
            raise log.missing(self._table)
        if self._replica.state.at is None or not head.at.same(self._replica.state.at):
            found, ours = reader.schema(self._table, head.version), self._replica.layout.schema
            if not found.equals(ours):
                raise InputReplaced(
                    sentence("the columns of '{}' are others than those of its replica", table_at(self._table)),
                    where=str(self._table),
                    hint="open the replica anew, with the table's columns",
                )
        return head

    def _restore(self, head: Head) -> None:
        """Restore the version that was begun, or the head."""
        at = self._replica.state.at
        if self._replica.state.phase is Phase.REGISTERED or at is None:
            # Rows of a kill inside `begin` may be there still.
            self._replica.begin()
            self._lease.publish(head.version)
            self._replica.begin_restore(head.at)
        else:
            self._lease.publish(at.version)
            self._check(at)
        restore(self._table, self._replica, self._report)

    def _follow(self, head: Head) -> TableVersion:
        """Take in the versions up to the head, one by one."""
        at = self._replica.state.at
        assert at is not None
        self._lease.renew(at.version)
        self._check(at)
        for commit in log.read_history(self._table, at.version, head.version):
            changes = rows.changes_of(self._table, commit, self._replica.layout.schema)
            at = _at(commit, at)
            self._replica.apply(changes, at, _stated_digest(commit))
            self._lease.renew(at.version)
        self._replica.go_live()
        return at

    def _check(self, at: TableVersion) -> None:
        """Raise InputReplaced if that commit of the table is another one now, VersionGone if it is not there."""
        if not reader.version_at(self._table, at.version).same(at):
            raise InputReplaced(sentence("version {} of '{}' is another commit now", at.version, table_at(self._table)))


def _at(commit: Commit, before: TableVersion) -> TableVersion:
    """What a commit makes of the version before: one without a record, such as OPTIMIZE, has no mark of its own."""
    if commit.record is None:
        return TableVersion(commit.version, before.table, before.nonce)
    return TableVersion(commit.version, commit.record.table, commit.record.nonce)


def _stated_digest(commit: Commit) -> Digest | None:
    if commit.record is None or not commit.record.digest:
        return None
    return Digest.parse(commit.record.digest)
