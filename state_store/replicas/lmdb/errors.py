"""LMDB's errors as ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import lmdb

from strandline.state_store.errors import CorruptState, DiskFailed, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BROKEN = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError, lmdb.InvalidError, lmdb.VersionMismatchError)
_FULL = (lmdb.MapFullError, lmdb.DiskError)


@contextmanager
def lmdb_errors(path: Path) -> Iterator[None]:
    """Turns an error of LMDB inside the block into one of ours."""
    try:
        yield
    except _BROKEN as error:
        raise CorruptState(
            f"the replica '{path.name}': {error}",
            where=str(path),
            hint="remove its folder; it is restored from the table",
        ) from error
    except (*_FULL, OSError) as error:
        raise DiskFailed(
            f"the replica '{path.name}': {error}", where=str(path), hint="see that there is space"
        ) from error
    except lmdb.Error as error:
        raise StorageUnavailable(
            f"the replica '{path.name}': {error}", where=str(path), hint="open it again"
        ) from error
