"""One replica: versions applied whole or not at all, and reads that are those of a dict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.state_store.commits import TableVersion
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.errors import DuplicateKey, KeyRefused, NegativeWeight, ReplicaDiverged, ReplicaNotReady
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.row_bytes import KeyRange
from strandline.state_store.replicas.state import Layout, Phase
from strandline.state_store.tablespec import WEIGHT
from tests.support.examples import SLOWNESS, examples
from tests.support.replica_backends import Backend

SCHEMA = pa.schema([("k", pa.int64()), ("town", pa.string()), ("v", pa.float64())])
KEYED = Layout(SCHEMA, ("town", "k"))
COUNTED = Layout(SCHEMA, None)
Row = tuple[int | None, str | None, float | None]


def table_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def changes_of(changes: list[tuple[Row, int]]) -> pa.Table:
    return table_of([row for row, _ in changes]).append_column(WEIGHT, pa.array([w for _, w in changes], pa.int64()))


def digest_of(rows: Counter[Row]) -> Digest:
    return digest_of_table(table_of(list(rows.elements())).to_batches())


def opened(backend: Backend, path: Path, layout: Layout, rows: list[Row] | None = None) -> Replica:
    """A replica at version 0 with these rows."""
    replica = Replica("r", backend.open(path), layout)
    replica.begin()
    replica.begin_restore(TableVersion(0, "t", "n0"))
    for batch in table_of(rows or []).to_batches():
        replica.load(batch, "file")
    replica.verify(digest_of(Counter(rows or [])))
    return replica


def rows_in(replica: Replica) -> Counter[Row]:
    with replica.reading() as now:
        return Counter(tuple(row.values()) for batch in now.scan() for row in batch.to_pylist())


def test_reads_are_as_of_the_version(backend: Backend, tmp_path: Path) -> None:
    rows: list[Row] = [(1, "a", 1.0), (2, "a", None), (None, "b", 3.0), (-1, None, 0.5)]
    with closing(opened(backend, tmp_path / "r", KEYED, rows)) as replica:
        with replica.reading() as now:
            assert now.version == 0
            assert now.get(("a", 1)) == {"k": 1, "town": "a", "v": 1.0}
            assert now.get(("a", 3)) is None
            assert now.count_of(("b", None)) == 1
            found = now.multi_get([("b", None), ("x", 1), ("a", 2)])
            assert [row and row["v"] for row in found] == [3.0, None, None]
            assert [row["k"] for row in now.range(KeyRange())] == [-1, 1, 2, None]
            assert [row["k"] for row in now.range(KeyRange.of_prefix("a"))] == [1, 2]
            assert [row["k"] for row in now.range(KeyRange(low=("a", 2)))] == [2, None]
            assert [row["k"] for row in now.range(KeyRange(), limit=2)] == [-1, 1]
            with pytest.raises(KeyRefused):
                now.get(("a",))
        assert replica.get(("a", 1)) == (0, {"k": 1, "town": "a", "v": 1.0})
        with pytest.raises(KeyRefused):
            replica.get(("a",))
        replica.apply(changes_of([((1, "a", 1.0), -1), ((1, "a", 2.0), 1)]), TableVersion(1, "t", "n1"))
        with replica.reading() as now:
            assert now.version == 1
            assert now.get(("a", 1)) == {"k": 1, "town": "a", "v": 2.0}
        assert [replica.get(("a", 1)), replica.get(("a", 3))] == [(1, {"k": 1, "town": "a", "v": 2.0}), (1, None)]
        version, found = replica.multi_get([("a", 3), ("b", None), ("a", 1)])
        assert (version, [row and row["v"] for row in found]) == (1, [None, 3.0, 2.0])
        assert replica.digest() == replica.state.digest


def test_equal_rows_are_stored_once_with_their_count(backend: Backend, tmp_path: Path) -> None:
    rows: list[Row] = [(1, "a", 1.0), (1, "a", 1.0), (2, "a", None)]
    with closing(opened(backend, tmp_path / "r", COUNTED, rows)) as replica:
        replica.apply(changes_of([((1, "a", 1.0), 1), ((2, "a", None), -1)]), TableVersion(1, "t", "n1"))
        with replica.reading() as now:
            assert now.count_of((1, "a", 1.0)) == 3
            assert len(list(now.range(KeyRange()))) == 3
            assert list(now.range(KeyRange(), limit=2)) == [{"k": 1, "town": "a", "v": 1.0}] * 2
        assert rows_in(replica) == {(1, "a", 1.0): 3}
        assert replica.state.digest == digest_of(Counter({(1, "a", 1.0): 3}))


@pytest.mark.parametrize(
    ("layout", "changes", "error"),
    [
        (KEYED, [((9, "a", 1.0), -1)], NegativeWeight),
        (KEYED, [((1, "a", 1.5), -1)], NegativeWeight),
        (KEYED, [((1, "a", 1.0), -1), ((1, "a", 1.0), -1)], NegativeWeight),
        (KEYED, [((1, "a", 2.0), 1)], DuplicateKey),
        (KEYED, [((1, "a", 1.0), 1)], DuplicateKey),
        (KEYED, [((5, "a", 1.0), 1), ((5, "a", 2.0), 1)], DuplicateKey),
        (COUNTED, [((1, "a", 1.0), -1), ((1, "a", 1.0), -1)], NegativeWeight),
        (COUNTED, [((1, "a", 1.5), -1)], NegativeWeight),
    ],
)
def test_changes_that_do_not_fit_are_refused_and_nothing_is_written(
    layout: Layout, changes: list[tuple[Row, int]], error: type[Exception], tmp_path: Path
) -> None:
    with closing(opened(Backend("lmdb"), tmp_path / "r", layout, [(1, "a", 1.0)])) as replica:
        before = replica.state
        with pytest.raises(error):
            replica.apply(changes_of([((7, "good", 1.0), 1), *changes]), TableVersion(1, "t", "n1"))
        assert replica.state == before
        assert rows_in(replica) == {(1, "a", 1.0): 1}


def test_a_version_that_would_give_another_digest_is_refused(tmp_path: Path) -> None:
    with closing(opened(Backend("memory"), tmp_path, KEYED, [(1, "a", 1.0)])) as replica:
        with pytest.raises(ReplicaDiverged, match="version 1 would give"):
            replica.apply(changes_of([((2, "a", 1.0), 1)]), TableVersion(1, "t", "n1"), Digest(1, 2, 2))
        with replica.reading() as now:
            assert now.version == 0


def test_nothing_is_read_before_it_is_verified(backend: Backend, tmp_path: Path) -> None:
    with closing(Replica("r", backend.open(tmp_path / "r"), KEYED)) as replica:
        rows = table_of([(1, "a", 1.0)]).to_batches()[0]

        def refused() -> None:
            with pytest.raises(ReplicaNotReady), replica.reading():
                pass
            with pytest.raises(ReplicaNotReady):
                replica.get(("a", 1))
            with pytest.raises(ReplicaNotReady):
                replica.multi_get([("a", 1)])
            with pytest.raises(ReplicaNotReady):
                replica.backup(tmp_path / "backup")
            with pytest.raises(ReplicaNotReady):
                replica.apply(changes_of([]), TableVersion(2, "t", "n2"))

        refused()
        replica.begin()
        replica.begin_restore(TableVersion(1, "t", "n1"))
        replica.load(rows, "file")
        refused()
        with pytest.raises(ReplicaDiverged, match="are not those of version 1"):
            replica.verify(digest_of(Counter([(1, "a", 1.5)])))
        refused()
        replica.verify(digest_of(Counter([(1, "a", 1.0)])))
        assert rows_in(replica) == {(1, "a", 1.0): 1}


def test_rows_that_are_stored_in_another_way_are_not_read(lasting: Backend, tmp_path: Path) -> None:
    """Another key or other columns: the replica is REGISTERED, and begins anew."""
    opened(lasting, tmp_path / "r", KEYED, [(1, "a", 1.0)]).close()
    with closing(Replica("r", lasting.open(tmp_path / "r"), KEYED)) as replica:
        assert replica.state.phase is Phase.VERIFIED
    with closing(Replica("r", lasting.open(tmp_path / "r"), COUNTED)) as replica:
        assert replica.state.phase is Phase.REGISTERED
        with pytest.raises(ReplicaNotReady), replica.reading():
            pass


def test_a_backup_is_a_verified_replica(backend: Backend, tmp_path: Path) -> None:
    with closing(opened(backend, tmp_path / "r", KEYED, [(1, "a", 1.0), (2, "b", 2.0)])) as replica:
        replica.backup(tmp_path / "backup")
        replica.apply(changes_of([((1, "a", 1.0), -1)]), TableVersion(1, "t", "n1"))
    store = backend.take_back(tmp_path / "backup", tmp_path / "other")
    with closing(Replica("r", store, KEYED)) as other:
        assert other.state.phase is Phase.VERIFIED
        assert other.state.at == TableVersion(0, "t", "n0")
        assert rows_in(other) == {(1, "a", 1.0): 1, (2, "b", 2.0): 1}
        assert other.digest() == other.state.digest


ROWS = st.tuples(
    st.none() | st.integers(0, 2), st.none() | st.sampled_from(["", "a", "a\0"]), st.sampled_from([0.0, 1.0])
)
HISTORIES = st.lists(st.lists(st.tuples(ROWS, st.sampled_from([1, 1, 1, -1])), max_size=6), max_size=6)


def model_of(layout: Layout, rows: Counter[Row], changes: list[tuple[Row, int]]) -> Counter[Row] | type[Exception]:
    """The rows after the changes; the error if they do not fit."""
    now = Counter(rows)
    for row, weight in changes:
        now[row] += weight
    if any(count < 0 for count in now.values()):
        return NegativeWeight
    now = +now
    keys = Counter((town, k) for (k, town, _), count in now.items() for _ in range(count))
    if layout.unique and any(count > 1 for count in keys.values()):
        return DuplicateKey
    return now


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A new folder for each example."""
    return (tmp_path / str(number) for number in range(10**6))


@pytest.mark.parametrize("layout", [KEYED, COUNTED], ids=["keyed", "counted"])
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture, *SLOWNESS])
@given(history=HISTORIES, bounds=st.tuples(st.none() | ROWS, st.none() | ROWS))
def test_any_history_is_that_of_a_dict(
    backend: Backend, layout: Layout, folders: Iterator[Path], history: list[Any], bounds: tuple[Row | None, Row | None]
) -> None:
    """Versions that do not fit are refused whole; a store that lasts is opened again after each version."""
    path = next(folders)
    replica, rows, version = opened(backend, path, layout), Counter[Row](), 0
    for changes in history:
        expected = model_of(layout, rows, changes)
        at = TableVersion(version + 1, "t", f"n{version + 1}")
        if isinstance(expected, Counter):
            replica.apply(changes_of(changes), at, digest_of(expected))
            rows, version = expected, version + 1
        else:
            with pytest.raises((NegativeWeight, DuplicateKey)):
                replica.apply(changes_of(changes), at)
        if backend.name in ("rocksdb", "lmdb"):
            replica.close()
            replica = Replica("r", backend.open(path), layout)
        assert replica.state.at is not None
        assert replica.state.at.version == version
        assert replica.state.digest == digest_of(rows)
        assert rows_in(replica) == rows
    assert replica.digest() == digest_of(rows)
    with replica.reading() as now:
        low, high = (None if row is None else keyed(layout, row) for row in bounds)
        found = [keyed(layout, tuple(row.values())) for row in now.range(KeyRange(low, high))]
        inside = [keyed(layout, row) for row in rows.elements() if between(low, keyed(layout, row), high)]
        assert found == sorted(inside, key=order)
        for row in rows:
            kept = now.get(keyed(layout, row))
            assert kept is not None
            assert tuple(kept.values()) == row
            assert now.count_of(keyed(layout, row)) == rows[row]
    replica.close()


def keyed(layout: Layout, row: Any) -> tuple[Any, ...]:
    by_name = dict(zip(SCHEMA.names, row, strict=True))
    return tuple(by_name[name] for name in layout.key)


def order(key: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, 0 if value is None else value) for value in key]


def between(low: tuple[Any, ...] | None, key: tuple[Any, ...], high: tuple[Any, ...] | None) -> bool:
    return (low is None or order(low) <= order(key)) and (high is None or order(key) < order(high))
