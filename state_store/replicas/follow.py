"""The way of a replica from nothing to LIVE, and behind the table's head from then on.

    REGISTERED ──lease at V──> RESTORING ──all rows of V──> VERIFIED ──each version from V+1──> LIVE
         ^                         │                            │
         └── V is gone ────────────┴── the feed is gone, the table was replaced, or the rows do not fit

A feed with a gap is never read over: the answer is the newest version, from the beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.state_store.commits import TableVersion
from strandline.state_store.delta import feed, log, reader
from strandline.state_store.errors import DuplicateKey, InputReplaced, NegativeWeight, ReplicaDiverged, VersionGone
from strandline.state_store.hashing.digest import Digest
from strandline.state_store.layout import table_at
from strandline.state_store.leases import ReaderLease
from strandline.state_store.replicas.restore import restore
from strandline.state_store.replicas.state import Phase
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from strandline.state_store.commits import Head
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.paths import LakePath
    from strandline.state_store.replicas.progress import Progress, Report
    from strandline.state_store.replicas.replica import Replica

ATTEMPTS: Final = 3
"""Of one call: what was there when it began, a restore from nothing, and another one because a clean-up overtook that.
What fails then is the table's fault."""

# What a restore from nothing mends. A broken table is not among it: the rows that are there stay and are served.
_BEGIN_ANEW: Final = (VersionGone, InputReplaced, ReplicaDiverged, NegativeWeight, DuplicateKey)


def _silent(progress: Progress) -> None:
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
        """Bring the replica to the table's head as it is when this begins; the version that it is at then.

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
        """Follow no more: the lease is given back."""
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
            changes = feed.changes_of(self._table, commit, self._replica.layout.schema)
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
