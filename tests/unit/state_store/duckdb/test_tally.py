"""What is counted while rows pass by: the digest is that of the rows, whoever hashed them."""

from __future__ import annotations

from collections import Counter
from threading import Lock

import pyarrow as pa
import pytest

from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.duckdb import table as tally_module
from strandline.state_store.duckdb.table import Tally
from strandline.state_store.errors import CorruptState

MANY = pa.table({"k": pa.array(range(20_000)), "v": pa.array(range(20_000, 40_000))})
FEW = pa.table({"k": [1, 2], "v": [3, 4]})


def test_many_rows_hashed_beside_and_few_hashed_at_once_have_one_digest() -> None:
    tally = Tally()
    for rows in (MANY, FEW, MANY):
        tally.insert(rows, ["k", "v"])
    tally.retract(MANY.to_batches()[0], ["k", "v"], ["a", "b"], pa.array([0, 1] * 10_000))
    expected = digest_of_table(MANY.to_batches()) + digest_of_table(FEW.to_batches())
    assert tally.digest == expected
    assert tally.digest == expected, "to be asked for again"
    assert tally.by_file(2) == [expected, digest_of_table(MANY.to_batches())], "a file of two batches, and one of one"
    assert tally.taken["a"] == digest_of_table(MANY.take(list(range(0, 20_000, 2))).to_batches())
    assert tally.taken["a"] + tally.taken["b"] == digest_of_table(MANY.to_batches())
    assert (tally.inserted, tally.deleted) == (40_002, 20_000)


def test_few_batches_wait_for_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow it is, and however many come."""
    waiting: list[int] = []
    made, lock = Counter[str](), Lock()

    def hashed(batches: list[pa.RecordBatch]) -> Digest:
        digest = digest_of_table(batches)
        with lock:
            made["hashed"] += 1
        return digest

    monkeypatch.setattr(tally_module, "digest_of_table", hashed)
    tally = Tally()
    for number in range(1, 31):
        tally.insert(MANY, ["k", "v"])
        with lock:
            waiting.append(number - made["hashed"])
    assert max(waiting) <= tally_module._AHEAD
    assert tally.digest == sum([digest_of_table(MANY.to_batches())] * 30, Digest())


def test_rows_after_the_digest_was_asked_for_are_counted_too() -> None:
    tally = Tally()
    tally.insert(MANY, ["k"])
    before = tally.digest
    tally.insert(MANY, ["k"])
    assert tally.digest == before + before


def test_a_column_without_a_digest_is_an_error_of_the_digest() -> None:
    tally = Tally()
    tally.insert(pa.table({"k": pa.nulls(20_000, pa.uint8()).fill_null(1)}), ["k"])
    for _ in range(2):
        with pytest.raises(CorruptState, match="has no digest"):
            _ = tally.digest


def test_changes_are_kept_with_their_weights_until_they_are_many() -> None:
    tally = Tally()
    tally.retract(FEW.to_batches()[0], ["k"], ["a"], pa.array([0, 0]))
    tally.insert(FEW, ["k"])
    kept = tally.changes()
    assert kept is not None
    assert kept["__weight"].to_pylist() == [-1, -1, 1, 1]
    for _ in range(11):
        tally.insert(MANY, ["k"])
    assert tally.changes() is None
