"""The replicas of a server: one for each view that was looked up by key, each followed by a thread of its own.

    first look-up ──> restored from the table ──> LIVE ──> answers          meanwhile: the table answers
                            ^      └─ told of a commit ──> next version ──┘
                            └── made anew ── its store failed, in a read or a write

A replica answers while it has been at its table's head some seconds ago, and never with an older version than one that
the server has answered with: versions do not go back for a client. When anything fails, the table answers.

Backends of a server's replicas: `strandline serve --replica rocksdb|memory|lmdb|dynamodb`.

RocksDB and LMDB keep a view's rows in a folder, memory in the process until it ends, and DynamoDB in a table that may
hold the replicas of many servers. A library is imported when its backend is chosen; boto3 is an extra.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from strandline.jobs.serve.consistent_snapshot import Notes, Reflected, reflected
from strandline.jobs.serve.keyed import NotByKey
from strandline.jobs.serve.watch import Poller
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import newest_version
from strandline.state_store.errors import (
    CommitConflict,
    CorruptState,
    KeyRefused,
    ObjectMissing,
    ReplicaCorrupt,
    SettingsError,
    StoreError,
    StrandlineError,
    TableMissing,
    WriterBusy,
)
from strandline.state_store.files import make_folder
from strandline.state_store.files import replace as replace_file
from strandline.state_store.layout import safe_name
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout, Phase, ReplicaState
from strandline.state_store.replicas.store import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from strandline.jobs.model.settings import ServerSettings
    from strandline.jobs.model.tables import Relation
    from strandline.jobs.serve.keyed import KeyedPlan
    from strandline.jobs.serve.lookup import KeyValues
    from strandline.jobs.serve.shape import Constants
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.replicas.follow import RestoreProgress
    from strandline.state_store.replicas.state import ReplicaReading, Row
    from strandline.state_store.replicas.store import Store

# Of all replicas of a server together some hundreds of MB: the blocks that are read again and again.
_CACHE_BYTES: Final = 64 << 20


def store_opener(settings: ServerSettings, reader_name: str) -> Callable[[Path], Store]:
    """Choose the function that opens the store of a view's replica, given the folder of that replica.

    Args:
        reader_name: distinguishes the server's replicas from those of others in one DynamoDB table.

    Raises:
        SettingsError: DynamoDB is chosen, and boto3 is not installed or is not told the region.
    """
    if settings.replica == "memory":
        return _open_memory
    if settings.replica == "lmdb":
        return _open_lmdb
    if settings.replica == "dynamodb":
        client = _dynamodb_client(settings.dynamodb_endpoint)
        return lambda folder: _open_dynamodb(client, settings.dynamodb_table, f"{reader_name}/{folder.name}")
    return open_rocksdb


def open_rocksdb(folder: Path) -> Store:
    """Open a store of RocksDB, the default."""
    from strandline.state_store.replicas.rocksdb import RocksStore

    return RocksStore(folder, _CACHE_BYTES)


def _open_memory(_: Path) -> Store:
    from strandline.state_store.replicas.store import MemoryStore

    return MemoryStore()


def _open_lmdb(folder: Path) -> Store:
    from strandline.state_store.replicas.lmdb import LmdbStore

    return LmdbStore(folder / "lmdb")  # the folder itself may hold the files of RocksDB, from an earlier choice


def _open_dynamodb(client: Any, table: str, replica: str) -> Store:
    from strandline.state_store.replicas.dynamodb import DynamoStore, make_table

    try:
        return DynamoStore(client, table, replica)
    except ObjectMissing:  # asked for only now: the right to make tables is not needed for one that is there
        make_table(client, table)
        return DynamoStore(client, table, replica)


def _dynamodb_client(endpoint: str | None) -> Any:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise SettingsError(
            "replicas in DynamoDB need boto3, which is not installed", hint="type: pip install 'strandline[dynamodb]'"
        ) from error
    try:
        return boto3.client("dynamodb", endpoint_url=endpoint)
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(
            f"replicas in DynamoDB: {error}", hint="set AWS_DEFAULT_REGION, and server.dynamodb_endpoint to a URL"
        ) from error


T = TypeVar("T")

log = logging.getLogger("strandline.server")

_KEPT_VERSIONS = 8
_LATE_SECONDS: Final = 30.0
"""Six looks: a replica whose thread hangs for so long does not know any more how far it is behind."""
_FIRST_PAUSE_SECONDS: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 300.0
"""Between two attempts to make a replica anew, each twice the one before: a restore reads the whole table."""
_READER_FILE: Final = ".reader"
_READER: Final = re.compile(rb"[0-9a-f]{16}")


class Followed(Poller):
    """One view's replica and the thread that follows its table.

    Args:
        folder: of its store.
        reader_name: of its lease.
        open_store: opens the store of a folder.
        remote: a read of a store goes over a network, so it is not made in the event loop.
        moved: called in that thread when there is a new version to read.

    Attributes:
        looked: when it was last at its table's head, by `time.monotonic`.
        absent: there is no table yet: the view's pipeline has not run.
        made_anew: how often its store was thrown away after an error.
    """

    def __init__(
        self,
        relation: Relation,
        lake: LakeLayout,
        folder: Path,
        reader_name: str,
        open_store: Callable[[Path], Store],
        moved: Callable[[str], None],
    ) -> None:
        self.relation = relation
        self._lake = lake
        self._folder = folder
        self._reader_name = reader_name
        self._open_store = open_store
        self._moved = moved
        self._store: Watched | None = None
        self._replica: Replica | None = None
        self._follower: Follower | None = None
        self._standing: dict[int, Reflected] = {}
        self._notes = Notes(lake)
        self.looked = 0.0
        self.absent = False
        self.made_anew = 0
        self._live = False
        self._failing = False
        # The store goes before the next look; and it is to be emptied when it is opened.
        self._broken = self._anew = self._unopened = False
        self._failures = Lock()
        self._strikes, self._struck, self._not_before = 0, 0.0, 0.0
        super().__init__(f"replica {relation.name}")
        self.begin()

    def stop(self) -> None:
        """Answer no more; the thread ends soon, and closes the store."""
        self._live = False
        super().stop()

    @property
    def phase(self) -> str:
        """How far the replica is: `failed` after an error, `late` where its thread hangs."""
        replica = self._replica
        if self._failing:
            return "failed"
        if replica is None:
            return str(Phase.REGISTERED)
        late = replica.state.phase is Phase.LIVE and not self._answers(replica)
        return "late" if late else str(replica.state.phase)

    @property
    def version(self) -> int | None:
        """The version that it answers with; None while it does not answer."""
        replica = self._replica
        at = replica.state.at if replica is not None and self._answers(replica) else None
        return None if at is None else at.version

    def read(self, ask: Callable[[ReplicaReading], T]) -> T | None:
        """What `ask` finds in the replica as it is now; None while it does not answer, and when its store fails.

        Raises: as `ask`.
        """

        def found(replica: Replica) -> T:
            with replica.reading() as now:
                return ask(now)

        return self._asked(found)

    def get(self, key: KeyValues) -> tuple[int, Row | None] | None:
        """The version that it answers with, and the row of a key; None as of `read`.

        Raises:
            KeyRefused: the values do not fit the key's columns.
        """
        return self._asked(lambda replica: replica.get(key))

    def read_rows(self, plan: KeyedPlan, constants: Sequence[Constants]) -> tuple[int, list[Row]] | None:
        """The version, and the rows that a plan's text asks for; None as of `read`.

        Raises:
            NotByKey: a replica does not answer this text.
        """
        if not plan.whole:
            return self.read(lambda now: (now.version, plan.begun(now, constants)))
        keys = plan.keys(constants)
        if len(keys) == 1:
            found = self.get(keys[0])
            return None if found is None else (found[0], plan.shown((found[1],), constants))
        several = self._asked(lambda replica: replica.multi_get(keys))
        return None if several is None else (several[0], plan.shown(several[1], constants))

    def standing(self, version: int) -> Reflected:
        """What a version reflects. Raises as `reflected`."""
        known = self._standing.get(version)
        if known is None:
            known = reflected(self._lake, self.relation.name, version, self._notes)
            self._standing = {**dict(list(self._standing.items())[-_KEPT_VERSIONS:]), version: known}
        return known

    def look(self) -> bool:
        if time.monotonic() < self._not_before:
            return True
        if self._broken:
            self._discard()
        self._unopened = False
        if self._store is not None:
            self._store.failure = None
        try:
            newest_version(self._lake, self.relation.name)  # raises where the table has lost its newest commits
            self._follower = self._follower or self._opened()
            at = self._follower.catch_up()
            if not self._notes.are_the_last:
                self._notes, self._standing = Notes(self._lake), {}
            self.standing(at.version)
            self._at_head()
            self._moved(self.relation.name)
        except TableMissing:
            self._live, self.absent = False, True
        except StrandlineError as error:
            self._live, self._failing = False, True
            store_failed = self._unopened or (self._store is not None and self._store.failure is not None)
            if store_failed or isinstance(error, ReplicaCorrupt):
                self._failed(error)
            else:
                self._told(error)  # it is the table that fails, and no new replica would mend that
        except Exception as error:
            self._live, self._failing = False, True
            self._failed(error)
            raise
        return True

    def _asked(self, ask: Callable[[Replica], T]) -> T | None:
        """What a reader asks of the replica; None while it does not answer, and when its store fails."""
        replica = self._replica
        if replica is None or not self._answers(replica):
            return None
        store = self._store
        try:
            return ask(replica)
        except (KeyRefused, NotByKey):
            raise
        except Exception as error:
            if replica is not self._replica or not self._live:
                return None  # it was closed, or is being made anew, since it was asked
            if isinstance(error, CorruptState) or (store is not None and store.failure is not None):
                self._live, self._failing = False, True
                self._failed(error)
                self.wake()
                return None
            raise

    def _answers(self, replica: Replica) -> bool:
        return self._live and replica.state.phase is Phase.LIVE and time.monotonic() - self.looked < _LATE_SECONDS

    def _at_head(self) -> None:
        """Answer from now on, unless a reader has met a broken store meanwhile."""
        with self._failures:
            if not self._broken:
                self.looked = time.monotonic()
                self._live, self._failing, self.absent = True, False, False

    def _failed(self, error: Exception) -> None:
        """Note that the store failed. A broken one goes at once, another when it fails again: a disk may have been full
        for a moment. Called by readers too."""
        self._told(error)
        if isinstance(error, WriterBusy | CommitConflict):
            return  # another process works with it
        with self._failures:
            now = time.monotonic()
            if now - self._struck > 2 * _LONGEST_PAUSE_SECONDS:
                self._strikes = 0
            self._strikes, self._struck = self._strikes + 1, now
            self._broken = self._broken or isinstance(error, CorruptState) or self._strikes > 1
            if self._strikes > 2:
                self._not_before = now + min(_FIRST_PAUSE_SECONDS * 2 ** (self._strikes - 3), _LONGEST_PAUSE_SECONDS)
        if self._broken:
            self.wake()

    def _told(self, error: Exception) -> None:
        about = error.attrs() if isinstance(error, StrandlineError) else {"message": str(error)}
        log.warning("the replica of a view stands still", extra={"view": self.relation.name, "error": about})

    def _run(self) -> None:
        super()._run()
        if self._store is not None:
            with suppress(StoreError):
                self._store.close()

    def _discard(self) -> None:
        """Throw the store away: what is wrong with it, nothing of it is needed."""
        store, self._store, self._replica, self._follower = self._store, None, None, None
        if store is not None:
            with suppress(Exception):  # a store that does not even close goes all the same
                store.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._standing = {}
        self.made_anew += 1
        self._broken, self._anew = False, True

    def _opened(self) -> Follower:
        table = self._lake.table(self.relation.name)
        layout = Layout(reader.schema(table), self.relation.key or None)
        if self._store is None:
            try:
                self._store = Watched(self._open_store(self._folder))
            except Exception:
                self._unopened = True
                raise
        if self._anew:
            self._store.clear(ReplicaState(layout.fingerprint).to_bytes())
            self._anew = False
        self._replica = Replica(self.relation.name, self._store, layout)
        return Follower(table, self._replica, self._reader_name, self._restoring)

    def _restoring(self, _: RestoreProgress) -> None:
        """What is known of versions goes: of a table that was made anew they have the numbers of others."""
        self._standing = {}


class Replicas:
    """The replicas of a server, made when they are asked for. Any thread may ask.

    Args:
        folder: for their stores; of this server alone.
        moved: called with the name of a view when its replica has a new version.
        open_store: opens the store of a folder.

    Raises:
        DiskFailed: the folder cannot be written.
    """

    def __init__(
        self,
        lake: LakeLayout,
        folder: Path,
        moved: Callable[[str], None],
        open_store: Callable[[Path], Store] = open_rocksdb,
        *,
        remote: bool = False,
    ) -> None:
        self.remote = remote
        self._lake = lake
        self._folder = folder
        self._moved = moved
        self._open_store = open_store
        self.reader_name = reader_of(folder)
        self._lock = Lock()
        self._followed: dict[str, Followed] = {}

    def of(self, relation: Relation) -> Followed | None:
        """The replica of a view; None for a stream, which is read from its table, and between two replicas."""
        if relation.storage == "append":
            return None
        found = self._followed.get(relation.name)
        if found is not None and found.relation == relation:
            return found
        with self._lock:
            found = self._followed.get(relation.name)
            if found is not None and found.relation != relation:
                # The view was made anew with other columns: the store is opened again once it is closed.
                found.stop()
                if not found.ended:
                    return None
                found = None
            if found is None:
                folder = self._folder / safe_name(relation.name)
                found = Followed(relation, self._lake, folder, self.reader_name, self._open_store, self._moved)
                self._followed[relation.name] = found
            return found

    def find(self, view: str) -> Followed | None:
        """The replica of a view if there is one."""
        return self._followed.get(view)

    def told(self, table: str) -> None:
        """A table may have a new version."""
        if table in self._followed:
            self._followed[table].wake()

    def names(self) -> list[str]:
        """Those that there are."""
        return list(self._followed)

    def all(self) -> list[Followed]:
        """Those that there are."""
        return list(self._followed.values())

    def close(self) -> None:
        """End all of them."""
        for each in self.all():
            each.close()


def reader_of(folder: Path) -> str:
    """Find the name by which this folder's replicas lease versions: another one for each server of a lake, the same at
    each start of one, lost with its replicas."""
    file = folder / _READER_FILE
    known = file.read_bytes() if file.exists() else b""
    if not _READER.fullmatch(known):
        make_folder(folder)
        known = uuid4().hex[:16].encode()
        replace_file(file, known)
    return f"serve-{known.decode()}"
