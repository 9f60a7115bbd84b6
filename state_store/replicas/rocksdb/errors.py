"""RocksDB's errors as ours. Its binding raises plain exceptions; what went wrong is the beginning of the text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.state_store.errors import CorruptState, DiskFailed, StorageUnavailable, StrandlineError, WriterBusy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def rocksdb_errors(path: Path) -> Iterator[None]:
    """Turns an error of RocksDB inside the block into one of ours."""
    try:
        yield
    except StrandlineError:
        raise
    except Exception as error:
        raise ours(error, path) from error


def ours(error: Exception, path: Path) -> Exception:
    """The error as ours; one that is none of RocksDB's as it is."""
    # The binding raises `Exception` itself, and `DbClosedError`.
    if type(error) is not Exception and type(error).__name__ != "DbClosedError":
        return error
    text = str(error).partition("\n")[0]
    about = f"the replica '{path.name}': {text}"
    if "LOCK" in text or "lock hold" in text:
        return WriterBusy(about, where=str(path), hint="one process has a replica's folder; stop the other one")
    if text.startswith("Corruption"):
        return CorruptState(about, where=str(path), hint="remove its folder; it is restored from the table")
    if text.startswith("IO error"):
        return DiskFailed(about, where=str(path), hint="see that there is space, then open it again")
    return StorageUnavailable(about, where=str(path), hint="open it again")
