"""Paths in a lake: a `Path` on a disk, a `Location` on an object store, and what is done with either.

Both join with `/` and have `name`, `stem`, `parent`, `with_name`, `exists` (of a file) and `read_bytes`. What they say
in different words is here; what is written, flushed and removed is in `files`. A missing file is a
FileNotFoundError on both. On a disk each of these is the call of the operating system that it names, nothing else.
"""

from __future__ import annotations

import io
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from strandline.state_store.errors import KeyRefused
from strandline.state_store.storage_verbs import counting_along

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from _typeshed import WriteableBuffer

    from strandline.state_store.storage_verbs import ListedObject, Storage


# Keys: names of objects, relative to the root of their storage, separated by '/'.
#
# A key means the same on every kind of storage. What a disk and an object store read differently is refused: a part
# that is empty, and a part that begins with a dot: '..' leaves the root, and a hidden name may be a file still being
# written.

# A control character is legal on a disk, and breaks the listings (XML) and the headers of object stores; a backslash is
# a separator to some of their tools.
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\]")
# The limit of S3, Google and Azure in UTF-8 bytes, less 124 bytes for the root's own prefix.
_LONGEST = 900
# Disks allow 255 bytes, and a file that is being written has a name of 38 more.
_LONGEST_PART = 217


def checked_key(key: str) -> str:
    """Check a key, and return it.

    Raises:
        KeyRefused: it is empty, leaves the root, or holds a part or character that is not the same everywhere.
    """
    if not key:
        raise KeyRefused("an object needs a name, and this one is empty")
    for part in key.split("/"):
        if not part or part.startswith("."):
            raise _refused(key, f"a part may not be empty or begin with a dot: '{part}'")
        if len(part.encode()) > _LONGEST_PART:
            raise _refused(f"{key[:80]}…", f"a part is longer than {_LONGEST_PART} bytes")
    if _REFUSED.search(key):
        raise _refused(key, "control characters and backslashes are not the same everywhere")
    if len(key.encode()) > _LONGEST:
        raise _refused(f"{key[:80]}…", f"it is longer than {_LONGEST} bytes")
    return key


def checked_folder(folder: str) -> str:
    """The folder's key, without the '/' at its end; empty for the root.

    Raises:
        KeyRefused: as for a key.
    """
    return checked_key(folder.removesuffix("/")) if folder else ""


def joined(folder: str, name: str) -> str:
    """The key of `name` in `folder`; neither needs to be there."""
    return f"{folder}/{name}" if folder else name


def hidden(key: str) -> bool:
    """True if a part of the key begins with a dot: never listed."""
    return key.startswith(".") or "/." in key


def _refused(key: str, reason: str) -> KeyRefused:
    return KeyRefused(f"'{key}' is not a key: {reason}", hint="use letters, digits, '_', '-' and inner dots")


# A location: one name in a storage, as `pathlib.Path` is one name on a disk.
#
# It may name an object, a folder, or nothing yet. Two locations are equal when storage and key are. What both can do
# has the same name in both, so that code over files is code over objects: see `state_store.paths`.


@dataclass(frozen=True, slots=True)
class Location:
    """A storage and a key in it; the empty key is its root. The methods raise what those of `Storage` raise.

    Raises:
        KeyRefused: the key leaves the root, or is not the same on every kind of storage.
    """

    storage: Storage
    key: str = ""

    def __post_init__(self) -> None:
        if self.key:
            checked_key(self.key)

    def __truediv__(self, name: str) -> Location:
        return Location(self.storage, joined(self.key, name))

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the key; empty for the root."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        head, dot, _ = self.name.rpartition(".")
        return head if dot and head else self.name

    @property
    def parent(self) -> Location:
        """The folder that it is in; the root is in itself."""
        return Location(self.storage, self.key.rpartition("/")[0])

    @property
    def url(self) -> str:
        """The location as other readers take it: an absolute path, or a URL such as `s3://bucket/lake/tables/t`."""
        return self.storage.url(self.key)

    @property
    def local_path(self) -> Path | None:
        """The path on this machine's disk, if that is where it lies."""
        return self.storage.local_path(self.key)

    def with_name(self, name: str) -> Location:
        """The location of that name in the same folder."""
        return self.parent / name

    def read_bytes(self) -> bytes:
        """The whole content."""
        return self.storage.get(self.key)

    def read_range(self, start: int, length: int) -> bytes:
        """`length` bytes from `start`, fewer where the object ends sooner."""
        return self.storage.get_range(self.key, start, length)

    def read_with_etag(self) -> tuple[bytes, str]:
        """The whole content, and its etag for `update`."""
        return self.storage.get_with_etag(self.key)

    def size(self) -> int:
        """The size in bytes."""
        return self.storage.size(self.key)

    def exists(self) -> bool:
        """True if an object is there; a folder is none."""
        return self.storage.exists(self.key)

    def create(self, data: bytes) -> bool:
        """Put a new object; False, and nothing written, if the name is taken."""
        return self.storage.create(self.key, data)

    def replace(self, data: bytes) -> None:
        """Put the object, in place of the one that is there, if any."""
        self.storage.replace(self.key, data)

    def update(self, data: bytes, expected_etag: str | None) -> str | None:
        """Put the object if the one there has the expected etag (None: if none is there); the new etag, or None."""
        return self.storage.update(self.key, data, expected_etag)

    def delete(self) -> None:
        """Remove the object; nothing happens when there is none."""
        self.storage.delete(self.key)

    def list(self, after: str | None = None, *, recursive: bool = False) -> Iterator[Location]:
        """The objects in this folder, in order; with `after` only those past that name, relative to the folder."""
        past = None if after is None else joined(self.key, after)
        return (Location(self.storage, key) for key in self.storage.list(self.key, past, recursive=recursive))

    def entries(self) -> Iterator[tuple[Location, ListedObject]]:
        """The objects in this folder and all in it, in order, with their sizes and times."""
        return ((Location(self.storage, each.key), each) for each in self.storage.entries(self.key))

    def folders(self) -> Iterator[Location]:
        """The folders in this folder, in order."""
        return (Location(self.storage, key) for key in self.storage.folders(self.key))

    def make_folder(self) -> None:
        """Make this folder and those above it, where folders exist."""
        self.storage.make_folder(self.key)


LakePath = Path | Location
"""A name in a lake, of a file, a folder, or nothing yet."""

_AHEAD: Final = 1 << 18
"""Bytes that a reader of an object asks for at once. An answer takes 10–30 ms however short it is; in that time a
quarter of a megabyte arrives as well, and holds the header and the first frames of most segments."""

_AT_ONCE: Final = 16
"""Requests under way at once: fifty small objects, the most since a checkpoint, take four answers' time, not fifty."""

_Key = TypeVar("_Key")
_Read = TypeVar("_Read")


def file_names(folder: LakePath) -> list[str]:
    """The names of the files in a folder, in no order; on a disk those of hidden ones and of folders too.

    Raises:
        FileNotFoundError: on a disk, there is no such folder; an object store has no empty ones, and names none.
    """
    if isinstance(folder, Location):
        return [each.name for each in folder.list()]
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def files_in(folder: LakePath, suffix: str) -> list[LakePath]:
    """The files of a folder whose names end so, in the order of names; none when there is no such folder."""
    if isinstance(folder, Location):
        return [each for each in folder.list() if each.name.endswith(suffix)]
    return [*sorted(path for path in folder.glob(f"*{suffix}") if not path.name.startswith("."))]


def folders_in(folder: LakePath) -> list[LakePath]:
    """The folders in a folder, in the order of names, hidden ones left out; none when there is no such folder."""
    if isinstance(folder, Location):
        return [*folder.folders()]
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names)]


def is_folder(path: LakePath) -> bool:
    """True if there is such a folder; on an object store, if something is in it."""
    if isinstance(path, Location):
        return next(path.list(recursive=True), None) is not None
    return path.is_dir()


def any_file(folder: LakePath, suffix: str) -> bool:
    """True if a file whose name ends so lies in the folder, or deeper."""
    if isinstance(folder, Location):
        return any(each.name.endswith(suffix) for each in folder.list(recursive=True))
    return any(folder.rglob(f"*{suffix}"))


def sizes_below(folder: LakePath) -> dict[str, int]:
    """{name relative to the folder: size in bytes} of all files in a folder and below; hidden ones are left out."""
    if isinstance(folder, Location):
        return {within(found, folder): about.size for found, about in folder.entries()}
    found: dict[str, int] = {}
    for inner, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(inner, name) for name in names if not name.startswith(".")):
            with suppress(FileNotFoundError):  # removed a moment ago
                found[within(path, folder)] = path.stat().st_size
    return found


def marks_below(folder: LakePath, suffix: str) -> dict[str, object]:
    """{name relative to the folder: what another content under the same name would not have} of the files in a folder
    and below whose names end so; hidden ones are left out."""
    if isinstance(folder, Location):
        return {within(at, folder): about.mark for at, about in folder.entries() if at.name.endswith(suffix)}
    found: dict[str, object] = {}
    for inner in ("", *(each.name for each in folders_in(folder))):
        with suppress(FileNotFoundError), os.scandir(folder / inner) as entries:
            for entry in entries:
                if entry.name.endswith(suffix) and not entry.name.startswith("."):
                    about = entry.stat(follow_symlinks=False)
                    found[joined(inner, entry.name)] = (about.st_ino, about.st_size, about.st_ctime_ns)
    return found


def file_size(path: LakePath) -> int:
    """The size in bytes. Raises FileNotFoundError."""
    return path.size() if isinstance(path, Location) else path.stat().st_size


def within(path: LakePath, folder: LakePath) -> str:
    """The path relative to a folder that it is in, with '/' between its parts.

    Raises:
        ValueError: it is not in that folder.
    """
    if isinstance(path, Location):
        above = joined(folder.key, "") if isinstance(folder, Location) else path.key
        if not path.key.startswith(above) or path.key == above:
            raise ValueError(f"'{path}' is not in '{folder}'")
        return path.key.removeprefix(above)
    return path.relative_to(str(folder)).as_posix()


def side_by_side(read: Callable[[_Key], _Read], keys: Iterable[_Key], where: LakePath) -> Iterator[_Read]:
    """Read each key, in order: one after the other on a disk, several at once on an object store.

    An object store answers each request late and many at a time. The first error ends it.
    """
    if isinstance(where, Location):
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="read") as pool:
            yield from pool.map(counting_along(read), keys)
    else:
        yield from map(read, keys)


def open_file(path: LakePath) -> BinaryIO:
    """Open a file to be read at any place.

    Raises:
        FileNotFoundError: it is not there; of an object, the first read says so.
    """
    if isinstance(path, Location):
        return io.BufferedReader(_ObjectReader(path), _AHEAD)
    return path.open("rb", buffering=0)


class _ObjectReader(io.RawIOBase):
    """An object as a file that is only read; every read is a request."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}
        self._position = offset + (base[whence] if whence in base else self._location.size())
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        found = self._location.read_range(self._position, len(target))
        target[: len(found)] = found
        self._position += len(found)
        return len(found)
