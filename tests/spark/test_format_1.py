"""A pipeline goes on in a lake of the format before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import SparkSettings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.paths import LakePath
from tests.support.format_1 import unpacked
from tests.support.invariants import assert_correct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_pipeline_goes_on_and_its_tables_take_the_new_format(tmp_path: Path, spark: SparkSession) -> None:
    lake = unpacked(tmp_path)
    settings = load_settings(lake=lake.root, spark=SparkSettings(master="local[2]", shuffle_partitions=2))
    visits = Interpreter(settings, "shops").catalog.get("visits")
    assert isinstance(visits, Source)
    drain(settings, "shops", spark)
    assert {name: _format(lake.table(name)) for name in ("visits", "shops", "best")} == dict.fromkeys(
        ("visits", "shops", "best"), (2, "")
    ), "nothing new is no commit"
    insert_rows(visits, [{"shop": "b", "spent": 11}], settings, lake)
    drain(settings, "shops", spark)
    assert reader.read_rows(lake.table("best")).to_pylist() == [{"city": "Bonn", "best": 11, "visits": 5}]
    head = reader.head(lake.table("best"))
    assert head is not None
    assert head.record.nonce
    assert head.record.vector["visits"].nonce
    assert_correct(lake, "shops")


def _format(path: LakePath) -> tuple[int, str]:
    head = reader.head(path)
    assert head is not None
    return head.version, head.record.nonce
