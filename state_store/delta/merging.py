"""Merging by the writer: now and then after an epoch's commit, never instead of it.

A small merge is carried out there and then. A large one is written by a thread while the epochs go on, and committed
after the first epoch that finds it written:

    epoch 14   looks at its files: eight of 100,000 rows ──begin──> rewrite, in a thread
    epoch 15   deletes rows of these files
    epoch 16   finds it written ──> commit, with the rows that epoch 15 deleted deleted in the new file

Only the process that makes a table's epochs merges it, under the same lock. One that dies leaves files that no commit
names. The files of a merge that lasted too long, or was overtaken by another one, are removed; the table looks again.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.compaction import commit_rewritten, compact, plan_compaction, rewrite
from strandline.state_store.delta.snapshot import Snapshots, read_snapshot
from strandline.state_store.errors import CommitConflict, StoreError

if TYPE_CHECKING:
    from strandline.state_store.commits import Head
    from strandline.state_store.delta.compaction import CompactionPlan, Rewritten
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath
    from strandline.state_store.tablespec import TableSpec

_log = logging.getLogger("strandline.store")

EVERY: Final = 16
"""Versions between two looks. Planning opens the table, some milliseconds; shared by so many commits it is nothing, and
in between a table grows by 16 files at most. Tables whose epochs go together look in different ones."""

BESIDE_ROWS: Final = 100_000
"""A merge of more rows is written beside the epochs: in line it is some 25 ms of an epoch at this size, and 0.3 s for a
million rows (docs/design/0059-merges-beside-the-epochs.md)."""

_FAULTS: Final = (OSError, StoreError, pa.ArrowException, ValueError)
"""What a merge may fail of: the table is as it was, and the next look is 16 versions away."""


@dataclass(frozen=True)
class _Running:
    path: LakePath
    spec: TableSpec
    written: Future[Rewritten]


class BackgroundMerges:
    """The large merges of a process, one after the other in a thread. Safe for several threads, of which no two are at
    work on one table.

    Args:
        fewest_rows: of a merge that is not carried out in line.
    """

    def __init__(self, fewest_rows: int = BESIDE_ROWS) -> None:
        self.fewest_rows = fewest_rows
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="strandline-merge")
        self._lock = Lock()
        self._running: dict[str, _Running] = {}

    def begin(self, path: LakePath, spec: TableSpec, snapshot: Snapshot, plan: CompactionPlan, epoch: int) -> None:
        """Begin to write the files of a plan."""
        written = self._thread.submit(rewrite, path, spec, snapshot, plan, epoch)
        with self._lock:
            self._running[str(path)] = _Running(path, spec, written)

    def of(self, path: LakePath) -> Future[Rewritten] | None:
        """The merge of a table that is being written, or is written and not committed; None: there is none."""
        with self._lock:
            running = self._running.get(str(path))
        return None if running is None else running.written

    def forget(self, path: LakePath) -> None:
        """The merge of a table is committed, or failed."""
        with self._lock:
            self._running.pop(str(path), None)

    def finish(self, *, begun: bool = False) -> None:
        """Wait for the merges, and commit them: for a process that makes no further epoch, while it has the lock.

        Args:
            begun: only those that are being written or are; the others are left to the next process.
        """
        with self._lock:
            running = list(self._running.values())
        for each in running:
            if begun and each.written.cancel():
                self.forget(each.path)
                continue
            each.written.exception()
            head = reader.head(each.path)
            if head is not None:
                maintain_files(each.path, each.spec, head, beside=self)

    def close(self) -> None:
        """Wait for the merge that is being written, and remove what is not committed."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            running, self._running = list(self._running.values()), {}
        for each in running:
            if not each.written.cancelled() and each.written.exception() is None:
                each.written.result().staged.discard()


def maintain_files(
    path: LakePath,
    spec: TableSpec,
    head: Head,
    snapshots: Snapshots | None = None,
    beside: BackgroundMerges | None = None,
) -> Head | None:
    """Merge the table's files if they call for it: the head of that commit, None when there was none.

    To be called after each commit, by the process that made it. A failure is logged and nothing else.

    Args:
        snapshots: those that the process keeps; without them the table is opened anew.
        beside: of the process; without them every merge is carried out in line.
    """
    opened = read_snapshot if snapshots is None else snapshots.at
    written = None if beside is None else beside.of(path)
    try:
        if written is not None and beside is not None:
            if not written.done():
                return None
            beside.forget(path)
            return _said(path, commit_rewritten(path, head, opened(path, head.version), written.result()))
        if not log.has_turn(path, head.version, EVERY):
            return None
        snapshot = opened(path, head.version)
        plan = plan_compaction(snapshot)
        if not plan.merges:
            return None
        if beside is not None and sum(merge.rows for merge in plan.merges) >= beside.fewest_rows:
            beside.begin(path, spec, snapshot, plan, head.record.epoch)
            return None
        return _said(path, compact(path, spec, head, snapshot, plan))
    except CommitConflict as error:
        _log.info("no compaction of '%s': %s", path.name, error.message)
    except _FAULTS as error:
        _log.warning("no compaction of '%s' at version %d: %s", path.name, head.version, error)
    return None


def _said(path: LakePath, made: Head) -> Head:
    _log.debug("compacted '%s': %s", path.name, made.record.reason)
    return made
