"""A Delta table of somebody else with a random history: written by delta-rs, read by a lake while it grows.

Its rows are (id BIGINT, cat VARCHAR, n INT, v DOUBLE, tags ARRAY<VARCHAR>, at TIMESTAMP), later also (note VARCHAR).
With `unique` no two of them have one id.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.transaction import AddAction

_COLUMNS: Final = pa.schema(
    {
        "id": pa.int64(),
        "cat": pa.string(),
        "n": pa.int32(),
        "v": pa.float64(),
        "tags": pa.list_(pa.string()),
        "at": pa.timestamp("us", "UTC"),
    }
)
_TIMES: Final = tuple(datetime(year, 2, 28, 23, 59, 59, 123000, UTC) for year in (1700, 1970, 2200))
_WITH_NOTE: Final = _COLUMNS.append(pa.field("note", pa.string()))


@dataclass
class ForeignHistory:
    """The table and its writer.

    Attributes:
        unique: ids are unique at every version.
        only_adds: no commit takes a row away.
    """

    path: Path
    pick: random.Random
    unique: bool
    only_adds: bool = False
    told: list[str] = field(default_factory=list)
    _next: int = 100
    _noted: bool = False

    def begin(self) -> None:
        """Make the table, with some rows or none."""
        wanted: dict[str, str | None] = {}
        if self.pick.random() < 0.5:
            wanted["delta.enableChangeDataFeed"] = "true"
        partitions = ["cat"] if self.pick.random() < 0.4 else None
        rows = self._rows(self.pick.randrange(6))
        write_deltalake(self.path, rows, partition_by=partitions, configuration=wanted)
        self.told.append(f"begin {rows.num_rows} rows, {wanted}, by {partitions}")

    def step(self) -> None:
        """One random commit, or none."""
        ways: list[Callable[[], str]] = [self._append, self._append_old, self._optimize, self._checkpoint, self._widen]
        if not self.only_adds:
            ways += [self._delete, self._update, self._merge, self._overwrite, self._replace, self._restore]
        self.told.append(self.pick.choice(ways)())

    def vacuum(self) -> None:
        """Take away every file that the newest version does not need: all versions were read."""
        taken = self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self.told.append(f"vacuum {len(taken)}")

    @property
    def table(self) -> DeltaTable:
        """The newest version."""
        return DeltaTable(self.path)

    def rows(self, names: Sequence[str], version: int | None = None) -> pa.Table:
        """The rows of a version as delta-rs reads them; a column that it did not have is NULL."""
        found = DeltaTable(self.path, version=version).to_pyarrow_table()
        for name in set(names) - set(found.column_names):
            found = found.append_column(name, pa.nulls(found.num_rows, pa.string()))
        return found.select(list(names))

    def _rows(self, count: int) -> pa.Table:
        pick = self.pick
        ids = [self._fresh() for _ in range(count)] if self.unique else [pick.randrange(12) for _ in range(count)]
        values: dict[str, list[Any]] = {
            "id": ids,
            "cat": [pick.choice(["a", "b", None]) for _ in ids],
            "n": [pick.choice([None, 0, 1, 2]) for _ in ids],
            "v": [pick.choice([None, 0.5, -1.0, 2.0]) for _ in ids],
            "tags": [pick.choice([None, [], ["x"], ["x", None]]) for _ in ids],
            "at": [pick.choice([None, *_TIMES]) for _ in ids],
            "note": [pick.choice([None, "y"]) for _ in ids],
        }
        schema = _WITH_NOTE if self._noted else _COLUMNS
        return pa.table({name: values[name] for name in schema.names}, schema=schema)

    def _fresh(self) -> int:
        self._next += 1
        return self._next

    def _append(self) -> str:
        rows = self._rows(self.pick.randrange(1, 7))
        write_deltalake(self.path, rows, mode="append")
        return f"append {rows.num_rows}"

    def _append_old(self) -> str:
        """As an older Spark does: a file whose times have twelve bytes (INT96)."""
        rows, table = self._rows(self.pick.randrange(1, 7)), self.table
        partitions = table.metadata().partition_columns
        if partitions:
            rows = rows.set_column(1, "cat", pa.array(["a"] * rows.num_rows))
        name = f"old-{table.version()}.parquet"
        pq.write_table(rows.drop_columns(partitions), self.path / name, use_deprecated_int96_timestamps=True)
        size, values = (self.path / name).stat().st_size, dict.fromkeys(partitions, "a")
        added = AddAction(name, size, values, 0, True, json.dumps({"numRecords": rows.num_rows}))
        table.create_write_transaction([added], "append", table.schema(), partitions)
        return f"append {rows.num_rows} of twelve bytes"

    def _widen(self) -> str:
        if self._noted or self.pick.random() < 0.5:
            return "nothing"
        self._noted = True
        write_deltalake(self.path, self._rows(2), mode="append", schema_mode="merge")
        return "a further column"

    def _condition(self) -> str:
        return self.pick.choice(["n = 1", "v IS NULL", "cat = 'a'", f"id % 3 = {self.pick.randrange(3)}", "id > 5"])

    def _delete(self) -> str:
        if self.pick.random() < 0.1:
            self.table.delete()
            return "delete all"
        condition = self._condition()
        self.table.delete(condition)
        return f"delete {condition}"

    def _update(self) -> str:
        condition = self._condition()
        self.table.update(updates={"v": "coalesce(v, 0.0) + 1.0"}, predicate=condition)
        return f"update {condition}"

    def _merge(self) -> str:
        known = self.table.to_pyarrow_table()["id"].to_pylist()
        source = self._rows(4)
        ids = dict.fromkeys([*self.pick.sample(known, min(2, len(known))), *(self._fresh() for _ in range(2))])
        source = source.slice(0, len(ids)).set_column(0, "id", pa.array(ids, pa.int64()))
        made = self.table.merge(source, "s.id = t.id", source_alias="s", target_alias="t")
        made = made.when_matched_delete("s.n = 0").when_matched_update({"v": "s.v", "n": "s.n"})
        made.when_not_matched_insert_all().execute()
        return f"merge {list(ids)}"

    def _overwrite(self) -> str:
        rows = self._rows(3)
        if self.pick.random() < 0.5:
            write_deltalake(self.path, rows, mode="overwrite")
            return "overwrite"
        kept = rows.set_column(1, "cat", pa.array(["a"] * rows.num_rows))
        write_deltalake(self.path, kept, mode="overwrite", predicate="cat = 'a'")
        return "overwrite cat = 'a'"

    def _replace(self) -> str:
        """CREATE OR REPLACE: another id, perhaps other partitions, and no row of before."""
        schema = Schema.from_arrow(_WITH_NOTE if self._noted else _COLUMNS)
        partitions = self.pick.choice([None, ["cat"]])
        DeltaTable.create(self.path, schema, mode="overwrite", partition_by=partitions)
        return f"replace, by {partitions}"

    def _restore(self) -> str:
        newest = self.table.version()
        if newest == 0 or self._noted or self.unique:
            return "nothing"
        version = self.pick.randrange(max(0, newest - 2), newest)
        try:
            self.table.restore(version)
        except Exception as error:
            return f"not restored: {type(error).__name__}"
        return f"restore {version}"

    def _optimize(self) -> str:
        if self.pick.random() < 0.5:
            self.table.optimize.compact()
            return "optimize"
        self.table.optimize.z_order(["id"])
        return "z-order"

    def _checkpoint(self) -> str:
        self.table.create_checkpoint()
        return "checkpoint"
