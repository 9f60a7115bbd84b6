"""A store in RocksDB. A write is one WriteBatch in the write-ahead log, not flushed to disk.

So a kill loses nothing, and a power cut takes rows and state back together; the feed is read again from there.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch

from strandline.state_store.replicas.base.store import Store
from strandline.state_store.replicas.codec.keys import ROWS, ROWS_END
from strandline.state_store.replicas.rocksdb.backup import copy_checkpoint
from strandline.state_store.replicas.rocksdb.errors import ours, rocksdb_errors
from strandline.state_store.replicas.rocksdb.snapshot import STATE, RocksSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from strandline.state_store.replicas.base.store import Snapshot, Write

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
    def snapshot(self) -> Iterator[Snapshot]:
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
