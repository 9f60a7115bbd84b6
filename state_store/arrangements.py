"""Arrangements of data files: rows found by key on this machine's disk, where a scan would read every key.

    data file (Parquet, immutable)  ──made once──>  <name>.rows   its rows as Arrow has them in memory: mapped, not read
                                                    <name>.keys   hashes of some columns, sorted | the rows' numbers

A look-up is a binary search for each key and a copy of the rows that are found: it costs what is asked for, whatever is
there. A hash may be shared by several keys, so what is found is all rows that have the key, and perhaps some more:
whoever asks compares the values, by the equality of SQL. Deleted rows are found too.

The lake alone is the truth. An arrangement is made from a data file, which never changes, so it is never updated: it
is dropped with its file, and made again where it is lost or damaged. All processes of a machine share them. Each is
written under another name and renamed, with a checksum at its end that is looked at when a process first opens it: one
that is half written, or of a power cut, is not there. Whoever finds none scans the file, and is as right as before.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import tempfile
import time
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from strandline.state_store.failpoints import failpoint
from strandline.state_store.row_lanes import key_hashes
from strandline.state_store.tablespec import STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

Number = TypeVar("Number", np.uint64, np.int64)

_log = logging.getLogger("strandline.store")

FEWEST_ROWS: Final = 100_000
"""A smaller file is scanned: DuckDB reads its keys in some 3 ms, and soon it is merged into a larger one."""
PATIENCE: Final = 3
"""The reads of a file after which it is arranged, which costs about nine scans. A file that an epoch wrote is often
merged before that, and a process that takes in one epoch and ends never earns it."""
LARGEST_SHARE: Final = 0.2
"""The part of a file's rows up to which they are looked up; a scan costs less than the copies of more
(docs/design/0036-arrangements.md)."""

_FORMAT: Final = 1
"""What is stored, and how keys are hashed. Another number is another name: what an older version made is not found."""
_TRAILER: Final = struct.Struct("<8sQ16s")
_MAGIC: Final = b"strandl\x01"
_KEY_BYTES: Final = 12
"""Of the hash and of the row's number."""
_MOST_ROWS: Final = 1 << 32
_IN_USE_SECONDS: Final = 600.0
"""What was used so recently is not removed for another: where the files in use do not fit, each epoch would make again
what the one before it removed."""
_TOUCH_SECONDS: Final = 60.0
"""How often the use of a file is written into its times, by which all processes see it."""
_LEFT_BEHIND_SECONDS: Final = 3600.0
"""The age of a file that was begun by a process which no longer lives."""
_SPARE_BYTES: Final = 1 << 30
"""What is left of the disk: the lake, or what DuckDB puts aside, may lie on the same one."""
_BLOW_UP: Final = 4
"""Arrow's bytes for each byte of Parquet, before compression, of columns whose values repeat: guessed, to see that
there is room. What it turns out to be is counted."""


@dataclass(frozen=True)
class DataFile:
    """A data file that can be arranged.

    Attributes:
        table: that it belongs to.
        name: that no other file of the table has ever had.
        checksum: by the log.
        path: where it can be read.
        rows: that it has, deleted ones included.
    """

    table: str
    name: str
    checksum: str
    path: Path
    rows: int

    def entry(self, columns: Sequence[str] | None = None) -> str:
        """The name of what is stored of it: its rows, or the hashes of these columns."""
        kind = "rows" if columns is None else "keys"
        said = repr((_FORMAT, self.table, self.name, self.checksum, *(columns or ())))
        return f"{xxhash.xxh3_128_hexdigest(said.encode())}.{kind}"


@dataclass(frozen=True)
class Arrangement:
    """The rows of one data file by some of its columns.

    Attributes:
        hashes: of each row's key, ascending.
        numbers: the rows' numbers in the file, in that order.
        batches: the rows, in the file's order.
    """

    hashes: NDArray[np.uint64]
    numbers: NDArray[np.uint32]
    batches: tuple[pa.RecordBatch, ...]
    starts: NDArray[np.int64]

    def find(self, hashes: NDArray[np.uint64], most: int) -> NDArray[np.int64] | None:
        """The numbers of all rows whose keys have one of these hashes, ascending: of the key's rows, and perhaps more.

        Args:
            hashes: of the keys (`key_hashes`), ascending and each once.
            most: rows that are wanted; None: there are more.
        """
        first = np.searchsorted(self.hashes, hashes, "left")
        sizes = np.searchsorted(self.hashes, hashes, "right") - first
        if sizes.sum() > most:
            return None
        first, sizes = first[sizes > 0], sizes[sizes > 0]
        # The runs [first, first + size) one after the other.
        places = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        return np.sort(self.numbers[places]).astype(np.int64)

    def take(self, numbers: NDArray[np.int64]) -> pa.Table:
        """The rows of these numbers, which ascend."""
        ends = np.searchsorted(numbers, self.starts)
        parts = zip(self.batches, self.starts, ends, [*ends[1:], len(numbers)], strict=True)
        taken = [batch.take(pa.array(numbers[begin:end] - start)) for batch, start, begin, end in parts if begin < end]
        return pa.Table.from_batches(taken, self.batches[0].schema)


@dataclass
class _Opened:
    """What this process has of a stored file: mapped, and checked once."""

    table: str
    name: str
    found: Arrangement
    entries: tuple[str, str]
    used: float
    touched: float


class Arrangements:
    """The arrangements of data files, for one process. Safe for several threads, and beside other processes.

    Args:
        folder: for them, which other users must not be able to write to; made when it is first needed.
        most_bytes: that all of them take; those not used for longest go first.
        fewest_rows: of a file that is arranged.
        patience: reads of a file before it is arranged.
        largest_share: of a file's rows that are looked up; more are scanned for.
        beside: make them in a thread, and scan until they are made; otherwise whoever asks waits.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        *,
        fewest_rows: int = FEWEST_ROWS,
        patience: int = PATIENCE,
        largest_share: float = LARGEST_SHARE,
        beside: bool = False,
    ) -> None:
        self.folder = folder
        self.fewest_rows = fewest_rows
        self.largest_share = largest_share
        self._most = most_bytes
        self._patience = patience
        self._lock = Lock()
        self._making = Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="strandline-arrange") if beside else None
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._asked: Counter[str] = Counter()
        self._unstored: set[str] = set()

    def open(self, file: DataFile, columns: Sequence[str]) -> Arrangement | None:
        """Find the arrangement of a file by these columns, and make it when it was asked for often enough.

        None: there is none, and the file is to be scanned. No failure of this machine's disk is an error here.

        Args:
            columns: stored ones, `__state.<field>` for a field of that struct.
        """
        if not self.fewest_rows <= file.rows < _MOST_ROWS:
            return None
        entry = file.entry(columns)
        with self._lock:
            known = self._opened.get(entry)
            if known is not None:
                self._opened.move_to_end(entry)
        if known is not None:
            return known.found if self._used(known) else None
        if entry in self._unstored:
            return None
        try:
            return self._kept(file, columns) or self._made(file, columns)
        except (OSError, pa.ArrowException) as error:
            self._give_up(entry, f"'{file.name}' of {file.table} is scanned: {error}")
            return None

    def drop_others(self, table: str, names: Iterable[str]) -> None:
        """Drop the arrangements of files that a table no longer has; what a reader of an older version used a moment
        ago stays.

        Args:
            names: of the files that it has.
        """
        present, now = set(names), time.monotonic()
        with self._lock:
            gone = [
                entry
                for entry, each in self._opened.items()
                if each.table == table and each.name not in present and now - each.used > _IN_USE_SECONDS
            ]
            dropped = [self._opened.pop(entry) for entry in gone]
        for each in dropped:
            for name in each.entries:
                (self.folder / name).unlink(missing_ok=True)

    def _used(self, known: _Opened) -> bool:
        """Note the use of an arrangement; False, and it is forgotten, when another process has removed it."""
        known.used = now = time.monotonic()
        if now - known.touched < _TOUCH_SECONDS:
            return True
        known.touched = now
        try:
            for name in known.entries:
                os.utime(self.folder / name)
        except OSError:
            with self._lock:
                self._opened.pop(known.entries[1], None)
            return False
        return True

    def _kept(self, file: DataFile, columns: Sequence[str]) -> Arrangement | None:
        """The arrangement as it is stored; None where it is not, or is damaged."""
        names = file.entry(), file.entry(columns)
        keys = _payload(self.folder / names[1])
        rows = None if keys is None else _payload(self.folder / names[0])
        if keys is None or rows is None:
            return None
        reader = pa.ipc.open_file(rows)
        batches = tuple(reader.get_batch(number) for number in range(reader.num_record_batches))
        sizes = [batch.num_rows for batch in batches]
        if sum(sizes) != file.rows or len(keys) != file.rows * _KEY_BYTES:
            return None
        hashes = np.frombuffer(keys, np.uint64, file.rows)
        numbers = np.frombuffer(keys, np.uint32, file.rows, 8 * file.rows)
        found = Arrangement(hashes, numbers, batches, np.cumsum([0, *sizes[:-1]]).astype(np.int64))
        now = time.monotonic()
        for name in names:
            with suppress(OSError):
                os.utime(self.folder / name)
        with self._lock:
            self._opened[names[1]] = _Opened(file.table, file.name, found, names, now, now)
        return found

    def _made(self, file: DataFile, columns: Sequence[str]) -> Arrangement | None:
        entry = file.entry(columns)
        with self._lock:
            self._asked[entry] += 1
            if self._asked[entry] < self._patience:
                return None
        # One at a time: the disk is one. Who comes meanwhile scans.
        if not self._making.acquire(blocking=False):
            return None
        if self._thread is None:
            return self._kept(file, columns) if self._make(file, columns) else None
        self._thread.submit(self._make, file, columns)
        return None

    def _make(self, file: DataFile, columns: Sequence[str]) -> bool:
        """Store an arrangement; False where there is no room for it, or it failed."""
        try:
            return self._stored(file, columns)
        except (OSError, pa.ArrowException) as error:
            self._give_up(file.entry(columns), f"'{file.name}' of {file.table} is scanned: {error}")
            return False
        finally:
            self._making.release()

    def close(self) -> None:
        """Wait for the one that is being made."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _stored(self, file: DataFile, columns: Sequence[str]) -> bool:
        """Store what is missing of an arrangement; False where there is no room for it."""
        own_folder(self.folder)
        parquet = pq.ParquetFile(file.path)
        rows, keys = self.folder / file.entry(), self.folder / file.entry(columns)
        missing = _payload(rows) is None
        size = file.rows * _KEY_BYTES + (_guessed(parquet.metadata) if missing else 0)
        if not self._make_room(size, {rows.name, keys.name}):
            self._give_up(keys.name, f"'{file.name}' of {file.table} is scanned: there is no room for {size:,} bytes")
            return False
        if missing:
            _write(rows, lambda target: _write_rows(target, parquet))
        hashes = [_hashed(parquet, group, columns) for group in range(parquet.num_row_groups)]
        every = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
        order = np.argsort(every)
        failpoint("inside-arrangement")
        _write(keys, lambda target: _write_keys(target, every[order], order.astype(np.uint32)))
        return True

    def _make_room(self, size: int, kept: set[str]) -> bool:
        """Remove what was not used for longest until `size` bytes more fit; False, where they do not."""
        if os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize < size + _SPARE_BYTES:
            return False
        found = []
        now = time.time()
        for each in os.scandir(self.folder):
            with suppress(FileNotFoundError):
                about = each.stat()
                if each.name.endswith(".tmp") and now - about.st_mtime > _LEFT_BEHIND_SECONDS:
                    os.unlink(each.path)
                else:
                    found.append((about.st_mtime, about.st_size, each.name))
        total = sum(each[1] for each in found) + size
        for used, freed, name in sorted(found):
            if total <= self._most:
                break
            if name in kept or now - used < _IN_USE_SECONDS:
                continue
            (self.folder / name).unlink(missing_ok=True)
            total -= freed
            with self._lock:
                for entry in [e for e, each in self._opened.items() if name in each.entries]:
                    del self._opened[entry]
        return total <= self._most

    def _give_up(self, entry: str, why: str) -> None:
        """Do not try again in this process: it would cost each epoch what it cost this one."""
        with self._lock:
            first = not self._unstored
            self._unstored.add(entry)
        _log.log(logging.WARNING if first else logging.DEBUG, "no arrangement: %s", why)


def arrangements_in(folder: Path | None, most_bytes: int) -> Arrangements | None:
    """The arrangements of this machine; None where they may take no bytes.

    Args:
        folder: default: one of this user's on the machine's disk for temporary files.
    """
    own = folder or Path(tempfile.gettempdir()) / f"strandline-arrangements-{os.getuid()}"
    return Arrangements(own, most_bytes, beside=True) if most_bytes else None


def own_folder(folder: Path) -> None:
    """Make the folder, for this user alone.

    Raises:
        OSError: it cannot be made, or another user may write to it: rows that others put there would go into tables.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise PermissionError(f"{folder} may be written by others")


def hashes_of(keys: pa.Table) -> NDArray[np.uint64]:
    """The hash of each key, in their order."""
    batches = [key_hashes(batch) for batch in keys.to_batches() if batch.num_rows]
    return np.concatenate(batches) if batches else np.empty(0, np.uint64)


def distinct(parts: Sequence[NDArray[Number]]) -> NDArray[Number]:
    """The numbers of all parts, ascending, each once: hashes as `Arrangement.find` wants them. `np.unique` takes 73 ms
    for 100,000, this 3."""
    every = np.sort(np.concatenate(parts))
    first = np.ones(len(every), np.bool_)
    first[1:] = every[1:] != every[:-1]
    return every[first]


def column_at(rows: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    """A stored column, or `__state.<field>`. Raises KeyError: the rows do not have it."""
    head, dot, name = path.partition(".")
    if dot and head == STATE and path not in rows.schema.names:
        return pc.struct_field(rows[STATE], name)
    return rows[path]


def _hashed(parquet: pq.ParquetFile, group: int, columns: Sequence[str]) -> NDArray[np.uint64]:
    heads = {path.partition(".")[0] if path.startswith(f"{STATE}.") else path for path in columns}
    rows = parquet.read_row_group(group, columns=sorted(heads))
    keys = pa.table({str(place): column_at(rows, path) for place, path in enumerate(columns)})
    return np.concatenate([key_hashes(batch) for batch in keys.to_batches()] or [np.empty(0, np.uint64)])


def _guessed(footer: pq.FileMetaData) -> int:
    total: int = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    return _BLOW_UP * total


def _write_rows(target: Path, parquet: pq.ParquetFile) -> None:
    schema = parquet.schema_arrow.remove_metadata()
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        # A batch for each row group: a copy of a few rows of a column in many pieces would copy all of it first.
        for group in range(parquet.num_row_groups):
            for batch in parquet.read_row_group(group).cast(schema).combine_chunks().to_batches():
                writer.write_batch(batch)


def _write_keys(target: Path, hashes: NDArray[np.uint64], numbers: NDArray[np.uint32]) -> None:
    with target.open("wb") as opened:
        opened.write(hashes.data)
        opened.write(numbers.data)


# Files that are whole or not there: what they hold, its size and its checksum, under a name that they get at last.


def _write(file: Path, write: Callable[[Path], None]) -> None:
    being_written = file.with_name(f"{file.name}.{uuid4().hex}.tmp")
    try:
        write(being_written)
        size = being_written.stat().st_size
        with being_written.open("r+b") as opened:
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                digest = xxhash.xxh3_128_digest(mapped)
            opened.seek(size)
            opened.write(_TRAILER.pack(_MAGIC, size, digest))
        failpoint("before-arrangement-named")
        os.replace(being_written, file)
    except BaseException:
        # A full disk above all: what was written of it would take the place that is missing.
        being_written.unlink(missing_ok=True)
        raise


def _payload(file: Path) -> pa.Buffer | None:
    """What a file holds, mapped; None where it is not there, or not whole."""
    try:
        with file.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):  # not there, or empty
        return None
    size = len(mapped) - _TRAILER.size
    if size < 0:
        return None
    payload = memoryview(mapped)[:size]
    if _TRAILER.unpack_from(mapped, size) != (_MAGIC, size, xxhash.xxh3_128_digest(payload)):
        return None
    return pa.py_buffer(mapped).slice(0, size)
