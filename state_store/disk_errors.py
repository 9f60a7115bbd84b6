"""Errors of the operating system at a write, as errors of the store: the one place that translates them."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.state_store.errors import (
    DiskFailed,
    KeyRefused,
    ObjectMissing,
    StorageDenied,
    StorageUnavailable,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.state_store.paths import LakePath

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
