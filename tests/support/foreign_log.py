"""A foreign Delta table whose log is written action by action: for features that no writer in Python has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from strandline.state_store.delta.deletion_vectors import write_vectors

Action = dict[str, Any]


@dataclass
class ForeignLog:
    """A table at a path, with the next version to be written."""

    path: Path
    next: int = 0
    files: dict[str, Action] = field(default_factory=dict)

    def begin(
        self,
        fields: Sequence[Mapping[str, Any]],
        *,
        features: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        partitions: Sequence[str] = (),
        table: str = "one",
    ) -> None:
        """The first commit: columns as Delta's schema has them."""
        (self.path / "_delta_log").mkdir(parents=True, exist_ok=True)
        self.commit(
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(features)}},
            self.metadata(fields, configuration, partitions, table),
        )

    @staticmethod
    def metadata(
        fields: Sequence[Mapping[str, Any]],
        configuration: Mapping[str, str] | None = None,
        partitions: Sequence[str] = (),
        table: str = "one",
    ) -> Action:
        """The action that says what the columns are."""
        listed = [{"nullable": True, "metadata": {}, **each} for each in fields]
        return {
            "metaData": {
                "id": table,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": listed}),
                "partitionColumns": list(partitions),
                "configuration": dict(configuration or {}),
            }
        }

    def commit(self, *actions: Action, **info: Any) -> int:
        """Write the next version."""
        lines = [{"commitInfo": {"timestamp": 1_000 * (self.next + 1), "operation": "TEST", **info}}, *actions]
        name = f"{self.next:020d}.json"
        (self.path / "_delta_log" / name).write_text("".join(f"{json.dumps(each)}\n" for each in lines))
        self.next += 1
        return self.next - 1

    def add(self, name: str, rows: pa.Table, *, change: bool = True, **more: Any) -> Action:
        """Write a data file; the action that adds it."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, target)
        stats = json.dumps({"numRecords": rows.num_rows})
        body = {
            "path": name,
            "partitionValues": {},
            "size": target.stat().st_size,
            "dataChange": change,
            "stats": stats,
        }
        self.files[name] = {**body, **more}
        return {"add": self.files[name]}

    def remove(self, name: str, *, change: bool = True) -> Action:
        """The action that removes a file, with the deletion vector that it has."""
        return {"remove": {**self.files[name], "dataChange": change, "deletionTimestamp": 1}}

    def without(self, name: str, *positions: int) -> tuple[Action, Action]:
        """The actions that give a file another deletion vector."""
        before = self.remove(name)
        written = write_vectors(self.path, {name: BitMap64(positions)})
        self.files[name] = {**self.files[name], "deletionVector": dict(written.descriptors[name])}
        return before, {"add": self.files[name]}
