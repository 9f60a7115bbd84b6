"""A keyed table beside the dictionary that it must equal, and what holds of it whoever settles its rows.

A room of tests says how its engine commits an epoch and reads the rows back, and collects `TableContract` by a class of
its own beside a fixture `model` that holds `FOUR_ROWS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from strandline.state_store import changelog
from strandline.state_store.commits import CommitRecord, Head, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import CorruptState
from strandline.state_store.tablespec import TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.state_store.paths import LakePath

SPEC = TableSpec(
    "t",
    (("k", "STRING"), ("v", "BIGINT"), ("tags", "MAP<STRING, BIGINT>")),
    "keyed",
    ("__state.__k0", "k"),
    "STRUCT<__k0: INT, __n: BIGINT>",
)
LOG = TableSpec("log", (("id", "BIGINT"), ("note", "STRING"), ("at", "TIMESTAMP")), "append")
BEGIN = CommitRecord(epoch=0, vector={"log": TableVersion(0)}, writer="test")

Key = tuple[int | None, str | None]
"""(hidden key, key)"""
Row = tuple[int | None, dict[str, int] | None, int]
"""(value, tags, state)"""
Changes = dict[Key, Row | None]

FOUR_ROWS: Changes = {
    (1, "a"): (1, {"x": 1}, 1),
    (1, "b"): (2, None, 1),
    (None, "a"): (3, {}, 1),
    (2, None): (4, None, 1),
}


class TableModel(ABC):
    """A table at its head beside its rows as a dictionary.

    Args:
        path: of the table, which is made and empty.
    """

    def __init__(self, path: LakePath, head: Head) -> None:
        self.path = path
        self.head = head
        self.rows: dict[Key, Row] = {}

    @abstractmethod
    def commit(self, changes: Changes, record: CommitRecord, times: int) -> Head | None:
        """Commit an epoch that brings these keys to these rows, each settled so many times."""

    @abstractmethod
    def advance(self, record: CommitRecord) -> Head:
        """Commit a record that moves the vector alone."""

    @abstractmethod
    def stored(self) -> Iterable[tuple[Any, ...]]:
        """The rows at `head`, as the engine reads them: hidden key, key, value, tags, state."""

    @abstractmethod
    def newest(self) -> Head:
        """The head as the engine finds it."""

    def apply(self, changes: Changes, times: int = 1) -> Head | None:
        """An epoch that brings these keys to these rows."""
        head = self.commit(changes, CommitRecord(epoch=self.head.record.epoch + 1, mode="delta"), times)
        self.rows |= {key: row for key, row in changes.items() if row}
        for key in [key for key, row in changes.items() if not row]:
            self.rows.pop(key, None)
        self.head = head or self.head
        return head

    def check(self) -> None:
        """The engine, our reader, the digest and the change feed agree with the dictionary."""
        expected = sorted((_plain((h, k, *row)) for (h, k), row in self.rows.items()), key=repr)
        assert sorted(map(_plain, self.stored()), key=repr) == expected
        assert self.newest() == self.head == reader.head(self.path)
        rows = reader.read_rows(self.path)
        assert str(digest_of_table(rows.to_batches())) == self.head.record.digest
        folded = changelog.fold(reader.read_changes(self.path))
        assert digest_of_table(folded.to_batches()) == digest_of_table(rows.to_batches())


class TableContract:
    """What holds of a keyed table: one commit per epoch, with the rows, the digest and the record of it."""

    def test_new_keys_are_added_and_the_record_says_so(self, model: TableModel) -> None:
        model.check()
        record = model.head.record
        assert (record.epoch, record.inserted, record.deleted, record.mode) == (1, 4, 0, "delta")
        assert record.digest.endswith(":4")

    def test_keys_go_away_in_the_same_commit_as_others_change(self, model: TableModel) -> None:
        before = model.head.version
        model.apply({(None, "a"): None, (2, None): None, (1, "a"): (7, None, 1), (5, "new"): (5, None, 1)})
        assert model.head.version == before + 1
        assert (model.head.record.inserted, model.head.record.deleted) == (2, 3)
        model.check()

    def test_only_deletes_can_empty_the_table_and_it_can_be_filled_again(self, model: TableModel) -> None:
        model.apply(dict.fromkeys(model.rows))
        assert model.head.record.digest == "0" * 32 + ":0"
        model.check()
        model.apply({(1, "a"): (1, None, 1)})
        model.check()

    def test_equal_rows_are_no_commit_and_absent_keys_stay_absent(self, model: TableModel) -> None:
        before = model.head
        assert model.apply({**model.rows, (8, "never"): None}) is None
        assert model.newest() == before

    def test_maps_with_the_same_entries_in_another_order_are_equal(self, model: TableModel) -> None:
        model.apply({(1, "a"): (1, {"x": 1, "y": 2}, 1)})
        assert model.apply({(1, "a"): (1, {"y": 2, "x": 1}, 1)}) is None
        assert model.apply({(1, "a"): (1, {"y": 2, "x": 3}, 1)}) is not None

    def test_a_change_of_state_alone_is_stored_and_not_seen(self, model: TableModel) -> None:
        digest = model.head.record.digest
        model.apply({(1, "a"): (1, {"x": 1}, 99)})
        assert (model.head.record.inserted, model.head.record.deleted, model.head.record.digest) == (0, 0, digest)
        assert reader.read_changes(model.path, model.head.version - 1).num_rows == 0
        model.check()

    def test_a_row_cannot_be_replaced_twice(self, model: TableModel) -> None:
        before = model.head
        with pytest.raises(CorruptState, match="a key has two upserts"):
            model.apply({(1, "a"): (7, None, 1)}, times=2)
        assert model.newest() == before

    def test_an_advance_moves_the_vector_and_nothing_else(self, model: TableModel) -> None:
        before, moved = model.head, {"log": TableVersion(42, "t", "n")}
        model.head = model.advance(replace(before.record, epoch=2, vector=moved, mode="advance"))
        made = replace(model.head.record, nonce=before.record.nonce)
        assert made == replace(before.record, epoch=2, vector=moved, mode="advance", inserted=0, deleted=0)
        assert (model.head.version, model.head.record.nonce != before.record.nonce) == (before.version + 1, True)
        assert reader.read_changes(model.path, before.version).num_rows == 0
        model.check()


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(sorted(value.items()) if isinstance(value, dict) else value for value in row)
