"""What damage and foreign hands did to a table is found, named, and mended by one command; what reads it follows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import InputReplaced
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from tests.support.invariants import assert_correct
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk
from tests.support.told_steps import ToldSteps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = """
CREATE STREAM sales (shop VARCHAR KEY, qty INT) WITH (PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, SUM(qty) AS total, MAX(qty) AS most FROM sales GROUP BY shop;
CREATE TABLE per_total AS SELECT total, COUNT(*) AS shops FROM by_shop GROUP BY total;
"""


@pytest.fixture
def shops(settings: Settings, spark: SparkSession) -> Interpreter:
    """Two epochs of a stream and two views, one over the other."""
    interpreter = Interpreter(settings, "shops")
    list(interpreter.run(TEXT))
    for first in (1, 3):
        sell(interpreter, [("a", first), ("b", first), ("c", first + 1)])
        drain(settings, "shops", spark)
    return interpreter


def sell(interpreter: Interpreter, sales: list[tuple[str, int]]) -> None:
    source = interpreter.catalog.get("sales")
    assert isinstance(source, Source)
    rows = [{"shop": shop, "qty": qty} for shop, qty in sales]
    insert_rows(source, rows, interpreter.settings, interpreter.lake)


def delete_rows(lake: LakeLayout) -> None:
    """By another tool."""
    delta_rs(lake.table("by_shop")).delete("shop = 'b'")


def lose_a_data_file(lake: LakeLayout) -> None:
    table = on_disk(lake.table("by_shop"))
    (file,) = [*table.glob("epoch-000000002-*.parquet"), *table.glob("epoch-000000002-*/*.parquet")]
    file.unlink()


def lose_the_table(lake: LakeLayout) -> None:
    shutil.rmtree(on_disk(lake.table("by_shop")))


def tear_a_commit(lake: LakeLayout) -> None:
    file = on_disk(log.commit_file(lake.table("by_shop"), 2))
    file.write_bytes(file.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("damage", "code", "mended"),
    [
        (delete_rows, "store.foreign_write", ("rebuild", "delta")),
        (lose_a_data_file, "store.version_gone", ("full", "rebuild")),
        (lose_the_table, "store.table_lost", ("full", "rebuild")),
        (tear_a_commit, "store.corrupt", ("full", "rebuild")),
    ],
)
def test_a_damaged_view_is_rebuilt(
    shops: Interpreter, spark: SparkSession, damage: Callable[[LakeLayout], None], code: str, mended: tuple[str, str]
) -> None:
    damage(shops.lake)
    sell(shops, [("b", 9), ("d", 1)])
    with pytest.raises(ViewsStopped) as stopped:
        drain(shops.settings, "shops", spark)
    assert code in str(stopped.value.failures["by_shop"])
    assert "strandline rebuild by_shop" in str(stopped.value.failures["by_shop"])
    done = rebuild(shops.settings, "by_shop", spark=spark)
    assert done.stages[0].mode == mended[0]
    assert modes(shops.lake) == mended
    sell(shops, [("a", 1)])
    drain(shops.settings, "shops", spark)
    assert rows(shops.lake.table("by_shop")) == {("a", 5, 3), ("b", 13, 9), ("c", 6, 4), ("d", 1, 1)}
    assert rows(shops.lake.table("per_total")) == {(5, 1), (13, 1), (6, 1), (1, 1)}


def test_an_event_log_that_lost_commits_is_read_again_from_its_topic(shops: Interpreter, spark: SparkSession) -> None:
    """The version that was lost comes back with other records: the views must not take it for the one they know."""
    on_disk(log.commit_file(shops.lake.table("sales"), 2)).unlink()
    sell(shops, [("a", 100)])
    with pytest.raises(ViewsStopped) as stopped:
        drain(shops.settings, "shops", spark)
    assert isinstance(stopped.value.failures["by_shop"], InputReplaced)
    with pytest.raises(ViewsStopped, match="another commit now"):
        drain(shops.settings, "shops", spark)
    steps = ToldSteps()
    done = rebuild(shops.settings, "sales", spark=spark, steps=steps)
    assert done.aside == ("sales",)
    events = head_rows(shops.lake)
    assert steps.told[0].startswith(f"begin: reading the topic 'sales' from its beginning, {events} rows")
    assert f"{events} events" in steps.told
    assert f"{events} events are in 'sales'" in steps.told
    assert f"begin: computing 'by_shop', {events} rows" in steps.told
    assert_correct(shops.lake, "shops")
    assert rows(shops.lake.table("by_shop")) == {("a", 104, 100), ("b", 4, 3), ("c", 6, 4)}


def head_rows(lake: LakeLayout) -> int:
    head = reader.head(lake.table("sales"))
    assert head is not None
    return head.record.rows


def modes(lake: LakeLayout) -> tuple[str, str]:
    first, second = (reader.head(lake.table(name)) for name in ("by_shop", "per_total"))
    assert first is not None
    assert second is not None
    return first.record.mode, second.record.mode


def rows(path: LakePath) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in reader.read_rows(path).to_pylist()}
