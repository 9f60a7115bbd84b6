"""Tables of a lake as a pipeline would leave them, written without a JVM."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log, relation
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.relation import Relation
from strandline.state_store.commits import CommitRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.state_store.layout import Lake

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def append(lake: Lake, name: str, rows: Sequence[Mapping[str, object]], epoch: int = 0) -> None:
    """One more commit of the table `name`, which adds `rows`. Columns left out are NULL."""
    found = _relation(name, Catalog(lake))
    table = pa.Table.from_pylist([dict(row) for row in rows], _schema(found))
    path = lake.table(name)
    there = DeltaTable(str(path)).count() if path.exists() else 0
    write_deltalake(
        str(path),
        table,
        mode="append",
        commit_properties=_properties(epoch, there + table.num_rows),
        configuration=None if path.exists() else {"delta.enableChangeDataFeed": "true"},
    )


def events(lake: Lake, name: str, rows: Sequence[Mapping[str, object]], first: int = 0, epoch: int = 0) -> None:
    """One more commit of an event log: an event per second, in one partition, from offset `first`."""
    meta = [
        {"_partition": 0, "_offset": at, "_timestamp": NOON + dt.timedelta(seconds=at)}
        for at in range(first, first + len(rows))
    ]
    append(
        lake, name, [{**row, **m, "_stream_time": m["_timestamp"]} for row, m in zip(rows, meta, strict=True)], epoch
    )


def update(lake: Lake, name: str, epoch: int, where: str, **values: str) -> None:
    """One more commit that changes rows; `values` are SQL expressions."""
    DeltaTable(str(lake.table(name))).update(values, predicate=where, commit_properties=_properties(epoch, 0))


def delete(lake: Lake, name: str, epoch: int, where: str) -> None:
    """One more commit that takes rows away."""
    DeltaTable(str(lake.table(name))).delete(where, commit_properties=_properties(epoch, 0))


def _relation(name: str, catalog: Catalog) -> Relation:
    source = catalog.find(name.removesuffix("__log"))
    return event_log(source) if name.endswith("__log") and isinstance(source, Source) else relation(name, catalog)


def _schema(of: Relation) -> pa.Schema:
    return pa.schema([(name, kind.arrow()) for name, kind in of.columns])


def _properties(epoch: int, rows: int) -> CommitProperties:
    record = CommitRecord(epoch=epoch, digest=f"{epoch:032x}:{rows}")
    return CommitProperties(custom_metadata={"userMetadata": record.to_json()})
