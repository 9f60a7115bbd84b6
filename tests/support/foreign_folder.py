"""A lake, and a folder of Parquet files of others beside it: what its tests put there and ask."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout


def ids(*values: int) -> pa.Table:
    """Rows with an id and a remainder."""
    return pa.table({"Id": pa.array(values, pa.int64()), "n": pa.array([each % 10 for each in values], pa.int32())})


class FolderWorld:
    """A lake, and a folder beside it. In statements `@` is the folder."""

    def __init__(self, folder: Path) -> None:
        self.theirs = folder / "theirs"
        self.theirs.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(lake=folder / "lake")
        self._clock = 1_700_000_000

    def put(self, name: str, rows: pa.Table, **how: Any) -> Path:
        """A whole file, a second younger than the one before it. Args: `how`: as of `pyarrow.parquet.write_table`."""
        target = self.theirs / name
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}")
        pq.write_table(rows, hidden, **how)
        self._clock += 1
        os.utime(hidden, (self._clock, self._clock))
        hidden.replace(target)
        return target

    def run(self, text: str) -> list[Any]:
        return list(Interpreter(self.settings, "p").run(text.replace("@", str(self.theirs))))

    def drain(self) -> None:
        drain(self.settings, "p", in_driver=True)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        (found,) = self.run(query)
        assert isinstance(found, Rows)
        return sorted((tuple(row) for row in found.rows if isinstance(row, tuple | list)), key=repr)

    def ids(self, name: str = "s") -> list[int]:
        return sorted(row[0] for row in self.rows(f"SELECT id FROM {name}"))

    @property
    def root(self) -> Path:
        """The lake's folder."""
        assert isinstance(self.settings.lake, Path)
        return self.settings.lake

    @property
    def lake(self) -> LakeLayout:
        return LakeLayout(self.settings.lake)

    def source(self, name: str = "s") -> Source:
        found = Catalog(self.lake).get(name)
        assert isinstance(found, Source)
        return found
