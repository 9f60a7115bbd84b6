"""Paths in a lake: a `Path` on a disk, a `Location` on an object store, and what is done with either.

Both join with `/` and have `name`, `stem`, `parent`, `with_name`, `exists` (of a file) and `read_bytes`. What they say
in different words is here; what is written, flushed and removed is in `files` and `folders`. A missing file is a
FileNotFoundError on both. On a disk each of these is the call of the operating system that it names, nothing else.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from strandline.state_store.keys import joined
from strandline.state_store.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from _typeshed import WriteableBuffer


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
    """What `read` gives for each key, in order: one after the other on a disk, several at once on an object store.

    An object store answers each request late and many at a time. The first error ends it.
    """
    if isinstance(where, Location):
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="read") as pool:
            yield from pool.map(read, keys)
    else:
        yield from map(read, keys)


def open_file(path: LakePath) -> BinaryIO:
    """The file, to be read at any place.

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
