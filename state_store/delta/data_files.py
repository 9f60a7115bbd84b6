"""The check of a data file before anything opens it, by the checksum in the action that added it.

Pages of Parquet have checksums, its footers have none: one flipped bit there gives other rows, or ends the process.
So a file is summed up whole once, at 1.8 GB/s, when a process first meets it. A file never changes once a commit
names it, so it is not looked at again as long as it is in its place (`unchanged`): one that was found broken is, once
it has been restored. A reader that lives for months does not see what rots later, its next start does. An object is
read whole each time that it is used: what is summed up is what is read.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from strandline.state_store.delta.entry import rebuild_hint
from strandline.state_store.delta.staging import checksum
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.files import place_of
from strandline.state_store.layout import table_at
from strandline.state_store.paths import Location
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.state_store.files import Place
    from strandline.state_store.paths import LakePath

# The checksums of Parquet's pages are not verified by default. They are what files of other tools have.
_PARQUET: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
# Some 20 MB of names at most: more files than compaction leaves a lake.
_REMEMBERED: Final = 1 << 16


def data_of(table: LakePath, file: LakePath, stated: str | None = None) -> ds.ParquetFileFragment:
    """The rows of a data file, once it is known to be as it was written; without a checksum it is only looked for.

    Raises:
        VersionGone: it is not there.
        CorruptState: it is not as it was written.
    """
    if isinstance(file, Location):
        return _PARQUET.make_fragment(pa.py_buffer(content_of(table, file, stated)))
    verify(table, file, stated)
    with reading(table):
        return _PARQUET.make_fragment(str(file), filesystem=LocalFileSystem())


def verify(table: LakePath, file: Path, stated: str | None) -> None:
    """Check that a data file on a disk is as it was written; one without a checksum is only looked for.

    Raises: as `data_of`.
    """
    with reading(table):
        place = place_of(file.stat())
        if stated is not None and _found(str(file), place) != stated:
            raise broken(table, file)


def content_of(table: LakePath, file: Location, stated: str | None) -> bytes:
    """The bytes of a data file on an object store, which are as they were written. Raises: as `data_of`."""
    with reading(table):
        data = file.read_bytes()
    if stated is not None and f"{zlib.crc32(data):08x}" != stated:
        raise broken(table, file)
    return data


@contextmanager
def reading(table: LakePath) -> Iterator[None]:
    """Turns errors of data files into ours: VersionGone where one is missing, CorruptState where it does not read."""
    try:
        yield
    except FileNotFoundError as error:
        raise VersionGone(
            sentence("files of '{}' are gone: {}", table_at(table), _line(error)),
            where=str(table),
            hint=rebuild_hint(table.name),
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise CorruptState(
            sentence("'{}' does not read back: {}", table_at(table), _line(error)),
            where=str(table),
            hint=rebuild_hint(table.name),
        ) from error


def broken(table: LakePath, file: LakePath) -> CorruptState:
    """The error of a data file that is not as it was written."""
    return CorruptState(
        sentence("a data file of '{}' fails its checksum", table_at(table)),
        where=str(file),
        hint=rebuild_hint(table.name),
    )


@lru_cache(maxsize=_REMEMBERED)
def _found(file: str, place: Place) -> str:
    return checksum(Path(file))


def _line(error: Exception) -> str:
    return str(error).split("\n")[0]
