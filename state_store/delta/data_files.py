"""Data files of a table: stage new rows as Parquet that no commit names yet; check a file before anything opens it.

Pages of Parquet have checksums, its footers have none: one flipped bit there gives other rows, or ends the process.
So a file is summed up whole once, at 1.8 GB/s, when a process first meets it. A file never changes once a commit names
it, so it is not looked at again as long as it is in its place (`files.Unchanged`): one that was found broken is, once
it has been restored. A reader that lives for months does not see what rots later, its next start does. An object is
read whole each time that it is used: what is summed up is what is read.
"""

from __future__ import annotations

import io
import time
import uuid
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from strandline.state_store.delta.entry import rebuild_hint
from strandline.state_store.delta.statistics import ROWS_TAG, rows_tag, statistics
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import (
    discard_folder,
    disk_errors,
    place_of,
    remove_file,
    sync_file,
    sync_folder,
    write_new,
)
from strandline.state_store.layout import table_at
from strandline.state_store.paths import Location, files_in, open_file, within
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyspark.sql import Column, DataFrame

    from strandline.state_store.delta.entry import Action
    from strandline.state_store.digest import Digest
    from strandline.state_store.files import Place
    from strandline.state_store.paths import LakePath


# Staged files.
#
# Whoever computed the rows writes them (Spark here); `delta.commit` adds them to the table. What a kill leaves behind
# is a folder that nothing names; clean-up removes it when it is old enough to be nobody's.
#
# On an object store a file is put when it is whole, and read back for the entry: its statistics and its checksum are
# of what the store has, whichever engine wrote it.

# Encodings: whole numbers and times by their differences, other columns by a dictionary.
#
# Offsets, times and keys follow each other closely. Written by their differences (Parquet's DELTA_BINARY_PACKED), the
# places of the events in a keyed table take a tenth of the bytes and a quarter of the time that a dictionary takes,
# which gives up after a megabyte of different values; an event log takes a quarter of the bytes. Spark, delta-rs,
# DuckDB and Arrow read it (docs/design/0006).

_WHOLE: Final = frozenset({"INT32", "INT64"})
"""Parquet's types of whole numbers, dates and times; decimals are bytes."""
_FLOATING: Final = frozenset({"FLOAT", "DOUBLE"})
_SCHEMAS: Final = 256
"""Of as many schemas the encodings are remembered: more than one lake's tables have. One takes 0.15 ms to find."""


@lru_cache(maxsize=_SCHEMAS)
def encodings(schema: pa.Schema) -> dict[str, Any]:
    """Arguments of a ParquetWriter for these encodings. Parquet's own schema tells how nested columns are called.

    Columns of DOUBLE have no statistics: Parquet's bounds leave NaN out, and engines for which NaN is the largest value
    skip the rows that have it (DuckDB 2.0: `x > 5` of 1.0 and NaN finds none).
    """
    import pyarrow.parquet as pq

    empty = io.BytesIO()
    pq.ParquetWriter(empty, schema, coerce_timestamps="us").close()
    stored = pq.read_metadata(empty).schema
    columns = [stored.column(number) for number in range(len(stored))]
    others = [column.path for column in columns if column.physical_type not in _WHOLE]
    whole = {column.path for column in columns if column.physical_type in _WHOLE}.difference(others)
    bounded = [column.path for column in columns if column.physical_type not in _FLOATING]
    deltas = dict.fromkeys(sorted(whole), "DELTA_BINARY_PACKED")
    return {"use_dictionary": others, "column_encoding": deltas, "write_statistics": bounded or False}


_SAMPLE: Final = 16_384
_MOSTLY: Final = 0.9
"""The share of different values among so many first ones of a column, from which on it gets no dictionary: a row group
has more different values then than one saves, and to look up each takes half of the time of writing it."""


def without_useless(encoded: Mapping[str, Any], rows: pa.Table) -> dict[str, Any]:
    """These encodings, without the dictionaries of columns of which nearly every row has a value of its own.

    Args:
        rows: the first ones of a file; few tell nothing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.num_rows < _SAMPLE:
        return dict(encoded)
    first = rows.slice(0, _SAMPLE)
    useless = {
        field.name
        for field in rows.schema
        if field.name in encoded["use_dictionary"]
        and (pa.types.is_string(field.type) or pa.types.is_binary(field.type) or pa.types.is_floating(field.type))
        and pc.count_distinct(first[field.name]).as_py() >= _SAMPLE * _MOSTLY
    }
    return {**encoded, "use_dictionary": [path for path in encoded["use_dictionary"] if path not in useless]}


CHECKSUM_TAG: Final = "strandline.crc32"
"""The tag of an `add` action that holds the CRC-32 of the whole file, eight hex digits."""

_ANY: Final = ""
"""In the place of a file's name: the only one."""

_PIECE: Final = 1 << 20
"""Bytes that are read at once for a checksum: a file need not fit into memory."""


@dataclass(frozen=True)
class Staged:
    """Data files of new rows.

    Attributes:
        folder: the folder of these files, below the table's; the table's own for a single small one.
        indexed: the columns of which the log gets the smallest and largest value.
        totals: what was added up while the rows were written.
        names: of the files, in order; None: whoever wrote them did not say.
        written: {name of a file: what an entry says of it}, of those that are flushed already.
        tags: {name of a file: the tag that says what rows it has, see `sums`}; of all, or of none.
    """

    table: LakePath
    folder: LakePath
    indexed: tuple[str, ...] = ()
    totals: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    written: Mapping[str, _Written] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def tagged(self, digests: Sequence[Digest], schema_json: str) -> Staged:
        """These files, each tagged with the digest of its rows.

        Args:
            digests: of the visible rows of each file, in the order in which they were written; of one file, of whoever
                wrote it.
        """
        if len(digests) == 1:
            return replace(self, tags={_ANY: rows_tag(digests[0], schema_json)})
        tags = {part_name(number): rows_tag(digest, schema_json) for number, digest in enumerate(digests)}
        return replace(self, tags=tags)

    @property
    def files(self) -> list[LakePath]:
        """List the data files in the folder."""
        return files_in(self.folder, ".parquet") if self.names is None else [self.folder / name for name in self.names]

    def flush(self) -> Staged:
        """Flush the files to disk now; with what an entry says of them. Where that fails they are removed."""
        try:
            with disk_errors(self.folder):
                written = {file.name: self.written.get(file.name) or _flushed(file) for file in self.files}
        except BaseException:
            self.discard()
            raise
        return replace(self, written=written)

    def flushed(self, *, also_empty: bool = False) -> list[Action]:
        """Flush the files and their folder to disk; the actions that add them.

        The names in the table's folder are flushed by the commit.

        Args:
            also_empty: a file without rows says something too; otherwise it is left out.
        """
        actions: list[Action] = []
        for file in self.files:
            written = self.written.get(file.name) or _flushed(file)
            if written.footer.num_rows or also_empty:
                actions.append({"add": self._added(file, written)})
        if self.folder != self.table:
            sync_folder(self.folder)
        return actions

    def discard(self) -> None:
        """Remove the files: no commit will name them."""
        if self.folder != self.table:
            discard_folder(self.folder)
            return
        for file in self.files:
            remove_file(file)

    def _added(self, file: LakePath, written: _Written) -> dict[str, Any]:
        return {
            "path": quote(within(file, self.table)),
            "partitionValues": {},
            "size": written.size,
            "modificationTime": written.modified,
            "dataChange": True,
            "stats": statistics(written.footer, self.indexed),
            "tags": {CHECKSUM_TAG: written.checksum, **self._rows_tag(file)},
        }

    def _rows_tag(self, file: LakePath) -> dict[str, str]:
        tag = self.tags.get(file.name, self.tags.get(_ANY))
        return {} if tag is None else {ROWS_TAG: tag}


@dataclass(frozen=True)
class StagedParts:
    """Files that several have staged for one commit, each in a folder of its own."""

    parts: tuple[Staged, ...]

    def flushed(self) -> list[Action]:
        """As of each `Staged`, in order."""
        return [action for part in self.parts for action in part.flushed()]

    def discard(self) -> None:
        """Remove the files: no commit will name them."""
        for part in self.parts:
            part.discard()


@dataclass(frozen=True)
class _Written:
    """What an entry says of a file, with its time in milliseconds since the epoch."""

    size: int
    modified: int
    checksum: str
    footer: pq.FileMetaData


def stage(
    rows: DataFrame, table: LakePath, epoch: int, indexed: Sequence[str] = (), totals: Sequence[Column] = ()
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
        discard_folder(folder)
        raise
    return Staged(table, folder, tuple(indexed), observed.get if totals else {})


def stage_rows(rows: pa.Table, table: LakePath, epoch: int, indexed: Sequence[str] = ()) -> Staged:
    """Write rows in Arrow form to one file below the table's folder; they must have the stored columns and types."""
    return stage_files([[rows]], rows.schema, table, epoch, indexed)


def stage_files(
    files: Iterable[Iterable[pa.Table]], schema: pa.Schema, table: LakePath, epoch: int, indexed: Sequence[str] = ()
) -> Staged:
    """Write one file below the table's folder for each of `files`, which gives its row groups one by one.

    A single small one, on a disk, has no folder of its own: to make and flush it would take as long as the file.
    """
    folder, each, small = _folder(table, epoch), iter(files), None
    if isinstance(table, Path) and (first := next(each, None)) is not None:
        small, groups = _few(first)
        rest = next(each, None) if small is not None else None
        if small is not None and rest is None:
            return _staged_alone(table, f"{folder.name}.parquet", small, schema, indexed)
        begun: list[Iterable[pa.Table]] = [groups if small is None else small]
        each = chain(begun, [] if rest is None else [rest], each)
    with disk_errors(folder):
        if isinstance(folder, Path):
            folder.mkdir()
        try:
            names = tuple(_write(folder / part_name(number), groups, schema) for number, groups in enumerate(each))
            failpoint("after-staging")
        except BaseException:
            discard_folder(folder)
            raise
    return Staged(table, folder, tuple(indexed), names=names)


def _staged_alone(
    table: Path, name: str, row_groups: Sequence[pa.Table], schema: pa.Schema, indexed: Sequence[str]
) -> Staged:
    target = io.BytesIO()
    footer = _encode(target, row_groups, schema)
    data = target.getvalue()
    write_new(table / name, data)
    written = _Written(len(data), time.time_ns() // 1_000_000, f"{zlib.crc32(data):08x}", footer)
    staged = Staged(table, table, tuple(indexed), names=(name,), written={name: written})
    try:
        failpoint("after-staging")
    except BaseException:
        staged.discard()
        raise
    return staged


def part_name(number: int) -> str:
    """The name of one of the files that `stage_files` writes."""
    return f"part-{number}.parquet"


def data_file(table: LakePath, url: str) -> str:
    """The path, relative to the table, of the data file that Spark calls `url`.

    Raises:
        CorruptState: it is no file of the table.
    """
    try:
        if isinstance(table, Path):
            return within(Path(unquote(urlsplit(url).path)), table.absolute())
        # The scheme is Hadoop's (s3a), bucket and key are ours.
        bucket, _, key = table.url.partition("://")[2].partition("/")
        parts = urlsplit(url)
        if parts.netloc != bucket or not unquote(parts.path).startswith(f"/{key}/"):
            raise ValueError(url)
        return unquote(parts.path).removeprefix(f"/{key}/")
    except ValueError:
        raise CorruptState(sentence("'{}' is no file of '{}'", url, table_at(table)), where=str(table)) from None


def stated_checksum(body: Mapping[str, Any]) -> str | None:
    """The checksum that an `add` or `remove` action states; None for the file of another tool."""
    found = (body.get("tags") or {}).get(CHECKSUM_TAG)
    return None if found is None else str(found)


def checksum(file: LakePath) -> str:
    """The CRC-32 of a file, eight hex digits."""
    total = 0
    with open_file(file) as opened:
        for piece in _pieces(opened):
            total = zlib.crc32(piece, total)
    return f"{total:08x}"


def _folder(table: LakePath, epoch: int) -> LakePath:
    return table / f"epoch-{epoch:09d}-{uuid.uuid4().hex[:8]}"


_IN_MEMORY_ROWS: Final = 16_384
_IN_MEMORY_BYTES: Final = 4 << 20
"""Of a file that is made in memory, and written and flushed at once: to open it again for its checksum, its footer and
its flush takes as long as to make it."""


def _few(row_groups: Iterable[pa.Table]) -> tuple[list[pa.Table] | None, Iterable[pa.Table]]:
    """The row groups of a file, if they are few; and all of them, to be taken once."""
    groups = iter(row_groups)
    first = list(islice(groups, 2))
    few = len(first) < 2 and sum(each.num_rows for each in first) <= _IN_MEMORY_ROWS
    few = few and sum(each.nbytes for each in first) <= _IN_MEMORY_BYTES
    return first if few else None, chain(first, groups)


def _write(file: LakePath, row_groups: Iterable[pa.Table], schema: pa.Schema) -> str:
    """Write one file; its name."""
    if isinstance(file, Location):
        target = io.BytesIO()
        _encode(target, row_groups, schema)
        write_new(file, target.getvalue())
    else:
        _encode(file, row_groups, schema)
    return file.name


def _encode(target: Path | io.BytesIO, row_groups: Iterable[pa.Table], schema: pa.Schema) -> pq.FileMetaData:
    """Write rows as Parquet; the footer."""
    import pyarrow.parquet as pq

    groups = iter(row_groups)
    first = list(islice(groups, 1))
    footers: list[pq.FileMetaData] = []
    # The checksums of pages are not written by default; delta-rs reads timestamps in microseconds only.
    encoded = without_useless(encodings(schema), first[0]) if first else dict(encodings(schema))
    encoded |= {"write_page_checksum": True, "coerce_timestamps": "us", "metadata_collector": footers}
    with pq.ParquetWriter(target, schema, **encoded) as writer:
        for rows in chain(first, groups):
            writer.write_table(rows)
    return footers[0]


def _written(file: LakePath) -> _Written:
    import pyarrow.parquet as pq

    if isinstance(file, Location):
        data = file.read_bytes()
        now = time.time_ns() // 1_000_000
        return _Written(len(data), now, f"{zlib.crc32(data):08x}", pq.read_metadata(io.BytesIO(data)))
    about = file.stat()
    return _Written(about.st_size, about.st_mtime_ns // 1_000_000, checksum(file), pq.read_metadata(file))


def _flushed(file: LakePath) -> _Written:
    written = _written(file)
    if written.footer.num_rows:
        sync_file(file)
    return written


def _pieces(opened: Any) -> Iterator[bytes]:
    while piece := opened.read(_PIECE):
        yield piece


# Some 20 MB of names at most: more files than compaction leaves a lake.
_REMEMBERED: Final = 1 << 16


@cache
def _parquet() -> ds.ParquetFileFormat:
    """Parquet with its pages verified, which is not the default: files of other tools have no other checksums."""
    # It loads pandas, a quarter of a second: whoever reads no rows does without.
    import pyarrow.dataset as ds

    return ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    )


def data_of(table: LakePath, file: LakePath, stated: str | None = None) -> ds.ParquetFileFragment:
    """The rows of a data file, once it is known to be as it was written; without a checksum it is only looked for.

    Raises:
        VersionGone: it is not there.
        CorruptState: it is not as it was written.
    """
    import pyarrow as pa
    from pyarrow.fs import LocalFileSystem

    if isinstance(file, Location):
        return _parquet().make_fragment(pa.py_buffer(content_of(table, file, stated)))
    verify(table, file, stated)
    with reading(table):
        return _parquet().make_fragment(str(file), filesystem=LocalFileSystem())


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


def _arrow_exception() -> type[Exception]:
    """Arrow's errors: looked up when there is one, since many who name data files read none."""
    import pyarrow as pa

    found: type[Exception] = pa.ArrowException
    return found


@contextmanager
def reading(table: LakePath) -> Iterator[None]:
    """Turn errors of data files into ours: VersionGone where one is missing, CorruptState where it does not read."""
    try:
        yield
    except FileNotFoundError as error:
        raise VersionGone(
            sentence("files of '{}' are gone: {}", table_at(table), _line(error)),
            where=str(table),
            hint=rebuild_hint(table.name),
        ) from error
    except (OSError, _arrow_exception()) as error:
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
