"""Tables of a lake as a pipeline would leave them, written without a JVM."""

from __future__ import annotations

import datetime as dt
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log, relation
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.tables import Relation
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import entry
from strandline.state_store.delta.reader import digest_of_rows
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest
from strandline.state_store.stored_state import sealed
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

UNKNOWN = f"{'f' * 32}:0"
"""The digest of a commit until `seal` computes it."""
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def append(
    lake: LakeLayout,
    name: str,
    rows: Sequence[Mapping[str, object]],
    epoch: int = 0,
    offsets: Mapping[str, Mapping[str, int]] | None = None,
) -> None:
    """One more commit of the table `name`, which adds `rows`. Columns left out are NULL."""
    found = _relation(name, Catalog(lake))
    table = pa.Table.from_pylist([dict(row) for row in rows], _schema(found))
    with _committed_at_once(lake.table(name)) as path:
        write_deltalake(
            str(path),
            table,
            mode="append",
            commit_properties=_properties(epoch, offsets),
            configuration=None if path.exists() else {"delta.enableChangeDataFeed": "true"},
        )


def events(lake: LakeLayout, name: str, rows: Sequence[Mapping[str, object]], first: int = 0, epoch: int = 0) -> None:
    """One more commit of an event log: an event per second, in one partition, from offset `first`."""
    meta = [
        {"_partition": 0, "_offset": at, "_timestamp": NOON + dt.timedelta(seconds=at)}
        for at in range(first, first + len(rows))
    ]
    append(
        lake, name, [{**row, **m, "_stream_time": m["_timestamp"]} for row, m in zip(rows, meta, strict=True)], epoch
    )


def update(lake: LakeLayout, name: str, epoch: int, where: str, **values: str) -> None:
    """One more commit that changes rows; `values` are SQL expressions."""
    with _committed_at_once(lake.table(name)) as path:
        DeltaTable(str(path)).update(values, predicate=where, commit_properties=_properties(epoch))


def delete(lake: LakeLayout, name: str, epoch: int, where: str) -> None:
    """One more commit that takes rows away."""
    with _committed_at_once(lake.table(name)) as path:
        DeltaTable(str(path)).delete(where, commit_properties=_properties(epoch))


def _relation(name: str, catalog: Catalog) -> Relation:
    source = catalog.find(name.removesuffix("__log"))
    return event_log(source) if name.endswith("__log") and isinstance(source, Source) else relation(name, catalog)


def _schema(of: Relation) -> pa.Schema:
    return pa.schema([(name, kind.arrow()) for name, kind in of.columns])


def _properties(epoch: int, offsets: Mapping[str, Mapping[str, int]] | None = None) -> CommitProperties:
    record = CommitRecord(
        epoch=epoch, offsets={topic: dict(each) for topic, each in (offsets or {}).items()}, digest=UNKNOWN
    )
    return CommitProperties(custom_metadata={"userMetadata": record.to_json()})


@contextmanager
def _committed_at_once(table: LakePath) -> Iterator[Path]:
    """A copy of the table to commit to; the commit is sealed there, and in the table once it is whole.

    Whoever follows the table would else read the commit before it has its checksum.
    """
    home = on_disk(table)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / home.name
        if home.exists():
            shutil.copytree(home, copy)
        yield copy
        seal(copy)
        made = [
            file for file in sorted(copy.rglob("*")) if file.is_file() and not (home / file.relative_to(copy)).exists()
        ]
        for file in sorted(made, key=lambda each: each.suffix == ".json"):
            target = home / file.relative_to(copy)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target.with_name(f"{target.name}.tmp"))
            target.with_name(f"{target.name}.tmp").rename(target)


def seal(path: LakePath) -> None:
    """Fill in the digest and the checksum of the newest commit, which the library that wrote it does not know."""
    newest = max(Path(str(path / "_delta_log")).glob("*.json"))
    data = newest.read_bytes()

    def write(digest: str) -> None:
        newest.write_bytes(sealed(data.replace(UNKNOWN.encode(), digest.encode()), entry.CHECKSUM))

    count = DeltaTable(str(path)).count()
    # What the log says of no rows at all is compared at once.
    write(UNKNOWN.replace(":0", f":{count}") if count else str(Digest()))
    write(str(digest_of_rows(path, read_snapshot(path, int(newest.stem)))))
