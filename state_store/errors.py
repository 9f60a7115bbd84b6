"""The root of the error tree, and the errors of the store itself.

    StrandlineError                   code                        action
    ├── SettingsError                 settings.*                  stop
    ├── ArgumentRefused               python.argument_refused     stop
    ├── StoreError
    │   ├── TableMissing              store.table_missing         stop
    │   ├── TableLost                 store.table_lost            restore
    │   ├── CommitsLost               store.commits_lost          restore
    │   ├── VersionGone               store.version_gone          restore
    │   ├── ForeignWrite              store.foreign_write         stop
    │   ├── InputReplaced             store.input_replaced        restore
    │   ├── CommitConflict            store.commit_conflict       retry
    │   ├── WriterBusy                store.writer_busy           retry
    │   ├── LockLost                  store.lock_lost             retry
    │   ├── VectorMismatch            store.vector_mismatch       retry
    │   ├── NegativeWeight            store.negative_weight       stop
    │   ├── DuplicateKey              store.duplicate_key         stop
    │   ├── ReplicaDiverged           store.replica_diverged      restore
    │   ├── ReplicaNotReady           store.replica_not_ready     retry
    │   ├── CorruptState              store.corrupt               restore
    │   │   └── ReplicaCorrupt        store.replica_corrupt       restore
    │   ├── LeaseHeld                 store.lease_held            retry
    │   ├── BackupBroken              store.backup_broken         stop
    │   ├── LakeNotEmpty              store.lake_not_empty        stop
    │   ├── DiskFailed                store.disk                  retry
    │   ├── ObjectMissing             store.object_missing        stop
    │   ├── KeyRefused                store.key_refused           stop
    │   ├── StorageDenied             store.storage_denied        stop
    │   └── StorageUnavailable        store.storage_unavailable   retry
    ├── InternalError                 internal                    stop
    ├── SqlError …                    see jobs/model/errors.py
    └── SourceError …                 see jobs/model/errors.py

Every error says what happened, where, and what to type next. `code` is stable: scripts and tests match on it,
never on the sentence. `action` says what the operator should do: retry, restore, or stop and look.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

HINTED: Final = "\n  hint: "
"""Between an error's sentence and its hint, where both are one text."""


class Action(StrEnum):
    """The action that an error asks for."""

    RETRY = "retry"
    RESTORE = "restore"
    STOP = "stop"


class StrandlineError(Exception):
    """Base of all errors that Strandline raises on purpose.

    Args:
        message: one sentence: what happened, with the names involved in quotes.
        where: the place: a table, a file, `line 3, column 14`.
        hint: what to type or change next.
    """

    code: str = "strandline"
    action: Action = Action.STOP

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        hint = f"{HINTED}{self.hint}" if self.hint else ""
        return f"[{self.code}] {self.message}{place}{hint}"

    @classmethod
    def revived(cls, message: str, hint: str | None) -> StrandlineError:
        """Build the error again from its printed words; a class of other arguments says what stands for those."""
        return cls(message, hint=hint)

    def attrs(self) -> dict[str, str | None]:
        """The error as data, for JSON output and logs."""
        return {
            "code": self.code,
            "action": self.action.value,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
        }


class SettingsError(StrandlineError):
    """A setting is missing or wrong. Stop: correct `strandline.toml` or the environment."""

    code = "settings.invalid"


class ArgumentRefused(StrandlineError, TypeError):
    """An argument of the Python API is of a kind that it does not take. Stop: correct the call.

    It is a TypeError too, as Python's own functions raise one.
    """

    code = "python.argument_refused"


class InternalError(StrandlineError):
    """Something happened that nobody expected: a fault of Strandline. Stop: report it. What was committed stays."""

    code = "internal"


class StoreError(StrandlineError):
    """Base of the errors of tables, changelogs and their commits."""

    code = "store"


class TableMissing(StoreError):
    """A table of the lake is not there. Stop: check the lake's root, or run the pipeline once."""

    code = "store.table_missing"


class TableLost(StoreError):
    """A table that had commits is not there any more. Restore: put its folder back, or rebuild it from its inputs."""

    code = "store.table_lost"
    action = Action.RESTORE


class CommitsLost(StoreError):
    """A table has lost its newest commits: others were computed from later ones. Restore: put its folder back, or
    rebuild it."""

    code = "store.commits_lost"
    action = Action.RESTORE


class VersionGone(StoreError):
    """A version or its files were removed (vacuum, log cleanup). Restore: rebuild the reader from a snapshot."""

    code = "store.version_gone"
    action = Action.RESTORE


class ForeignWrite(StoreError):
    """Another tool changed rows of a table that Strandline maintains. Stop: rebuild the table from its inputs."""

    code = "store.foreign_write"


class InputReplaced(StoreError):
    """An input is not the one that a table was computed from: it went back, or was made anew. Rebuild the table."""

    code = "store.input_replaced"
    action = Action.RESTORE


class CommitConflict(StoreError):
    """Another writer committed first. Retry: the next attempt plans from the new head."""

    code = "store.commit_conflict"
    action = Action.RETRY


class WriterBusy(StoreError):
    """Another process holds the writer's lock. Retry when it has ended."""

    code = "store.writer_busy"
    action = Action.RETRY


class LockLost(StoreError):
    """The file of the writer's lock was removed or replaced while it was held. Retry: run again."""

    code = "store.lock_lost"
    action = Action.RETRY


class VectorMismatch(StoreError):
    """The last commit's version vector is not the one the epoch was planned from. Retry: plan again."""

    code = "store.vector_mismatch"
    action = Action.RETRY


class NegativeWeight(StoreError):
    """A row was retracted more often than it was inserted: an upstream fault. Stop the view; nothing was stored."""

    code = "store.negative_weight"


class DuplicateKey(StoreError):
    """Two rows have the same unique key. Stop the view: its key is not unique, or a retraction is missing."""

    code = "store.duplicate_key"


class ReplicaDiverged(StoreError):
    """The rows of a replica are not those of its table. It restores itself from the table's newest version."""

    code = "store.replica_diverged"
    action = Action.RESTORE


class ReplicaNotReady(StoreError):
    """A replica is being restored, or has not come to the version that was asked for. Retry when it has."""

    code = "store.replica_not_ready"
    action = Action.RETRY


class CorruptState(StoreError):
    """A file of the lake is not as it was written. Restore it from history."""

    code = "store.corrupt"
    action = Action.RESTORE


class FormatNewer(CorruptState):
    """Something was stored by a later version of Strandline. Install that version; nothing is read or written."""

    code = "store.format_newer"
    action = Action.STOP


class ReplicaCorrupt(CorruptState):
    """The bytes of a replica are not as they were written. It is made anew from its table."""

    code = "store.replica_corrupt"


class LeaseHeld(StoreError):
    """A clean-up was asked to remove what a reader has leased. Retry when its lease is withdrawn or has ended."""

    code = "store.lease_held"
    action = Action.RETRY


class BackupBroken(StoreError):
    """A file of a backup is missing, or is not as it was written. Stop: restore an older backup, or make a new one."""

    code = "store.backup_broken"


class LakeNotEmpty(StoreError):
    """A restore would write over what is there. Stop: name an empty folder."""

    code = "store.lake_not_empty"


class DiskFailed(StoreError):
    """A local disk is full, broken or read-only. Retry when there is space, or the disk is mended; see `dmesg`.

    Nothing of the write counts, with one exception: when the last flush of a commit fails, the commit stands and may be
    lost with the power. A writer that starts again reads the head first, so it neither loses nor doubles rows.
    """

    code = "store.disk"
    action = Action.RETRY


class ObjectMissing(StoreError, FileNotFoundError):
    """An object or file of the lake is not there, or not its folder. Stop: check the lake's root.

    It is a FileNotFoundError too, so that code over files and over objects catches the same thing.
    """

    code = "store.object_missing"


class KeyRefused(StoreError):
    """A key that leaves the storage's root, or that two kinds of storage would read differently. Stop: a wrong name."""

    code = "store.key_refused"


class StorageDenied(StoreError):
    """The storage refuses: the rights are missing, or it does not know the request. Stop: correct keys or settings."""

    code = "store.storage_denied"


class StorageUnavailable(StoreError):
    """The storage does not answer, or failed. Retry; a write may have been done all the same, so look first."""

    code = "store.storage_unavailable"
    action = Action.RETRY
