"""The storage on a local disk: a file for each object, created by a link and replaced by a rename, flushed each time.

`update` reads, compares and renames under a lock of the folder, which `replace` and `delete` take as well; the kernel
gives it back when its holder dies. The etag is a hash of the content: inode and time may both come again within one
tick of the clock.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from strandline.state_store import files
from strandline.state_store.errors import KeyRefused, ObjectMissing, StorageDenied, StorageUnavailable
from strandline.state_store.paths import checked_folder, checked_key, hidden, joined
from strandline.state_store.storage_verbs import ListedObject, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator


class DiskStorage(Storage):
    """Objects as files below the folder `root`, an absolute path; it need not be there to be read.

    Raises:
        KeyRefused: the root is not absolute.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_absolute():
            raise KeyRefused(f"'{root}' is not absolute: it would mean another folder in a child process")
        self._root = root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiskStorage) and other._root == self._root

    def __hash__(self) -> int:
        return hash(self._root)

    def __repr__(self) -> str:
        return f"DiskStorage('{self._root}')"

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with _typed(path):
            return path.read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        path = self._path(key)
        with _typed(path), path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        data = self.get(key)
        return data, _etag(data)

    def size(self, key: str) -> int:
        path = self._path(key)
        with _typed(path):
            found = path.stat()
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError
            return found.st_size

    def exists(self, key: str) -> bool:
        path = self._path(key)
        with _typed(path):
            return path.is_file()

    def create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with _typed(path):
            return files.create(path, data)

    def replace(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with _typed(path), _locked(path.parent):
            files.replace(path, data)

    def update(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        if expected_etag is None:
            return _etag(data) if self.create(key, data) else None
        path = self._path(key)
        with _typed(path):
            try:
                with _locked(path.parent):
                    if _etag(path.read_bytes()) != expected_etag:
                        return None
                    files.replace(path, data)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _etag(data)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _typed(path):
            try:
                with _locked(path.parent):
                    path.unlink()
                    files.sync_folder(path.parent)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return

    def list(self, folder: str, after: str | None = None, *, recursive: bool = False) -> Iterator[str]:
        return self._listed(checked_folder(folder), after, recursive)

    def entries(self, folder: str) -> Iterator[ListedObject]:
        for key in self.list(folder, recursive=True):
            try:
                about = (self._root / key).stat()
            except FileNotFoundError:  # removed since it was listed
                continue
            yield ListedObject(key, about.st_size, about.st_mtime_ns // 1_000_000, str(about.st_mtime_ns))

    def folders(self, folder: str) -> Iterator[str]:
        # By the names alone: `a` before `a-`, though what is in them lists the other way round.
        return iter(sorted(key for entry, key in self._entries(checked_folder(folder)) if entry.is_dir()))

    def make_folder(self, folder: str) -> None:
        path = self._root / checked_folder(folder)
        with _typed(path):
            files.make_folder(path)

    def url(self, key: str) -> str:
        return str(self._root / checked_folder(key))

    def local_path(self, key: str) -> Path:
        return self._root / checked_folder(key)

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _listed(self, folder: str, after: str | None, recursive: bool) -> Iterator[str]:
        for entry, key in self._entries(folder):
            if not entry.is_dir():
                if after is None or key > after:
                    yield key
            elif recursive and (after is None or after < f"{key}/" or after.startswith(f"{key}/")):
                yield from self._listed(key, after, recursive)

    def _entries(self, folder: str) -> Iterator[tuple[os.DirEntry[str], str]]:
        """What is in a folder, in the order of its keys: what a folder `a` holds comes after the file `a.json`."""
        path = self._root / folder
        try:
            with _typed(path), os.scandir(path) as scan:
                found = [entry for entry in scan if not hidden(entry.name)]
        except ObjectMissing:
            return
        for entry in sorted(found, key=lambda entry: f"{entry.name}/" if entry.is_dir() else entry.name):
            yield entry, joined(folder, entry.name)


def _etag(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's own lock: no file of its own that would have to be hidden and cleaned up."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing is not enough: a child between fork and exec would hold it a little longer.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    """Raise an error of the operating system as one of the store's."""
    try:
        yield
    except ObjectMissing:
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        what = "is a folder" if isinstance(error, IsADirectoryError) else "is not there, or not its folder"
        raise ObjectMissing(f"'{path.name}' {what}", where=str(path), hint="check the lake's root") from error
    except PermissionError as error:
        raise StorageDenied(
            f"'{path.name}' may not be read or written by this user", where=str(path), hint="check the owner and mode"
        ) from error
    except OSError as error:
        raise StorageUnavailable(
            f"the disk failed at '{path.name}': {error.strerror}", where=str(path), hint="check its space and health"
        ) from error
