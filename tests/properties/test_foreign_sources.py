"""Views over folders of Parquet files and over Iceberg tables that others write: read while these grow, cut and broken
off at random, they are their own SELECTs over what is there, every row once. What rewrites or removes is refused where
it is not taken in.

`STRANDLINE_FOREIGN_EXAMPLES` says how many histories are run, as for Delta tables (`test_delta_sources`); here a third.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.jobs.ingest.foreign import parquet_folder
from strandline.jobs.model.settings import IngestSettings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from tests.properties.test_delta_sources import _seed
from tests.support.broken_drains import broken_drain
from tests.support.foreign_folder import FolderWorld
from tests.support.foreign_iceberg import IcebergWorld, end_threads

EXAMPLES: Final = -(-int(os.environ.get("STRANDLINE_FOREIGN_EXAMPLES", "60")) // 3)
_EACH: Final = 5
_COLUMNS: Final = pa.schema(
    {"id": pa.int64(), "cat": pa.string(), "n": pa.int32(), "v": pa.float64(), "at": pa.timestamp("us", "UTC")}
)
_TIMES: Final = tuple(datetime(year, 2, 28, 23, 59, 59, 123000, UTC) for year in (1700, 1970, 2200))
_VIEWS: Final = {
    "sums": "SELECT cat, COUNT(*) AS rows, CAST(SUM(n) AS BIGINT) AS total, MAX(v) AS most FROM orders GROUP BY cat",
    "kinds": "SELECT DISTINCT n, v FROM orders",
    "chosen": "SELECT id, v FROM orders WHERE n > 0",
    "pairs": "SELECT a.id, b.cat FROM orders a JOIN orders b ON a.n = b.n WHERE a.v > 0",
}


@pytest.fixture(autouse=True, scope="module")
def _without_threads() -> Iterator[None]:
    yield
    end_threads()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", ["folder", "iceberg"])
@pytest.mark.parametrize("part", range(-(-EXAMPLES // (2 * _EACH))))
def test_views_over_what_others_write_are_their_selects_over_it(
    part: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_folder, "_TOGETHER", 3)
    first = _seed() * 1_000_003 + part * _EACH
    for seed in range(first, first + _EACH):
        folder = tmp_path / str(seed)
        pick = random.Random(seed)
        world: _Folder | _Iceberg = _Folder(folder, pick) if kind == "folder" else _Iceberg(folder, pick, monkeypatch)
        _run(world, pick, f"seed {seed}, {kind}", monkeypatch)


class _Folder(FolderWorld):
    """A folder into which whole files are put, some under names of folders, between others that are none of them."""

    form = "PARQUET"

    def __init__(self, folder: Path, pick: random.Random) -> None:
        super().__init__(folder)
        self._pick = pick
        self._number = 0
        self.told: list[str] = []
        self.kind = pick.choice(["STREAM", "TABLE"])
        self.step()

    def step(self) -> None:
        for _ in range(self._pick.randrange(1, 4)):
            self._number += 1
            name = f"{self._pick.choice(['', '', 'a/', 'b/c/'])}{self._pick.randrange(1000)}-{self._number}.parquet"
            if self._number > 1 and self._pick.random() < 0.2:
                name = self._pick.choice([f"_{name.replace('/', '-')}", f"{name}.tmp", f".{name.replace('/', '-')}"])
            rows = _rows(self._pick, self._pick.randrange(5))
            if self._number > 1 and self._pick.random() < 0.2:
                rows = rows.drop_columns(["v"])  # from before the column came
            self.put(name, rows, use_deprecated_int96_timestamps=self._pick.random() < 0.3)
            self.told.append(f"put {name}: {rows.num_rows}")

    def theirs_now(self) -> pa.Table:
        found = [file for file in self.theirs.rglob("*.parquet") if not file.name.startswith(("_", "."))]
        read = (pq.read_table(file, coerce_int96_timestamp_unit="us") for file in found)
        tables = (each.cast(pa.schema([_COLUMNS.field(name) for name in each.column_names])) for each in read)
        return pa.concat_tables([_COLUMNS.empty_table(), *tables], promote_options="default").select(_COLUMNS.names)


class _Iceberg(IcebergWorld):
    """A table that is appended to and, unless a stream reads it, deleted from and overwritten."""

    form = "ICEBERG"

    def __init__(self, folder: Path, pick: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self._pick = pick
        self.told: list[str] = []
        self.kind = pick.choice(["STREAM", "TABLE", "TABLE"])
        self.begin(_COLUMNS.empty_table())
        if pick.random() < 0.3:
            with self.table.update_spec() as spec:
                spec.add_identity("cat")
        if pick.random() < 0.8:
            self.step()

    def step(self) -> None:
        way = self._pick.choice(["append", "append", "delete", "overwrite"]) if self.kind == "TABLE" else "append"
        if way == "delete":
            condition = self._pick.choice(["n = 1", "cat = 'a'", f"id > {self._pick.randrange(20)}", "id >= 0"])
            self.table.delete(condition)
            self.told.append(f"delete {condition}")
        else:
            rows = _rows(self._pick, self._pick.randrange(1, 6))
            before = set(self.theirs.rglob("*.parquet"))
            (self.table.overwrite if way == "overwrite" else self.table.append)(rows)
            old = self._pick.random() < 0.3
            for file in set(self.theirs.rglob("*.parquet")) - before if old else ():
                pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
            self.told.append(f"{way} {rows.num_rows}{', times of twelve bytes' if old else ''}")

    def theirs_now(self) -> pa.Table:
        found = self.catalog.load_table("shop.orders").scan().to_arrow()
        return found.select(_COLUMNS.names).cast(_COLUMNS)


def _run(world: _Folder | _Iceberg, pick: random.Random, about: str, monkeypatch: pytest.MonkeyPatch) -> None:
    views = {name: _VIEWS[name] for name in pick.sample(sorted(_VIEWS), 2)}
    columns = (
        "(id BIGINT, cat VARCHAR, n INT, v DOUBLE, at TIMESTAMP) "
        if world.form == "ICEBERG" and pick.random() < 0.5
        else ""
    )
    place = str(world.theirs) if world.form == "PARQUET" else "@"
    text = f"CREATE {world.kind} orders {columns}WITH ({world.form} = '{place}');"
    world.run(text + "".join(f"CREATE MATERIALIZED VIEW {name} AS {query};" for name, query in views.items()))
    ingest = IngestSettings(max_rows_per_epoch=pick.choice([1, 3, 1_000_000]))
    settings = world.settings.model_copy(update={"ingest": ingest})
    for _ in range(pick.randrange(1, 4)):
        for _ in range(pick.randrange(3)):
            world.step()
        if pick.random() < 0.4 and (broken := broken_drain(settings, "p", pick, monkeypatch)) is not None:
            world.told.append(f"broken off {broken}")
        drain(settings, "p", in_driver=True)
        told = "\n".join([about, world.kind, *world.told])
        theirs = world.theirs_now()
        names = ", ".join(_COLUMNS.names)
        assert _bag(world.rows(f"SELECT {names} FROM orders")) == _bag(
            map(tuple, zip(*theirs.to_pydict().values(), strict=True))
        ), told
        with duckdb.connect() as connection:
            connection.register("orders", theirs)
            for name, query in views.items():
                assert _bag(world.rows(f"SELECT * FROM {name}")) == _bag(connection.sql(query).fetchall()), told
    if pick.random() < 0.3:
        assert [check for check in verify(settings, deep=True) if check.ok is False] == [], told


def _rows(pick: random.Random, count: int) -> pa.Table:
    rows = [
        {
            "id": pick.randrange(30),
            "cat": pick.choice(["a", "b", None]),
            "n": pick.randrange(-1, 4),
            "v": pick.choice([0.5, 2.0, None]),
            "at": pick.choice([None, *_TIMES]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, _COLUMNS)


def _bag(rows: Any) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in rows)
