"""A keyed table of the store written without Spark: rows in Arrow form, those that go found by reading the files."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from pyroaring import BitMap64

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import RowChanges, commit, create_table, new_table_id
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.deletion_vectors import deleted_rows
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.errors import VectorMismatch
from strandline.state_store.paths import LakePath
from strandline.state_store.tablespec import STATE, TableSpec

Row = dict[str, Any]


class ArrowTable:
    """One table.

    Args:
        schema: of the stored columns, in the order of `spec`.
    """

    def __init__(self, path: LakePath, schema: pa.Schema, spec: TableSpec) -> None:
        self.path, self.schema, self.spec = path, schema, spec

    def create(self, record: CommitRecord) -> Head:
        """Version 0."""
        made = replace(record, digest=str(Digest())).identified(new_table_id())
        assert create_table(self.path, Schema.from_arrow(self.schema).to_json(), self.spec.properties, made)
        return Head(0, made)

    def apply(
        self, rows: Sequence[Row] = (), gone: Callable[[Row], bool] | None = None, record: CommitRecord | None = None
    ) -> Head:
        """One commit: these rows come, and those of which `gone` is true go."""
        head = reader.head(self.path)
        assert head is not None
        record = record or replace(head.record, epoch=head.record.epoch + 1)
        if record.epoch != head.record.epoch + 1:
            raise VectorMismatch(f"'{self.spec.name}' is at epoch {head.record.epoch}: another writer was faster")
        new = pa.Table.from_pylist(list(rows), self.schema)
        places, old = self._found(head, gone) if gone else ({}, new.slice(0, 0))
        minus = self._digest(old)
        digest = Digest.parse(head.record.digest) + self._digest(new)
        digest -= minus
        staged = stage_rows(new, self.path, record.epoch, self.spec.indexed) if new.num_rows else None
        record = replace(record, inserted=new.num_rows, deleted=old.num_rows, digest=str(digest))
        return commit(self.path, head, record, RowChanges(staged, places))

    def stored(self, version: int) -> list[Row]:
        """All rows of a version with their state, file by file."""
        found = read_snapshot(self.path, version)
        return [row for name, body in found.files.items() for _, row in self._live(name, body)]

    def _found(self, head: Head, gone: Callable[[Row], bool]) -> tuple[dict[str, BitMap64], pa.Table]:
        places: dict[str, BitMap64] = {}
        old: list[Row] = []
        for name, body in read_snapshot(self.path, head.version).files.items():
            for position, row in self._live(name, body):
                if gone(row):
                    places.setdefault(unquote(name), BitMap64()).add(position)
                    old.append(row)
        return places, pa.Table.from_pylist(old, self.schema)

    def _live(self, name: str, body: Any) -> list[tuple[int, Row]]:
        vector = body.get("deletionVector")
        dead = deleted_rows(self.path, vector) if vector else BitMap64()
        rows = pq.read_table(io.BytesIO(log.inside(self.path, name).read_bytes())).to_pylist()
        return [(position, row) for position, row in enumerate(rows) if position not in dead]

    def _digest(self, rows: pa.Table) -> Digest:
        visible = rows.select([name for name in self.schema.names if name != STATE])
        return digest_of_table(visible.to_batches())
