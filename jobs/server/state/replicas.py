"""The replicas of a server: one for each view that was looked up by key, each followed by a thread of its own.

    first look-up ──> restored from the table ──> LIVE ──> answers          meanwhile: the table answers
                                   └─ told of a commit ──> next version ──┘

A replica answers when it has been at the table's head once since the server started, and never with an older version
than one that the server has answered with: versions do not go back for a client.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from jobs.serve.looking import Looking
from jobs.serve.reflected import Reflected, reflected
from state_store.delta import reader
from state_store.errors import StrandlineError, TableMissing
from state_store.layout import safe_name
from state_store.replicas.follow import Follower
from state_store.replicas.layout import Layout
from state_store.replicas.replica import Replica
from state_store.replicas.rocksdb.store import RocksStore
from state_store.replicas.state import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jobs.model.relation import Relation
    from jobs.serve.lookup import KeyValues
    from state_store.layout import Lake
    from state_store.replicas.progress import Progress
    from state_store.replicas.reading import Reading, Row

log = logging.getLogger("strandline.server")

# Of all replicas of a server together some hundreds of MB: the blocks that are read again and again.
_CACHE_BYTES = 64 << 20
_KEPT_VERSIONS = 8


class Followed(Looking):
    """One view's replica and the thread that follows its table.

    Args:
        moved: called in that thread when there is a new version to read.

    Attributes:
        looked: when it was last at its table's head, by `time.monotonic`.
        absent: there is no table yet: the view's pipeline has not run.
    """

    def __init__(self, relation: Relation, lake: Lake, folder: Path, moved: Callable[[str], None]) -> None:
        self.relation = relation
        self._lake = lake
        self._folder = folder / safe_name(relation.name)
        self._moved = moved
        self._replica: Replica | None = None
        self._live = False
        self._standing: dict[int, Reflected] = {}
        self.looked = 0.0
        self.absent = False
        self._follower: Follower | None = None
        super().__init__(f"replica {relation.name}")
        self.begin()

    def stop(self) -> None:
        """Answer no more; the thread ends soon, and closes the store."""
        self._live = False
        super().stop()

    @property
    def phase(self) -> str:
        """How far the replica is."""
        return str(self._replica.state.phase if self._replica is not None else Phase.REGISTERED)

    @property
    def version(self) -> int | None:
        """The version that it answers with; None while it does not answer."""
        at = self._replica.state.at if self._replica is not None and self._live else None
        return None if at is None else at.version

    @contextmanager
    def reading(self) -> Iterator[Reading | None]:
        """The replica as it is now; None while it does not answer."""
        if self._replica is None or not self._live or self._replica.state.phase is not Phase.LIVE:
            yield None
            return
        with self._replica.reading() as now:
            yield now

    def get(self, key: KeyValues) -> tuple[int, Row | None] | None:
        """The version that it answers with, and the row of a key; None while it does not answer.

        Raises: as `Replica.get`.
        """
        replica = self._replica
        if replica is None or not self._live or replica.state.phase is not Phase.LIVE:
            return None
        return replica.get(key)

    def standing(self, version: int) -> Reflected:
        """What a version reflects. Raises as `reflected`."""
        known = self._standing.get(version)
        if known is None:
            known = reflected(self._lake, self.relation.name, version)
            self._standing = {**dict(list(self._standing.items())[-_KEPT_VERSIONS:]), version: known}
        return known

    def look(self) -> bool:
        try:
            self._follower = self._follower or self._opened()
            at = self._follower.catch_up()
            self.looked = time.monotonic()
            self.standing(at.version)
            self._live, self.absent = True, False
            self._moved(self.relation.name)
        except TableMissing:
            self.absent = True
        except StrandlineError as error:
            log.warning(
                "the replica of a view stands still", extra={"view": self.relation.name, "error": error.attrs()}
            )
        return True

    def _run(self) -> None:
        super()._run()
        if self._replica is not None:
            self._replica.close()

    def _opened(self) -> Follower:
        name = self.relation.name
        table = self._lake.table(name)
        layout = Layout(reader.schema(table), self.relation.key or None)
        self._replica = Replica(name, RocksStore(self._folder, _CACHE_BYTES), layout)
        return Follower(table, self._replica, f"serve-{self._folder.parent.name}", self._restoring)

    def _restoring(self, _: Progress) -> None:
        """What is known of versions goes: of a table that was made anew they have the numbers of others."""
        self._standing = {}


class Replicas:
    """The replicas of a server, made when they are asked for. Any thread may ask.

    Args:
        folder: for their stores.
        moved: called with the name of a view when its replica has a new version.
    """

    def __init__(self, lake: Lake, folder: Path, moved: Callable[[str], None]) -> None:
        self._lake = lake
        self._folder = folder
        self._moved = moved
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
                found = Followed(relation, self._lake, self._folder, self._moved)
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
