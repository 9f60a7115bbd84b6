"""The contract of a backend: atomic writes, snapshots that stand still, ranges in order, backups."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.dynamodb.local import DynamoDBLocal
from strandline.state_store.errors import (
    CommitConflict,
    CorruptState,
    DiskFailed,
    ObjectMissing,
    StorageUnavailable,
    WriterBusy,
)
from strandline.state_store.replicas.dynamodb import DynamoStore, Item
from strandline.state_store.replicas.lmdb import LmdbStore
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.row_bytes import LONGEST_BYTES, ROWS, ROWS_END
from strandline.state_store.replicas.store import Store, Write, back_up, check_backup
from tests.support.examples import SLOWNESS, examples
from tests.support.replica_backends import Backend
from tests.support.waiting import PATIENCE_SECONDS

A, B, C, LONG = b"ra", b"ra\0", b"rb", b"r" + b"x" * (LONGEST_BYTES - 1)


def rows_in(store: Store, low: bytes = ROWS, high: bytes = ROWS_END) -> list[tuple[bytes, bytes]]:
    with store.snapshot() as now:
        return list(now.range(low, high))


def test_a_new_store_is_empty(backend: Backend, tmp_path: Path) -> None:
    with closing(backend.open(tmp_path / "s")) as store, store.snapshot() as now:
        assert now.state() is None
        assert now.get(A) is None
        assert now.multi_get([A, B]) == [None, None]
        assert list(now.range(ROWS, ROWS_END)) == []
        assert list(now.values()) == []


def test_rows_are_put_replaced_and_removed_with_the_state(backend: Backend, tmp_path: Path) -> None:
    with closing(backend.open(tmp_path / "s")) as store:
        store.write(Write(b"1", [C, A, LONG, B], [b"c", b"a", b"\0" * 1000, b""]))
        store.write(Write(b"2", [A, C, b"rnone"], [b"aa", None, None]))
        with store.snapshot() as now:
            assert now.state() == b"2"
            assert now.multi_get([C, A, B, LONG, A]) == [None, b"aa", b"", b"\0" * 1000, b"aa"]
            assert list(now.range(ROWS, ROWS_END)) == [(A, b"aa"), (B, b""), (LONG, b"\0" * 1000)]
            assert list(now.values()) == [b"aa", b"", b"\0" * 1000]
        store.write(Write(b"3"))
        store.write(Write(b"4", [C], [b"c"]))
        assert [key for key, _ in rows_in(store)] == [A, B, C, LONG]


def test_a_range_begins_at_its_low_key_and_ends_before_its_high_one(backend: Backend, tmp_path: Path) -> None:
    with closing(backend.open(tmp_path / "s")) as store:
        keys = [b"r%03d" % number for number in range(300)]
        store.write(Write(b"1", keys[::-1], [key[1:] for key in keys[::-1]]))
        assert [key for key, _ in rows_in(store, keys[7], keys[260])] == keys[7:260]
        assert [key for key, _ in rows_in(store, keys[7] + b"x", keys[9] + b"x")] == keys[8:10]
        assert rows_in(store, keys[7], keys[7]) == rows_in(store, keys[8], keys[7]) == []


def test_a_point_that_dynamodb_has_overtaken_is_read_again(
    dynamodb: DynamoDBLocal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Backend("dynamodb", dynamodb.url)
    with closing(backend.open(tmp_path / "s")) as store, closing(backend.open(tmp_path / "s")) as reader:
        assert isinstance(reader, DynamoStore)
        store.write(Write(b"0", [A], [b"0"]))
        get, states = reader._requests.get, iter([b"1", b"2", b"3", b"4"])

        def overtaken(keys: Sequence[bytes]) -> dict[bytes, Item]:
            for state in islice(states, 2):
                store.write(Write(state, [A], [state]))
            return get(keys)

        monkeypatch.setattr(reader._requests, "get", overtaken)
        assert reader.point(A) == (b"4", b"4")


def test_rocksdb_has_one_sorted_run_once_it_is_settled(tmp_path: Path) -> None:
    with closing(Backend("rocksdb").open(tmp_path / "s")) as store:
        rows = [(b"r%03d" % number, b"%d" % number) for number in range(100)]
        for key, value in rows:
            store.write(Write(b"1", [key], [value]))
        store.settle()
        assert isinstance(store, RocksStore)
        assert len(store._db.live_files()) == 1
        assert rows_in(store) == rows
        assert store.point(rows[7][0]) == (b"1", b"7")


def test_a_writer_waits_for_the_readers_of_memory(tmp_path: Path) -> None:
    store = Backend("memory").open(tmp_path)
    store.write(Write(b"1", [A], [b"a1"]))
    with store.snapshot() as before:
        writer = Thread(target=lambda: store.write(Write(b"2", [A], [b"a2"])))
        writer.start()
        writer.join(0.05)
        assert before.get(A) == b"a1"
    writer.join(PATIENCE_SECONDS)
    assert rows_in(store) == [(A, b"a2")]


def test_clearing_removes_all_rows_and_sets_the_state(backend: Backend, tmp_path: Path) -> None:
    with closing(backend.open(tmp_path / "s")) as store:
        store.write(Write(b"1", [b"r%d" % number for number in range(60)], [b"x"] * 60))
        store.clear(b"cleared")
        with store.snapshot() as now:
            assert now.state() == b"cleared"
        assert rows_in(store) == []
        store.write(Write(b"2", [A], [b"a"]))
        assert rows_in(store) == [(A, b"a")]


def test_what_was_written_is_there_when_it_is_opened_again(lasting: Backend, tmp_path: Path) -> None:
    with closing(lasting.open(tmp_path / "s")) as store:
        store.write(Write(b"1", [A, B], [b"a", b"b"]))
        store.write(Write(b"2", [B], [None]))
    with closing(lasting.open(tmp_path / "s")) as store, store.snapshot() as now:
        assert now.state() == b"2"
        assert list(now.range(ROWS, ROWS_END)) == [(A, b"a")]


def test_a_backup_is_the_store_of_its_moment(backend: Backend, tmp_path: Path) -> None:
    with closing(backend.open(tmp_path / "s")) as store:
        keys = [b"r%05d" % number for number in range(500)]
        store.write(Write(b"1", keys, keys))
        back_up(store, tmp_path / "backup", {"version": 1})
        store.write(Write(b"2", [A], [b"a"]))
        with pytest.raises(FileExistsError):
            back_up(store, tmp_path / "backup", {})
    assert check_backup(tmp_path / "backup")["version"] == 1
    with closing(backend.take_back(tmp_path / "backup", tmp_path / "other")) as other:
        assert rows_in(other) == [(key, key) for key in keys]
        with other.snapshot() as now:
            assert now.state() == b"1"
        other.write(Write(b"3", [A], [b"a"]))
        assert rows_in(other)[-1] == (A, b"a")


def test_a_broken_or_unfinished_backup_is_refused(backend: Backend, tmp_path: Path) -> None:
    with closing(backend.open(tmp_path / "s")) as store:
        store.write(Write(b"1", [A], [b"a"]))
        back_up(store, tmp_path / "backup", {})
    manifest = tmp_path / "backup" / "manifest.json"
    files = [path for path in (tmp_path / "backup").rglob("*") if path.is_file() and path != manifest]
    largest = max(files, key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(bytes(data))
    with pytest.raises(CorruptState, match="is not as it was written"):
        backend.take_back(tmp_path / "backup", tmp_path / "other")
    largest.unlink()
    with pytest.raises(CorruptState, match="is not as it was written"):
        check_backup(tmp_path / "backup")
    manifest.write_text("{")
    with pytest.raises(CorruptState, match="does not read back"):
        check_backup(tmp_path / "backup")
    manifest.unlink()
    with pytest.raises(ObjectMissing):
        check_backup(tmp_path / "backup")


KEYS = st.sampled_from([b"r" + bytes([n]) for n in (0, 1, 2, 127, 255)] + [b"r", b"r\0\0"])
WRITES = st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=5) | st.none(), max_size=6)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, *SLOWNESS])
@given(writes=WRITES, low=KEYS, high=KEYS)
def test_a_store_is_a_dict_in_order(
    backend: Backend,
    tmp_path: Path,
    writes: list[dict[bytes, bytes | None] | None],
    low: bytes,
    high: bytes,
) -> None:
    """Any writes, of which None clears, on one store that goes on from example to example."""
    with closing(backend.open(tmp_path / "s")) as store:
        store.clear(b"begin")
        model: dict[bytes, bytes] = {}
        for number, write in enumerate(writes):
            if write is None:
                store.clear(b"%d" % number)
                model = {}
            else:
                store.write(Write(b"%d" % number, list(write), list(write.values())))
                model |= {key: value for key, value in write.items() if value is not None}
                model = {key: value for key, value in model.items() if write.get(key, b"") is not None}
        assert rows_in(store) == sorted(model.items())
        assert rows_in(store, low, high) == [(key, model[key]) for key in sorted(model) if low <= key < high]
        with store.snapshot() as now:
            assert now.multi_get([low, high]) == [model.get(low), model.get(high)]


def test_a_reader_of_dynamodb_that_two_writes_have_overtaken_is_told(dynamodb: DynamoDBLocal, tmp_path: Path) -> None:
    """An item keeps one value before its last: an older one, or a row that went, may be gone."""
    with closing(Backend("dynamodb", dynamodb.url).open(tmp_path / "s")) as store:
        store.write(Write(b"1", [A, B], [b"a1", b"b1"]))
        with store.snapshot() as before:
            store.write(Write(b"2", [A, B], [b"a2", None]))
            store.write(Write(b"3", [A, C], [b"a3", b"c3"]))
            for read in (
                lambda: before.get(A),
                lambda: before.get(B),
                lambda: list(before.range(ROWS, ROWS_END)),
            ):
                with pytest.raises(StorageUnavailable, match="went on"):
                    read()


def test_of_two_writers_of_dynamodb_the_slower_is_told(dynamodb: DynamoDBLocal, tmp_path: Path) -> None:
    backend = Backend("dynamodb", dynamodb.url)
    with closing(backend.open(tmp_path / "s")) as one, closing(backend.open(tmp_path / "s")) as other:
        one.write(Write(b"1", [A], [b"a1"]))
        with pytest.raises(CommitConflict):
            other.write(Write(b"2", [A], [b"a2"]))
        assert rows_in(one) == [(A, b"a1")]


@pytest.mark.parametrize("name", ["rocksdb", "lmdb"])
def test_a_folder_has_one_process(name: str, tmp_path: Path) -> None:
    with closing(Backend(name).open(tmp_path / "s")), pytest.raises(WriterBusy):
        Backend(name).open(tmp_path / "s")


def test_a_full_map_of_lmdb_is_a_full_disk(tmp_path: Path) -> None:
    with closing(LmdbStore(tmp_path / "s", map_bytes=1 << 16)) as store:
        store.write(Write(b"1", [A], [b"a"]))
        with pytest.raises(DiskFailed):
            store.write(Write(b"2", [b"r%d" % number for number in range(100)], [b"x" * 4000] * 100))
        assert rows_in(store) == [(A, b"a")]
        with store.snapshot() as now:
            assert now.state() == b"1"


def test_a_broken_block_of_rocksdb_is_no_early_end(tmp_path: Path) -> None:
    """The binding's iterators end without a word: the range asks for the status."""
    keys = [b"r%06d" % number for number in range(20_000)]
    with closing(RocksStore(tmp_path / "s")) as store:
        store.write(Write(b"1", keys, [key * 10 for key in keys]))
        store._db.flush()
    (table,) = (tmp_path / "s").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(bytes(data))
    with closing(RocksStore(tmp_path / "s")) as store:
        with pytest.raises(CorruptState):
            rows_in(store)
        with store.snapshot() as now, pytest.raises(CorruptState):
            now.multi_get(keys)
