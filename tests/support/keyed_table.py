"""The keyed table that most tests of the store write: integers as keys, a text, a state that is not shown."""

from __future__ import annotations

from collections.abc import Callable, Container

import pyarrow as pa

from strandline.state_store.commits import CommitRecord, Head, TableVersion
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.merging import EVERY
from strandline.state_store.paths import LakePath
from strandline.state_store.tablespec import TableSpec
from tests.support.arrow_table import ArrowTable, Row

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("__state", pa.struct([("__n", pa.int64())]))])
SPEC = TableSpec("t", (("k", "BIGINT"), ("v", "STRING")), "keyed", ("k",), "STRUCT<__n: BIGINT>")


def made(folder: LakePath, schema: pa.Schema = SCHEMA, spec: TableSpec = SPEC) -> ArrowTable:
    """A new table below `folder`, at version 0."""
    table = ArrowTable(folder / spec.name, schema, spec)
    table.create(CommitRecord(epoch=0, vector={"log": TableVersion(3, "a table", "a commit")}))
    return table


def rows(keys: range, v: str = "x") -> list[Row]:
    """A row for each key."""
    return [{"k": k, "v": v, "__state": {"__n": k}} for k in keys]


def having(keys: Container[int]) -> Callable[[Row], bool]:
    """True of a row with one of these keys: what goes, for `ArrowTable.apply`."""
    return lambda row: row["k"] in keys


def head_of(table: ArrowTable) -> Head:
    """The head of a table that is there."""
    head = reader.head(table.path)
    assert head is not None
    return head


def turns(path: LakePath, first: int) -> int:
    """The first version from that one on at which the writer looks."""
    return next(version for version in range(first, first + EVERY) if log.has_turn(path, version, EVERY))
