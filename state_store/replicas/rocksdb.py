"""Replicas in RocksDB: on local disk, larger than memory, open again in a moment after a kill."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rocksdict import BlockBasedOptions, Cache, Checkpoint, DBCompressionType, Options, Rdict, WriteBatch

from strandline.state_store.errors import CorruptState, DiskFailed, StorageUnavailable, StrandlineError, WriterBusy
from strandline.state_store.replicas.row_bytes import ROWS, ROWS_END
from strandline.state_store.replicas.store import Store, StoreSnapshot, check_backup, copy_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from strandline.state_store.replicas.store import Write


_RESTORED: Final = "remove its folder; it is restored from the table"

# RocksDB's errors as ours. Its binding raises plain exceptions; what went wrong is the beginning of the text.


@contextmanager
def rocksdb_errors(path: Path) -> Iterator[None]:
    """Turn an error of RocksDB inside the block into one of ours."""
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
        return CorruptState(about, where=str(path), hint=_RESTORED)
    if text.startswith("IO error"):
        return DiskFailed(about, where=str(path), hint="see that there is space, then open it again")
    return StorageUnavailable(about, where=str(path), hint="open it again")


# Reads of RocksDB as of one moment.
#
# The binding's snapshots give point reads of their moment, but their iterators see later writes. An iterator by
# itself stands still from when it is made. So a moment is a snapshot and an iterator, made while no write came
# between them. An iterator that meets a broken block just ends: only its status says so.

STATE: Final = b"\x00state"
"""Sorts before every row."""

_MISSING: Final = "key not found"


class RocksSnapshot(StoreSnapshot):
    """One moment of a database; it pins what it sees until nothing holds it."""

    def __init__(self, db: Rdict, path: Path) -> None:
        self._db = db
        self._path = path
        # Which range the iterator is at.
        self._turn = 0
        with rocksdb_errors(path):
            while True:
                self._sequence = db.latest_sequence_number()
                self._moment, self._rows = db.snapshot(), db.iter()
                if db.latest_sequence_number() == self._sequence:
                    return

    def release(self) -> None:
        """Pin nothing any more; nothing can be read from then on. The database stays open while something is pinned."""
        del self._moment, self._rows

    def state(self) -> bytes | None:
        return self.get(STATE)

    def get(self, key: bytes) -> bytes | None:
        try:
            found: bytes = self._moment[key]
        except Exception as error:
            if str(error) == _MISSING:
                return None
            raise ours(error, self._path) from error
        return found

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        # In one call, if nothing was written since: the binding's snapshots take one key at a time.
        with rocksdb_errors(self._path):
            found: Any = self._db.get(list(keys))
            if self._db.latest_sequence_number() == self._sequence:
                return list(found)
        return [self.get(key) for key in keys]

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._turn += 1
        return self._range(low, high, self._turn)

    def values(self) -> Iterator[bytes]:
        # Twice as fast as our own iterator, and of this moment only if nothing was written since.
        with rocksdb_errors(self._path):
            fast: Iterator[bytes] = self._db.values(from_key=ROWS)
            same = self._db.latest_sequence_number() == self._sequence
        return self._guarded(fast) if same else super().values()

    def _range(self, low: bytes, high: bytes, turn: int) -> Iterator[tuple[bytes, bytes]]:
        with rocksdb_errors(self._path):
            found = self._rows
            found.seek(low)
            valid, key, value, advance = found.valid, found.key, found.value, found.next
            while valid():
                name = key()
                if name >= high:
                    return
                yield name, value()
                if turn != self._turn:
                    raise RuntimeError("a range was read on after another one of the same snapshot was begun")
                advance()
            found.status()

    def _guarded(self, values: Iterator[bytes]) -> Iterator[bytes]:
        with rocksdb_errors(self._path):
            yield from values


# Backups of RocksDB: a checkpoint, which shares its files with the store by hard links.

_NAME = "rocksdb"


def copy_checkpoint(db: Rdict, folder: Path) -> None:
    """Write a checkpoint below the folder."""
    Checkpoint(db).create_checkpoint(str(folder / _NAME))


def take_back(backup: Path, path: Path) -> None:
    """Copy a backup to where a store is to be opened; errors as of `check_backup` and `copy_files`."""
    check_backup(backup)
    copy_files(backup / _NAME, path)


# A store in RocksDB. A write is one WriteBatch in the write-ahead log, not flushed to disk.
#
# So a kill loses nothing, and a power cut takes rows and state back together; the feed is read again from there.

CACHE_BYTES: Final = 256 << 20
"""Uncompressed blocks in memory: some 2 M rows of 100 bytes, which is what the larger views of a small lake have."""
# RocksDB's own default: a restore of 1 M rows of 100 bytes fills it twice, and a kill leaves so much to read again.
_WRITE_BUFFER_BYTES: Final = 64 << 20
# A key that is not there costs no read of a block: 10 bits give 1 % of false alarms.
_BLOOM_BITS: Final = 10
# A read looks into each file of the first level: 7 µs with one file, 13 with two. The default merges them at four.
_FIRST_LEVEL_FILES: Final = 2
# The server has two cores, and readers need one.
_BACKGROUND_JOBS: Final = 2
# RocksDB's own log of what it does; ten files of it, of any size, are the default of 1,000.
_LOG_FILES: Final = 3


# RocksDB opens its manifest by a reader that never ends where a record says that its file was used before, for a log.
# The form of the file: https://github.com/facebook/rocksdb/wiki/Write-Ahead-Log-File-Format
_BLOCK_BYTES: Final = 32_768
_HEADER: Final = struct.Struct("<IHB")
"""Of a record: its checksum, its length, and whether it is whole (1) or the first, a middle or the last part (2–4)."""


def _check_manifest(path: Path) -> None:
    """Check the kinds of the records in the manifest of a store, if there is one; all else RocksDB checks by itself.

    Raises:
        CorruptState: a manifest has no record of such a kind.
    """
    try:
        data = (path / (path / "CURRENT").read_text().strip()).read_bytes()
    except (OSError, ValueError):
        return  # there is none, or it cannot be read: RocksDB says so
    place = 0
    while place < len(data):
        left = _BLOCK_BYTES - place % _BLOCK_BYTES
        if left < _HEADER.size or len(data) - place < _HEADER.size:
            place += left
            continue
        _, length, kind = _HEADER.unpack_from(data, place)
        if not (1 <= kind <= 4 or length == kind == 0):
            about = f"the replica '{path.name}': its manifest has a record of kind {kind}"
            raise CorruptState(about, where=str(path), hint=_RESTORED)
        place += left if kind == 0 else _HEADER.size + length


class RocksStore(Store):
    """The store in a folder, made if it is not there.

    Raises:
        WriterBusy: another process has it open.
        CorruptState: it does not open.
        DiskFailed: the disk is full or broken.
    """

    def __init__(self, path: Path, cache_bytes: int = CACHE_BYTES) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_manifest(path)
        with rocksdb_errors(path):
            self._db = Rdict(str(path), _options(cache_bytes))
        # The state as of a sequence number; no write has −1.
        self._known: tuple[int, bytes | None] = (-1, None)

    def write(self, write: Write) -> None:
        # Raw: keys and values are bytes as they are. The binding's own form pickles what it does not know.
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in write.ordered():
            if value is None:
                delete(key)
            else:
                put(key, value)
        put(STATE, write.state)
        with rocksdb_errors(self.path):
            self._db.write(batch)

    def clear(self, state: bytes) -> None:
        batch = WriteBatch(raw_mode=True)
        batch.put(STATE, state)
        batch.delete_range(ROWS, ROWS_END)
        with rocksdb_errors(self.path):
            self._db.write(batch)

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        now = RocksSnapshot(self._db, self.path)
        try:
            yield now
        finally:
            now.release()

    def point(self, key: bytes) -> tuple[bytes | None, bytes | None]:
        return self._unmoved(key)

    def points(self, keys: Sequence[bytes]) -> tuple[bytes | None, list[bytes | None]]:
        return self._unmoved(list(keys))

    def _unmoved(self, wanted: Any) -> tuple[bytes | None, Any]:
        """The state and what RocksDB has of a key, or of a list of keys.

        A snapshot takes twice as long as the read. Two looks at the sequence number tell that no write came between.
        """
        sequence_number, get = self._db.latest_sequence_number, self._db.get
        try:
            while True:
                sequence = sequence_number()
                known, state = self._known
                if known != sequence:
                    state = get(STATE)
                value = get(wanted)
                if sequence_number() == sequence:
                    self._known = (sequence, state)
                    return state, value
        except Exception as error:
            raise ours(error, self.path) from error

    def settle(self) -> None:
        with rocksdb_errors(self.path):
            self._db.flush()
            self._db.compact_range(None, None)

    def copy_to(self, folder: Path) -> None:
        with rocksdb_errors(self.path):
            copy_checkpoint(self._db, folder)

    def close(self) -> None:
        with rocksdb_errors(self.path):
            self._db.close()


def _options(cache_bytes: int) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(cache_bytes))
    blocks.set_bloom_filter(_BLOOM_BITS, block_based=False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_background_jobs(_BACKGROUND_JOBS)
    options.set_level_zero_file_num_compaction_trigger(_FIRST_LEVEL_FILES)
    options.set_keep_log_file_num(_LOG_FILES)
    options.set_paranoid_checks(True)
    return options
