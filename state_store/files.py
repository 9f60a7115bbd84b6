"""Files of a lake: write them atomically and durably, move and remove folders, read unchanged files once.

A file is written to a temporary one, flushed, then linked or renamed in one step. A write that fails leaves nothing
behind; a process that is killed may leave a hidden `.tmp` file.

`create` is put-if-absent: only one of many processes gets the name, without a lock, so one that dies blocks nobody.
It and `replace` make no folder: what was removed is not begun again by a late writer.

Every write here raises DiskFailed on a full or broken disk, StorageDenied where this user may not write, and KeyRefused
for a name that is too long for the disk.

On an object store a put is all of this at once, and flushing and making folders is nothing. There a write raises
StorageUnavailable when the store does not answer: it may have been done nevertheless.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from uuid import uuid4

from strandline.state_store.errors import (
    DiskFailed,
    KeyRefused,
    ObjectMissing,
    StorageDenied,
    StorageUnavailable,
    StoreError,
)
from strandline.state_store.failpoints import failpoint
from strandline.state_store.paths import LakePath, Location, within
from strandline.state_store.processes import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def create(path: LakePath, data: bytes) -> bool:
    """Write a new file; False, and nothing written, when the name is taken."""
    if isinstance(path, Location):
        failpoint("before-link")
        made = path.create(data)
        failpoint("after-link")
        return made
    temporary = _temporary(path, data)
    failpoint("before-link")
    with disk_errors(path):
        try:
            os.link(temporary, path)  # unlike a rename, a link fails when the name is taken
            failpoint("after-link")
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)  # the folder may be gone with it
    sync_folder(path.parent)
    return True


def replace(path: LakePath, data: bytes, *, for_good: bool = True) -> None:
    """Write a file, replacing the one of that name: a reader sees the old one or the new one.

    Args:
        for_good: a power cut does not bring the old one back. Where that one is as right, one flush is saved.
    """
    if isinstance(path, Location):
        failpoint("before-rename")
        path.replace(data)
        return
    temporary = _temporary(path, data)
    failpoint("before-rename")
    with disk_errors(path):
        try:
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    if for_good:
        sync_folder(path.parent)


def replace_unflushed(path: LakePath, data: bytes) -> None:
    """Write a file as `replace` does, but of what may as well be lost.

    A power cut may leave the old one, half of the new one, or none: whoever reads it must notice.
    """
    if isinstance(path, Location):
        path.replace(data)
        return
    temporary = _named_for_a_while(path)
    with disk_errors(path):
        try:
            temporary.write_bytes(data)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_new(path: LakePath, data: bytes) -> None:
    """Write a file that nothing names yet, and flush it; a broken write leaves nothing behind."""
    if isinstance(path, Location):
        path.replace(data)
        return
    with disk_errors(path), path.open("xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # A full disk above all: what was written of it would take the place that is missing.
            path.unlink(missing_ok=True)
            raise


def sync_file(path: LakePath) -> None:
    """Flush to disk what another process, or a library, has written."""
    if isinstance(path, Location):
        return
    with disk_errors(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_folder(folder: LakePath) -> None:
    """Flush a folder to disk, so that new and removed names survive a power cut."""
    sync_file(folder)


def make_folder(folder: LakePath) -> None:
    """Make a folder and those above it unless they are there, outermost first, each flushed before the next.

    So only the name of the innermost folder that is there may be unflushed: whoever made it was killed before that.
    """
    if isinstance(folder, Location):
        return
    try:
        _make_innermost(folder)
    except FileNotFoundError:
        make_folder(folder.parent)
        try:
            _make_innermost(folder)
        except FileNotFoundError:  # as below /proc: there is a folder, and nothing can be made in it
            raise StorageDenied(
                f"no folder '{folder.name}' can be made there", where=str(folder), hint="take another folder"
            ) from None


def _make_innermost(folder: Path) -> None:
    """Make a folder unless it is there. Raises FileNotFoundError where the one above it is missing."""
    try:
        with disk_errors(folder):
            os.mkdir(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
        with suppress(StorageDenied):  # a folder above the lake, made by another user
            sync_folder(folder.parent)
    else:
        sync_folder(folder.parent)


def _temporary(path: Path, data: bytes) -> Path:
    temporary = _named_for_a_while(path)
    write_new(temporary, data)
    return temporary


def _named_for_a_while(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex}.tmp")


# Whole folders: remove, move, copy.
#
# On a disk a folder is renamed in one step. An object store has no folders and nothing to rename: there a table's
# folder is copied and then removed object by object, its log first and from the newest entry down. So whoever reads
# meanwhile finds an older version of the table, or none, and never one whose files are gone.

_LOG: Final = "_delta_log"
_HINT: Final = f"{_LOG}/_last_checkpoint"
_FILLED: Final = (errno.ENOTEMPTY, errno.EEXIST)
"""What systems say of a folder in which something is."""


def remove_file(path: LakePath) -> None:
    """Remove a file; nothing happens when there is none. On a disk its folder is not flushed."""
    if isinstance(path, Location):
        path.delete()
    else:
        path.unlink(missing_ok=True)


def remove_folder(folder: LakePath) -> None:
    """Remove a folder and all in it."""
    if isinstance(folder, Location):
        for name in _from_the_log_down(folder):
            failpoint("inside-removal")
            (folder / name).delete()
    else:
        shutil.rmtree(folder)


def discard_folder(folder: LakePath) -> None:
    """Remove a folder that nothing names; what cannot be removed is left to clean-up."""
    if isinstance(folder, Location):
        with suppress(StoreError):
            remove_folder(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(where: Path, prefix: str) -> None:
    """Remove the temporary folders `<prefix><pid>-…` in a folder whose processes were killed."""
    for folder in where.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if pid.isdecimal() and process(int(pid)) is None:
            shutil.rmtree(folder, ignore_errors=True)


def move_folder(folder: LakePath, target: LakePath) -> None:
    """Give a folder another name, which is not taken; on a disk in one step, flushed.

    On an object store a kill may leave a copy that is not whole under the new name, and part of the old one.
    """
    if isinstance(folder, Location) and isinstance(target, Location):
        for name in reversed(_from_the_log_down(folder)):
            failpoint("inside-copy")
            (target / name).replace((folder / name).read_bytes())
        remove_folder(folder)
    elif isinstance(folder, Path) and isinstance(target, Path):
        folder.rename(target)
        sync_folder(folder.parent)
        sync_folder(target.parent)
    else:
        raise ValueError(f"'{target}' is another storage than that of '{folder}'")


def copy_to_disk(folder: LakePath, target: Path) -> None:
    """Copy a folder and all in it to one on this machine that is not there yet; nothing if there is none to copy."""
    if isinstance(folder, Path):
        if folder.exists():
            shutil.copytree(folder, target)
        return
    for file in folder.list(recursive=True):
        copy = target / within(file, folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())


def remove_if_empty(folder: LakePath) -> None:
    """Remove a folder if it is there and nothing is in it; an object store has no empty ones."""
    if isinstance(folder, Path):
        # The system looks and removes at once: another process may fill or remove it between two steps of ours.
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError as error:
                if error.errno not in _FILLED:
                    raise


def _from_the_log_down(folder: Location) -> Sequence[str]:
    """The names below a table's folder: the hint, the log from the newest entry down, then all else."""
    names = sorted((within(file, folder) for file in folder.list(recursive=True)), reverse=True)
    return sorted(names, key=lambda name: (name != _HINT, not name.startswith(f"{_LOG}/")))


# Cache of files that are never written twice: a log's entries, deletion vectors.
#
#     read(file) ──stat──> as it was when it was read?  ──yes──> what was read
#                                                       ──no───> read, checked, remembered
#
# A restore or another tool may put another file under the same name. So a file is told by device, inode, size and the
# time of its last change, which no tool can set. One that changed a moment ago is read each time: a second change
# might have the same time.

Read = TypeVar("Read")

Place = tuple[int, int, int, int]
"""Device, inode, size and the time of the last change, in nanoseconds."""
_Name = tuple[str, tuple[int, int] | None]
_MOMENT_NS: Final = 20_000_000
"""Longer than two ticks of the clock that files get their times by."""
_LEAST: Final = 512
"""Bytes that a file counts for beside its own: its name and place."""
_PARTS: Final = 16
"""One file must leave room for so many."""


def place_of(about: os.stat_result) -> Place:
    """Identity of a file beneath its name. A tool that restores a file may set any other time of it."""
    return about.st_dev, about.st_ino, about.st_size, about.st_ctime_ns


@dataclass(frozen=True)
class _Known(Generic[Read]):
    place: Place | None
    size: int
    found: Read
    data: bytes | None = None
    """What was written, as long as nobody has asked for it: the file is compared with it once."""


class Unchanged(Generic[Read]):
    """Cache of what was read of files. Safe for several threads, which must not change what they get.

    Args:
        most: bytes that were read to make what is remembered; what was asked for longest ago goes first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[_Name, _Known[Read]] = OrderedDict()
        self._lock = Lock()

    def read(self, file: LakePath, read: Callable[[], Read], part: tuple[int, int] | None = None) -> Read:
        """Read a file, or find what was read while it was the same.

        Args:
            part: of the file, that is read: where it begins, and its bytes. Without it, all of it.

        Raises: as `read` does; FileNotFoundError.
        """
        if not isinstance(file, Path):
            return read()
        name = (str(file), part)
        about = os.stat(name[0])
        place = place_of(about)
        with self._lock:
            known = self._kept.get(name)
            if known is not None and known.place == place:
                self._kept.move_to_end(name)
                return known.found
        as_written = known is not None and known.data is not None and file.read_bytes() == known.data
        found = known.found if known is not None and as_written else read()
        size = _LEAST + (about.st_size if part is None else part[1])
        if size <= self._most // _PARTS and time.time_ns() - about.st_ctime_ns > _MOMENT_NS:
            self._keep(name, _Known(place, size, found))
        return found

    def note(self, file: LakePath, data: bytes, found: Read) -> None:
        """Remember what would be read of a file that this process has just written."""
        size = _LEAST + len(data)
        if isinstance(file, Path) and size <= self._most // _PARTS:
            self._keep((str(file), None), _Known(None, size, found, data))

    def _keep(self, name: _Name, known: _Known[Read]) -> None:
        with self._lock:
            before = self._kept.pop(name, None)
            self._kept[name] = known
            self._bytes += known.size - (before.size if before is not None else 0)
            while self._bytes > self._most:
                self._bytes -= self._kept.popitem(last=False)[1].size


class Remembered(Generic[Read]):
    """What a process knows of folders on a disk; of one on an object store it keeps nothing. All is forgotten when it
    is of too many: it can be found out again."""

    _MOST: Final = 1 << 16

    def __init__(self) -> None:
        self._known: dict[str, Read] = {}

    def find(self, folder: LakePath) -> Read | None:
        """What is known of a folder."""
        return self._known.get(str(folder)) if isinstance(folder, Path) else None

    def note(self, folder: LakePath, found: Read) -> None:
        """Remember it."""
        if isinstance(folder, Path):
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[str(folder)] = found


# Errors of the operating system, translated into those of the store.

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_TEMPORARY: Final = re.compile(r"\.(.+)\.[0-9a-f]{32}\.tmp")
# They answer a question that the caller asked: is the name taken, is its folder there?
_ANSWERS: Final = (FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError)


@contextmanager
def disk_errors(path: LakePath) -> Iterator[None]:
    """Raise an OSError of the block as one of the store's; whether a name is there or not passes unchanged.

    Args:
        path: the file or folder that is written, for the message.

    Raises:
        DiskFailed: the disk is full, broken or read-only.
        StorageDenied: this user may not write there.
        KeyRefused: the name is longer than the disk's names are.
    """
    try:
        yield
    except _ANSWERS:
        raise
    except PermissionError as error:
        path = _meant(path)
        raise StorageDenied(
            f"'{path.name}' may not be written by this user", where=str(path), hint="check the owner and mode"
        ) from error
    except OSError as error:
        raise _failed(_meant(path), error) from error


def of_system(error: OSError) -> StoreError:
    """The store's error for one of the operating system that nobody translated: at a read, or at a path that is wrong.

    The file is the one that the error names.
    """
    if isinstance(error, ConnectionError | TimeoutError):
        what = f"another process does not answer: {error.strerror or type(error).__name__}"
        return StorageUnavailable(what, hint="see that it runs, and try again")
    if not isinstance(error.filename, str | bytes):  # at a file that is open already, such as standard output
        full = error.errno in _FULL
        what = "the disk is full" if full else f"the system failed: {error.strerror or error}"
        return DiskFailed(
            what, hint="free some space (df -h)" if full else "look at where the output goes, and at dmesg"
        )
    path = _meant(Path(os.fsdecode(error.filename)))
    if isinstance(error, PermissionError):
        what = f"'{path.name}' may not be read or written by this user"
        return StorageDenied(what, where=str(path), hint="check the owner and mode, or name another folder")
    if isinstance(error, NotADirectoryError | FileExistsError | IsADirectoryError):
        what = f"'{path}' is in the way: {error.strerror}"
        return StorageDenied(what, where=str(path), hint="move it away, or name another folder")
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(f"'{path}' is not there", where=str(path), hint="check the path, and STRANDLINE_LAKE")
    return _failed(path, error)


def _meant(path: LakePath) -> LakePath:
    """The file that a temporary one (`state_store.files`) was to become: nobody knows the other's name."""
    found = _TEMPORARY.fullmatch(path.name)
    return path if found is None else path.with_name(found[1])


def _failed(path: LakePath, error: OSError) -> StoreError:
    if error.errno == errno.ENAMETOOLONG:
        return KeyRefused(f"the path is too long: '{path.name[:40]}…'", hint="take a shorter name")
    if error.errno in _FULL:
        what = f"the disk is full: '{path.name}' could not be written"
        return DiskFailed(what, where=str(path), hint="free some space (df -h), then run again: it goes on from there")
    what = f"the disk failed at '{path.name}': {error.strerror or error}"
    hint = "look into the kernel's log (dmesg); mend or replace the disk, then run again"
    return DiskFailed(what, where=str(path), hint=hint)
