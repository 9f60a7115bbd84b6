"""Folders of Parquet files and Iceberg tables, taken in by Spark: its planning process gives files their numbers, its
tasks read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from tests.support.foreign_folder import FolderWorld, ids
from tests.support.foreign_iceberg import IcebergWorld, end_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings

_VIEW = "CREATE MATERIALIZED VIEW c AS SELECT n, COUNT(*) AS c FROM s GROUP BY n"


@pytest.fixture(autouse=True, scope="module")
def _without_threads() -> Iterator[None]:
    yield
    end_threads()


def by_spark(world: FolderWorld, settings: Settings) -> Settings:
    """The settings of a run in which Spark takes in every micro-batch."""
    return settings.model_copy(
        update={"lake": world.root, "ingest": settings.ingest.model_copy(update={"driver_rows": 0})}
    )


def test_a_folder_is_taken_in_by_tasks(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    world = FolderWorld(tmp_path / "w")
    world.put("a.parquet", ids(*range(500)))
    world.run(f"CREATE STREAM s WITH (PARQUET = '@'); {_VIEW}")
    drain(by_spark(world, settings), "p", spark)
    world.put("day=1/b.parquet", ids(500, 501))
    drain(by_spark(world, settings), "p", spark)
    assert world.ids() == [*range(502)]
    assert world.rows("SELECT n, c FROM c WHERE n < 2") == [(0, 51), (1, 51)]
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


def test_an_iceberg_table_in_a_folder_is_taken_in_by_tasks(
    settings: Settings, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's processes are there already, so they do not have the environment that names a test's catalog."""
    world = IcebergWorld(tmp_path / "w", monkeypatch)
    world.begin(ids())
    folder = tmp_path / "w" / "byhand"

    def commit(number: int) -> None:
        metadata = Path(world.table.refresh().metadata_location.removeprefix("file://"))
        (folder / "metadata").mkdir(parents=True, exist_ok=True)
        (folder / "metadata" / f"v{number}.metadata.json").write_bytes(metadata.read_bytes())
        (folder / "metadata" / "version-hint.text").write_text(str(number))

    world.table.append(ids(*range(500)))
    commit(1)
    world.run(f"CREATE TABLE s WITH (ICEBERG = '{folder}'); {_VIEW}")
    drain(by_spark(world, settings), "p", spark)
    world.table.delete("n = 3")
    world.table.append(ids(1))
    commit(2)
    drain(by_spark(world, settings), "p", spark)
    assert world.ids() == sorted([1, *(each for each in range(500) if each % 10 != 3)])
    assert world.rows("SELECT n, c FROM c WHERE n < 4") == [(0, 50), (1, 51), (2, 50)]
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []
