"""The interface of a storage: bytes under keys, with the few verbs that a Delta log, records and leases need; and the
requests that they make.

Every write is atomic (a reader sees all of it or nothing) and durable when the call returns. Two verbs decide between
writers: `create`, which only one of many wins, and `update`, which only those win who know the present content.

Folders are not objects. A disk has them, and needs them made before something is created in them (`make_folder`): what
was removed is not begun again by a late writer. An object store has only keys, and there `make_folder` does nothing.

The requests of this process to object stores are counted by verb and outcome: of the process, not of a storage: a path
that travels to another process opens a storage of its own there, and one run has many. What obstore tries again by
itself counts once, a listing too, however many pages it has; what the JVM asks for counts nowhere.

They are counted for a unit of work too, such as the refresh of a table: those that its thread makes, and those that it
has made by others (`counting_along`). What several units read, and one keeps for all, counts for the one that asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class ListedObject:
    """An object as a listing shows it.

    Attributes:
        size: bytes.
        modified: its last change, in milliseconds since the epoch.
        mark: what another content under the same key would not have: the etag, or on a disk the exact time.
    """

    key: str
    size: int
    modified: int
    mark: str


class Storage(ABC):
    """Bytes under keys, below one root.

    All methods may be called from many threads and processes at once. Each may raise:
        KeyRefused: the key leaves the root, or is not the same on every kind of storage.
        StorageDenied: the storage refuses.
        StorageUnavailable: it does not answer. A write may have been done nevertheless.
    """

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The whole content.

        Raises:
            ObjectMissing: there is no such object.
        """

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` (both ≥ 0); fewer where the object ends sooner, none when it ends before.

        Raises:
            ObjectMissing: there is no such object.
        """

    @abstractmethod
    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        """The whole content, and its etag for `update`.

        Raises:
            ObjectMissing: there is no such object.
        """

    @abstractmethod
    def size(self, key: str) -> int:
        """The size in bytes.

        Raises:
            ObjectMissing: there is no such object.
        """

    @abstractmethod
    def exists(self, key: str) -> bool:
        """True if there is an object of that name; a folder is none."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Put a new object: of many that try, exactly one gets True. False, and nothing written, if the name is taken.

        Raises:
            ObjectMissing: on a disk, the folder is not there.
        """

    @abstractmethod
    def replace(self, key: str, data: bytes) -> None:
        """Put an object, in place of the one of that name, if any.

        Raises:
            ObjectMissing: on a disk, the folder is not there.
        """

    @abstractmethod
    def update(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        """Compare and swap: put the object if its etag is the expected one; None: if there is no object.

        An etag is that of a content, and equal contents may have equal etags: an update must differ from what it
        replaces wherever that matters.

        Returns:
            The new etag; None, and nothing written, if the object is another one.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object; nothing happens when there is none."""

    @abstractmethod
    def list(self, folder: str, after: str | None = None, *, recursive: bool = False) -> Iterator[str]:
        """The keys in a folder, in the order of their UTF-8 bytes; none when there is no such folder.

        Args:
            folder: a key, with or without '/' at its end; empty for the root.
            after: list only keys greater than this one; it need not be there.
            recursive: the keys in the folders of the folder, too.
        """

    @abstractmethod
    def entries(self, folder: str) -> Iterator[ListedObject]:
        """What `list` gives for a folder and all in it, with sizes and times: those of the storage's own clock."""

    @abstractmethod
    def folders(self, folder: str) -> Iterator[str]:
        """The keys of the folders in a folder, in order. An object store shows only those that hold something."""

    @abstractmethod
    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it, where folders exist; durable. Nothing happens when it is there."""

    @abstractmethod
    def url(self, key: str) -> str:
        """The object or folder (the root for an empty key) as DuckDB and Spark take it: an absolute path or a URL."""

    @abstractmethod
    def local_path(self, key: str) -> Path | None:
        """The path on this machine's disk, if that is where it lies."""


Requests = Counter[tuple[str, str]]
"""{(verb, outcome): how many}. The verbs are get, head, put, delete and list; the outcome is `ok`, or the code of an
error, such as `store.storage_unavailable`."""


class _RequestTally:
    """Counts requests. Any thread may count."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Requests = Counter()

    def count(self, verb: str, outcome: str) -> None:
        """A request was answered, or failed."""
        unit = _UNIT.get()
        with self._lock:
            self._counts[verb, outcome] += 1
            if unit is not None:
                unit[verb, outcome] += 1

    def so_far(self) -> Requests:
        """All that were counted since the process began."""
        with self._lock:
            return self._counts.copy()

    def since(self, before: Requests) -> Requests:
        """Those that were counted after `before` was taken."""
        return self.so_far() - before

    @contextmanager
    def of_unit(self) -> Iterator[Requests]:
        """Count the requests of the block, of all threads of it. Those of a unit in it are its own too, at its end."""
        above, mine = _UNIT.get(), Requests()
        token = _UNIT.set(mine)
        try:
            yield mine
        finally:
            _UNIT.reset(token)
            if above is not None:
                with self._lock:
                    above.update(mine)


_UNIT: Final[ContextVar[Requests | None]] = ContextVar("unit of work", default=None)
REQUESTS: Final = _RequestTally()

_Key = TypeVar("_Key")
_Found = TypeVar("_Found")


def counting_along(read: Callable[[_Key], _Found]) -> Callable[[_Key], _Found]:
    """The function for other threads: what it asks for counts for the unit of work of the caller of this."""
    unit = _UNIT.get()

    def counted(key: _Key) -> _Found:
        token = _UNIT.set(unit)
        try:
            return read(key)
        finally:
            _UNIT.reset(token)

    return counted


def by_verb(requests: Requests) -> dict[str, int]:
    """{verb: how many}, of every outcome: an object store counts what failed as well."""
    found: Counter[str] = Counter()
    for (verb, _), number in requests.items():
        found[verb] += number
    return dict(sorted(found.items()))
