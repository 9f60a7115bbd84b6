"""Errors of the operating system at a write, as errors of the store: the one place that translates them."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from state_store.errors import DiskFailed, StorageDenied, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from state_store.paths import LakePath

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
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
    """
    try:
        yield
    except _ANSWERS:
        raise
    except PermissionError as error:
        raise StorageDenied(
            f"'{path.name}' may not be written by this user", where=str(path), hint="check the owner and mode"
        ) from error
    except OSError as error:
        raise _failed(path, error) from error


def _failed(path: LakePath, error: OSError) -> StoreError:
    if error.errno in _FULL:
        what = f"the disk is full: '{path.name}' could not be written"
        return DiskFailed(what, where=str(path), hint="free some space (df -h), then run again: it goes on from there")
    what = f"the disk failed at '{path.name}': {error.strerror or error}"
    hint = "look into the kernel's log (dmesg); mend or replace the disk, then run again"
    return DiskFailed(what, where=str(path), hint=hint)
