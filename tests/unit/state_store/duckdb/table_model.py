"""A table of DuckDB beside the dictionary that it must equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import QueryBuilder

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.duckdb.engine import Kept
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.tablespec import EXISTS, FILE, OLD, POSITION, STATE, arrow_schema, schema_json
from tests.support.lakes import delta_rs
from tests.support.table_model import BEGIN, SPEC, Changes, TableModel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import duckdb

    from strandline.state_store.paths import LakePath

SCHEMA = arrow_schema(schema_json(SPEC.stored))


class Model(TableModel):
    """A table of DuckDB."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: LakePath, copies: Path) -> None:
        self.connection = connection
        self.copies = copies
        self.table = DuckDBTable(connection, Kept.nothing(copies), path, SPEC, "t")
        super().__init__(path, self.table.ensure(BEGIN))

    def commit(self, changes: Changes, record: CommitRecord, times: int) -> Head | None:
        before = self.table.read(self.head.version)
        text = " UNION ALL ".join([self.settled(changes, before.text)] * times)
        return self.table.apply(text, before, record)

    def advance(self, record: CommitRecord) -> Head:
        return self.table.advance(record)

    def stored(self) -> Iterable[tuple[Any, ...]]:
        names = ["__state.__k0", "k", "v", "tags", "__state.__n"]
        text = f"SELECT {', '.join(names)} FROM ({self.table.read(self.head.version).text})"
        return self.connection.sql(text).fetchall()

    def newest(self) -> Head:
        return self.table.head()

    def check(self) -> None:
        """As of any table; delta-rs counts the rows as well."""
        super().check()
        by_delta_rs = QueryBuilder().register("t", delta_rs(self.path)).execute("SELECT count(*) AS n FROM t")
        assert by_delta_rs.read_all()["n"][0].as_py() == len(self.rows)
        found = read_snapshot(self.path, self.head.version)
        assert str(found.sums.digest(found.schema_json)) == self.head.record.digest, "what the log says of each file"

    def settled(self, changes: Changes, before: str) -> str:
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
