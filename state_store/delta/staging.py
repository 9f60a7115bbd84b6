"""Staged files: new rows in Parquet below a table, which no commit names yet.

Whoever computed the rows writes them (Spark here); `delta.commit` adds them to the table. What a kill leaves behind is
a folder that nothing names; clean-up removes it when it is old enough to be nobody's.
"""

from __future__ import annotations

import shutil
import uuid
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from state_store.delta.statistics import statistics
from state_store.disk_errors import disk_errors
from state_store.errors import CorruptState
from state_store.failpoints import failpoint
from state_store.files import sync_file, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from state_store.delta.entry import Action

CHECKSUM_TAG: Final = "strandline.crc32"
"""The tag of an `add` action that holds the CRC-32 of the whole file, eight hex digits."""

_PIECE: Final = 1 << 20


@dataclass(frozen=True)
class Staged:
    """Data files of new rows.

    Attributes:
        folder: the folder of these files, below the table's.
        indexed: the columns of which the log gets the smallest and largest value.
        totals: what was added up while the rows were written.
    """

    table: Path
    folder: Path
    indexed: tuple[str, ...] = ()
    totals: Mapping[str, Any] = field(default_factory=dict)

    def flushed(self) -> list[Action]:
        """Flush the files and their folder to disk; the actions that add them. A file without rows is left out.

        The name of the folder is flushed with the table's, by the commit.
        """
        import pyarrow.parquet as pq

        actions: list[Action] = []
        for file in sorted(self.folder.glob("*.parquet")):
            footer = pq.read_metadata(file)
            if footer.num_rows:
                sync_file(file)
                actions.append({"add": self._added(file, statistics(footer, self.indexed))})
        sync_folder(self.folder)
        return actions

    def discard(self) -> None:
        """Remove the files: no commit will name them."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _added(self, file: Path, stats: str) -> dict[str, Any]:
        about = file.stat()
        return {
            "path": quote(file.relative_to(self.table).as_posix()),
            "partitionValues": {},
            "size": about.st_size,
            "modificationTime": about.st_mtime_ns // 1_000_000,
            "dataChange": True,
            "stats": stats,
            "tags": {CHECKSUM_TAG: checksum(file)},
        }


def stage(
    rows: DataFrame, table: Path, epoch: int, indexed: Sequence[str] = (), totals: Sequence[Column] = ()
) -> Staged:
    """Write `rows` to files below the table's folder, and add up `totals` (named aggregates) on the way.

    Args:
        indexed: columns for the statistics, see `statistics`.
    """
    from pyspark.sql import Observation

    folder = _folder(table, epoch)
    observed = Observation()
    output = (rows.observe(observed, *totals) if totals else rows).write
    # The default, INT96, holds no dates after 2262 when read as nanoseconds, and has no statistics.
    output = output.option("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    output = output.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    try:
        output.parquet(str(folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Staged(table, folder, tuple(indexed), observed.get if totals else {})


def stage_rows(rows: pa.Table, table: Path, epoch: int, indexed: Sequence[str] = ()) -> Staged:
    """Write rows in Arrow form to one file below the table's folder; they must have the stored columns and types."""
    import pyarrow.parquet as pq

    folder = _folder(table, epoch)
    with disk_errors(folder):
        folder.mkdir()
        try:
            # The checksums of pages are not written by default; delta-rs reads timestamps in microseconds only.
            pq.write_table(rows, folder / "part-0.parquet", write_page_checksum=True, coerce_timestamps="us")
            failpoint("after-staging")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return Staged(table, folder, tuple(indexed))


def data_file(table: Path, url: str) -> str:
    """The path, relative to the table, of the data file that Spark calls `url`.

    Raises:
        CorruptState: it is no file of the table.
    """
    path = Path(unquote(urlsplit(url).path))
    try:
        return path.relative_to(table.absolute()).as_posix()
    except ValueError:
        raise CorruptState(f"'{url}' is no file of '{table.name}'", where=str(table)) from None


def stated_checksum(body: Mapping[str, Any]) -> str | None:
    """The checksum that an `add` or `remove` action states; None for the file of another tool."""
    found = (body.get("tags") or {}).get(CHECKSUM_TAG)
    return None if found is None else str(found)


def checksum(file: Path) -> str:
    """The CRC-32 of a file, eight hex digits."""
    total = 0
    with file.open("rb") as opened:
        for piece in _pieces(opened):
            total = zlib.crc32(piece, total)
    return f"{total:08x}"


def _folder(table: Path, epoch: int) -> Path:
    return table / f"epoch-{epoch:09d}-{uuid.uuid4().hex[:8]}"


def _pieces(opened: Any) -> Iterator[bytes]:
    while piece := opened.read(_PIECE):
        yield piece
