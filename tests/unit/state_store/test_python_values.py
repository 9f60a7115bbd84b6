"""Columns with instants that Python has not become values all the same, and such values are stored and read."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.state_store.changelog import fold
from strandline.state_store.delta.statistics import statistics
from strandline.state_store.python_values import python_values
from strandline.state_store.replicas.value_bytes import from_integer
from strandline.state_store.tablespec import TIMESTAMP, VERSION, WEIGHT

if TYPE_CHECKING:
    from pathlib import Path

YEAR_10000 = 253_402_300_859_999_999
INSTANTS = pa.array([YEAR_10000, 0, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
SHOWN = ["10000-01-01 00:00:59.999999Z", dt.datetime(1970, 1, 1, tzinfo=dt.UTC), None]


def test_an_instant_outside_pythons_years_is_its_text_and_the_others_stay() -> None:
    assert python_values(INSTANTS) == SHOWN
    assert python_values(pa.chunked_array([INSTANTS, INSTANTS])) == SHOWN * 2
    assert python_values(pa.array([2_932_897], pa.int32()).cast(pa.date32())) == ["10000-01-01"]


def test_so_it_is_within_arrays_structs_and_maps() -> None:
    ends = pa.array([0, 2, 3], pa.int32())
    assert python_values(pa.ListArray.from_arrays(ends, INSTANTS))[0] == [SHOWN[0], "1970-01-01 00:00:00.000000Z"]
    assert python_values(pa.StructArray.from_arrays([INSTANTS], ["at"])) == [{"at": value} for value in SHOWN]
    keys = pa.array(["a", "b", "c"])
    assert python_values(pa.MapArray.from_arrays(ends, keys, INSTANTS))[0]["a"] == SHOWN[0]


@pytest.mark.parametrize("arrow_type", [pa.timestamp("us", tz="UTC"), pa.timestamp("us")])
def test_a_replicas_values_are_the_same(arrow_type: pa.DataType) -> None:
    convert = from_integer(arrow_type)
    assert convert is not None
    assert convert(YEAR_10000) == python_values(pa.array([YEAR_10000], pa.int64()).cast(arrow_type))[0]


def test_a_file_with_such_an_instant_has_no_bounds_for_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": INSTANTS, "n": [1, 2, 3]}), tmp_path / "file.parquet")
    found = json.loads(statistics(pq.read_metadata(tmp_path / "file.parquet"), ["at", "n"]))
    assert found == {"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": 3}, "nullCount": {"n": 0}}


def test_a_changelog_with_such_an_instant_folds() -> None:
    changes = pa.table({"at": INSTANTS, VERSION: [1, 2, 3], TIMESTAMP: [0, 0, 0], WEIGHT: [1, 1, 1]})
    assert fold(changes)["at"].equals(pa.chunked_array([INSTANTS]))
