"""The DuckDB engine: one database in memory, in which refreshes run side by side over the files of tables.

It holds nothing that is not in the lake as well, so it may go at any time. Its memory is bounded, and what does not fit
goes to a folder of its own that ends with it. What it keeps from one epoch to the next (`Kept`: recent changes,
snapshots, copies of data files) can be read again from the lake.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from strandline.state_store.arrangements import arrangements_in
from strandline.state_store.delta.data_files import content_of, verify
from strandline.state_store.delta.snapshot import Snapshots
from strandline.state_store.duckdb import elementary
from strandline.state_store.duckdb.statements import Statements
from strandline.state_store.files import disk_errors, remove_left_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.state_store.arrangements import Arrangements
    from strandline.state_store.delta.merging import BackgroundMerges
    from strandline.state_store.paths import LakePath


_SETTINGS: Final = (
    # What is set globally, each connection has: to set it on each took 0.2 ms.
    "SET GLOBAL TimeZone = 'UTC'",
    # A text that names no relation of ours must fail, not find a variable of this process.
    "SET GLOBAL python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    # DuckDB 2.0 believes that a CASE with an error() in one branch is never NULL, and folds what follows.
    "SET disabled_optimizers = 'statistics_propagation'",
    # Rows of a table have no order; keeping the one they came in costs memory.
    "SET preserve_insertion_order = false",
)
_ASIDE: Final = Path(tempfile.gettempdir())
_PREFIX: Final = "strandline-kernel-"


def literal(text: str) -> str:
    """Quote a text as a constant for DuckDB."""
    return "'" + text.replace("'", "''") + "'"


class DuckDBEngine:
    """A DuckDB for refreshes. Close it by `with`.

    Args:
        memory: the most that it may use, as DuckDB writes it (`2GB`).
        threads: that work on queries.
        arrangements: those of this machine; without them every file is scanned. Closed with it, as the next are.
        merges: of the files that are written beside epochs; without them all are merged in line.
    """

    def __init__(
        self,
        memory: str,
        threads: int,
        arrangements: Arrangements | None = None,
        merges: BackgroundMerges | None = None,
    ) -> None:
        remove_left_behind(_ASIDE, _PREFIX)
        # DuckDB makes it when it first puts something aside.
        self._folder = _ASIDE / f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._database = duckdb.connect(":memory:", config={"memory_limit": memory, "threads": threads})
        for setting in _SETTINGS:
            self._database.execute(setting)
        self._database.execute(f"SET temp_directory = {literal(str(self._folder))}")
        elementary.register(self._database)
        self._registering = Lock()
        self.kept = Kept.nothing(self._folder / "copies", arrangements, merges)
        self.statements = Statements(self.cursor)

    def __enter__(self) -> DuckDBEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the database and remove what it put aside, and merges that are not committed."""
        if self.kept.merges is not None:
            self.kept.merges.close()
        if self.kept.arrangements is not None:
            self.kept.arrangements.close()
        self.statements.close()
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def register(self, register: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
        """Make Python functions known to all connections, for as long as DuckDB lives.

        Args:
            register: does so on the connection that it is given. DuckDB keeps the Python of a function with that
                connection, and its name with the database: after a `close`, a call would end the process.
        """
        with self._registering:
            register(self._database)

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection whose views and temporary tables nobody else sees; they end with it."""
        connection = self.cursor()
        try:
            yield connection
        finally:
            connection.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection as of `connection`, for whoever closes it or lets it go."""
        return self._database.cursor()


@lru_cache(maxsize=1)
def process_engine(_run: str, memory_mb: int, threads: int, arrangements: tuple[Path | None, int]) -> DuckDBEngine:
    """The engine of a process that does tasks of one run after the other, with the changes that it committed last.

    Another run may have other functions of the same names, so it gets another engine.

    Args:
        arrangements: folder and bytes, see `state_store.arrangements.arrangements_in`.
    """
    return DuckDBEngine(f"{memory_mb}MB", threads, arrangements_in(*arrangements))


# Changes that this process committed a moment ago: whoever reads the table next need not read them back from disk.

_RECENT_BYTES: Final = 64 << 20
"""All that is kept. An epoch of 100,000 changed rows has some 10 MB; a larger one is read back at the speed of disk."""

_MOST_COMMITS: Final = 256
"""The last epochs of a hundred tables; whoever is further behind reads from disk. Each takes a page of memory (64 kB)
beside its rows."""
_MOST_SMALL_FILES: Final = 8_192
"""Data files of which the rows are kept, within as many bytes."""
_COPIED_BYTES: Final = 1 << 20
"""Arrow's buffers may be far larger than the rows in them: DuckDB makes each for 2,048 rows at least, so the changes of
an epoch of twenty rows kept a hundred times their size. Up to here they are copied, which takes 0.1 ms."""

_Name = tuple[str, str]


class RecentRows:
    """Rows by table and a name of its own, a commit's or a file's; the oldest are forgotten first. Safe for several
    threads."""

    def __init__(self, most_bytes: int = _RECENT_BYTES, most_names: int = _MOST_COMMITS) -> None:
        self._most = most_bytes
        self._most_names = most_names
        self._lock = Lock()
        self._kept: OrderedDict[_Name, pa.Table] = OrderedDict()
        self._bytes = 0

    def put(self, table: LakePath, name: str, rows: pa.Table, *, copied: bool = False) -> pa.Table:
        """Keep rows, unless they are too large; the rows as they are kept.

        Args:
            name: of the commit whose changes they are (stored columns and `__weight`), or of the file.
            copied: they are rows that were kept elsewhere, in memory of their own.
        """
        size = rows.nbytes
        if size > self._most // 2:
            return rows
        if size < _COPIED_BYTES and not copied:
            rows = _copied(rows)
        with self._lock:
            before = self._kept.pop((str(table), name), None)
            self._kept[str(table), name] = rows
            self._bytes += rows.nbytes - (0 if before is None else before.nbytes)
            while self._bytes > self._most or len(self._kept) > self._most_names:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes
        return rows

    def find(self, table: LakePath, name: str) -> pa.Table | None:
        """Find rows, if they are kept."""
        with self._lock:
            return self._kept.get((str(table), name))


def _copied(rows: pa.Table) -> pa.Table:
    """The rows in memory of their own, all in one piece."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


# Data files on this machine's disk, checked: what DuckDB reads.
#
# A file of a lake on a disk is read where it lies. One of an object store is copied, once: a data file never changes.
# The copies are bounded, and the ones not used for longest go first.

_MOST_BYTES: Final = 8 << 30
"""All copies: the files of some ten views of ten million rows. What does not fit is fetched again."""
_IN_USE_SECONDS: Final = 3600.0
"""A copy that was asked for so recently stays, whatever it takes: the text that names it may still be running. Epochs
run for seconds, the computation of a view over all history for minutes."""


_MOST_FOOTERS: Final = 100_000
"""Files whose columns are remembered: some hundred bytes each."""


@dataclass
class _Copy:
    size: int
    used: float


class LocalFiles:
    """The data files of any tables, for one process. Safe for several threads.

    Args:
        folder: for the copies; made with the first of them.
    """

    def __init__(self, folder: Path, most_bytes: int = _MOST_BYTES, in_use_seconds: float = _IN_USE_SECONDS) -> None:
        self._folder = folder
        self._most = most_bytes
        self._in_use = in_use_seconds
        self._lock = Lock()
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._columns: OrderedDict[Path, frozenset[str]] = OrderedDict()

    def path_of(self, table: LakePath, file: LakePath, stated: str | None) -> Path:
        """Find where a file can be read, and check that it is as it was written.

        Args:
            stated: its checksum; without one it is only looked for.

        Raises:
            VersionGone: it is not there.
            CorruptState: it is not as it was written.
            DiskFailed, StorageDenied: there is no place for its copy.
        """
        if isinstance(file, Path):
            verify(table, file, stated)
            return file
        name = f"{xxhash.xxh3_128_hexdigest(f'{file.url} {stated}'.encode())}.parquet"
        copy = self._folder / name
        if not self._known(copy):
            data = content_of(table, file, stated)
            self._write(copy, data)
            self._keep(name, len(data))
        return copy

    def columns_of(self, file: Path) -> frozenset[str]:
        """The names of the columns that a file has, as `path_of` gave it. They never change, so they are read once."""
        found = self._columns.get(file)
        if found is None:
            found = frozenset(pq.read_schema(file).names)
            with self._lock:
                self._columns[file] = found
                while len(self._columns) > _MOST_FOOTERS:
                    self._columns.popitem(last=False)
        return found

    def _write(self, copy: Path, data: bytes) -> None:
        being_written = copy.with_suffix(f".{uuid4().hex}")
        with disk_errors(copy):
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                being_written.write_bytes(data)
                os.replace(being_written, copy)
            except BaseException:
                # A full disk above all: what was written of it would take the place that is missing.
                being_written.unlink(missing_ok=True)
                raise

    def _known(self, copy: Path) -> bool:
        # A machine's clean-up removes what has been in a folder for temporary files for some days.
        there = copy.exists()
        with self._lock:
            found = self._copies.get(copy.name)
            if found is None or not there:
                return False
            found.used = time.monotonic()
            self._copies.move_to_end(copy.name)
            return True

    def _keep(self, name: str, size: int) -> None:
        now = time.monotonic()
        with self._lock:
            self._copies[name] = _Copy(size, now)
            total = sum(each.size for each in self._copies.values())
            while total > self._most and now - next(iter(self._copies.values())).used > self._in_use:
                oldest, gone = self._copies.popitem(last=False)
                (self._folder / oldest).unlink(missing_ok=True)
                total -= gone.size


@dataclass(frozen=True)
class Kept:
    """What a DuckDB engine keeps. Safe for several threads.

    Attributes:
        recent: changes that were committed a moment ago.
        files: rows of small data files.
        gathered: rows of versions of small tables.
        snapshots: of the tables, which follow their logs.
        local: their data files on this machine's disk.
        arrangements: of these files; None: they are scanned.
        merges: of these tables, beside their epochs; None: they are merged in line.
    """

    recent: RecentRows
    files: RecentRows
    gathered: RecentRows
    snapshots: Snapshots
    local: LocalFiles
    arrangements: Arrangements | None = None
    merges: BackgroundMerges | None = None

    @classmethod
    def nothing(
        cls, copies: Path, arrangements: Arrangements | None = None, merges: BackgroundMerges | None = None
    ) -> Kept:
        """Make empty caches.

        Args:
            copies: the folder for copies of data files, see `LocalFiles`.
        """
        files = RecentRows(most_names=_MOST_SMALL_FILES)
        return cls(RecentRows(), files, RecentRows(), Snapshots(), LocalFiles(copies), arrangements, merges)
