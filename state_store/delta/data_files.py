"""The check of a data file before anything opens it, by the checksum in the action that added it.

Pages of Parquet have checksums, its footers have none: one flipped bit there gives other rows, or ends the process.
So a file is summed up whole once, at 1.8 GB/s, when a process first meets it. A file never changes once a commit
names it, so it is not looked at again as long as it has its size and its time; a reader that lives for months does not
see what rots later, its next start does.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from state_store.delta.staging import checksum
from state_store.errors import CorruptState, VersionGone

if TYPE_CHECKING:
    from collections.abc import Iterator

# Some 20 MB of names at most: more files than compaction leaves a lake.
_REMEMBERED: Final = 1 << 16


def verify(table: Path, file: Path, stated: str | None) -> None:
    """Check that a data file is as it was written; one without a checksum is only looked for.

    Raises:
        VersionGone: it is not there.
        CorruptState: it is not as it was written.
    """
    with reading(table):
        about = file.stat()
        if stated is not None and _found(str(file), about.st_size, about.st_mtime_ns) != stated:
            raise CorruptState(
                f"a data file of '{table.name}' fails its checksum",
                where=str(file),
                hint=f"restore the file from a backup, or drop '{table.name}' and create it again",
            )


@contextmanager
def reading(table: Path) -> Iterator[None]:
    """Turns errors of data files into ours: VersionGone where one is missing, CorruptState where it does not read."""
    try:
        yield
    except FileNotFoundError as error:
        raise VersionGone(
            f"files of '{table.name}' are gone: {_line(error)}",
            where=str(table),
            hint="read the table anew, or restore it",
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise CorruptState(
            f"'{table.name}' does not read back: {_line(error)}",
            where=str(table),
            hint="restore the table from history",
        ) from error


@lru_cache(maxsize=_REMEMBERED)
def _found(file: str, size: int, mtime_ns: int) -> str:
    return checksum(Path(file))


def _line(error: Exception) -> str:
    return str(error).split("\n")[0]
