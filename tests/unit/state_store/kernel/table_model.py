"""A table of the kernel beside the dictionary that it must equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import QueryBuilder

from state_store import changelog
from state_store.columns import EXISTS, FILE, OLD, POSITION, STATE
from state_store.commits import CommitRecord, Head, TableVersion
from state_store.ddl import schema_json
from state_store.delta import reader
from state_store.delta.schema import arrow_schema
from state_store.hashing.digest import digest_of_table
from state_store.kernel.kept import Kept
from state_store.kernel.table import KernelTable
from state_store.tablespec import TableSpec
from tests.support.lakes import delta_rs

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from state_store.paths import LakePath

SPEC = TableSpec(
    "t",
    (("k", "STRING"), ("v", "BIGINT"), ("tags", "MAP<STRING, BIGINT>")),
    "keyed",
    ("__state.__k0", "k"),
    "STRUCT<__k0: INT, __n: BIGINT>",
)
SCHEMA = arrow_schema(schema_json(SPEC.stored))
# (hidden key, key) -> (value, tags, state)
Key = tuple[int | None, str | None]
Row = tuple[int | None, dict[str, int] | None, int]


class Model:
    """A table beside the dictionary that it must equal."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: LakePath, copies: Path) -> None:
        self.connection = connection
        self.copies = copies
        self.table = KernelTable(connection, Kept.nothing(copies), path, SPEC, "t")
        self.head = self.table.ensure(CommitRecord(epoch=0, vector={"log": TableVersion(0)}, writer="test"))
        self.rows: dict[Key, Row] = {}

    def apply(self, changes: dict[Key, Row | None], times: int = 1) -> Head | None:
        """An epoch that brings these keys to these rows; with `times` 2 each is settled twice."""
        before = self.table.read(self.head.version)
        text = " UNION ALL ".join([self.settled(changes, before.text)] * times)
        head = self.table.apply(text, before, CommitRecord(epoch=self.head.record.epoch + 1, mode="delta"))
        self.rows |= {key: row for key, row in changes.items() if row}
        for key in [key for key, row in changes.items() if not row]:
            self.rows.pop(key, None)
        self.head = head or self.head
        return head

    def check(self) -> None:
        """The kernel, our reader, delta-rs, the digest and the change feed agree with the dictionary."""
        path = self.table.path
        names = ["__state.__k0", "k", "v", "tags", "__state.__n"]
        found = self.connection.sql(f"SELECT {', '.join(names)} FROM ({self.table.read(self.head.version).text})")
        assert sorted(map(_plain, found.fetchall()), key=repr) == self._expected()
        assert self.table.head() == self.head == reader.head(path)
        rows = reader.read_rows(path)
        assert str(digest_of_table(rows.to_batches())) == self.head.record.digest
        folded = changelog.fold(reader.read_changes(path))
        assert digest_of_table(folded.to_batches()) == digest_of_table(rows.to_batches())
        by_delta_rs = QueryBuilder().register("t", delta_rs(path)).execute("SELECT count(*) AS n FROM t").read_all()
        assert by_delta_rs["n"][0].as_py() == len(self.rows)

    def _expected(self) -> list[tuple[object, ...]]:
        return sorted((_plain((h, k, *row[:2], row[2])) for (h, k), row in self.rows.items()), key=repr)

    def settled(self, changes: dict[Key, Row | None], before: str) -> str:
        """A settled relation; the stored rows are found by their keys."""
        listed = []
        for (hidden, key), row in changes.items():
            value, tags, n = row or (None, None, None)
            state = {"__k0": hidden, "__n": n}
            listed.append({"k": key, "v": value, "tags": _items(tags), STATE: state, EXISTS: row is not None})
        self.connection.register("given", pa.Table.from_pylist(listed, SCHEMA.append(pa.field(EXISTS, pa.bool_()))))
        old = ", ".join(f"{name} := s.{name}" for name in [*SCHEMA.names, FILE, POSITION])
        return (
            f"SELECT g.*, CASE WHEN s.{FILE} IS NOT NULL THEN struct_pack({old}) END AS {OLD} FROM given g"
            f" LEFT JOIN ({before}) s ON g.k IS NOT DISTINCT FROM s.k AND g.{STATE}.__k0 IS NOT DISTINCT FROM"
            f" s.{STATE}.__k0"
        )


def _items(tags: dict[str, int] | None) -> list[tuple[str, int]] | None:
    return None if tags is None else list(tags.items())


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(sorted(value.items()) if isinstance(value, dict) else value for value in row)
