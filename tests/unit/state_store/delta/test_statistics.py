"""The bounds of a file's columns, as the log has them."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.state_store.delta.statistics import loosened, statistics, without_nulls


def bounds(path: Path, values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    pq.write_table(pa.table({"c": pa.array(values, kind)}), path)
    found = json.loads(statistics(pq.read_metadata(path), ["c"]))
    return found["minValues"].get("c"), found["maxValues"].get("c")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["2024-01-01T00:00:00.001999"], ("2024-01-01T00:00:00.001Z", "2024-01-01T00:00:00.002Z")),
        (["2024-01-01T00:00:00"], ("2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000Z")),
        (["2024-01-01T00:00:00", "9999-12-31T23:59:59.999999"], (None, None)),
    ],
)
def test_instants_are_rounded_outwards_and_the_last_ones_have_no_bound(
    tmp_path: Path, values: list[str], found: tuple[str | None, str | None]
) -> None:
    utc = [dt.datetime.fromisoformat(value).replace(tzinfo=dt.UTC) for value in values]
    assert bounds(tmp_path / "f.parquet", utc, pa.timestamp("us", "UTC")) == found


def test_dates_are_as_they_are(tmp_path: Path) -> None:
    values = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    assert bounds(tmp_path / "f.parquet", values, pa.date32()) == ("0001-01-01", "9999-12-31")


def test_columns_without_null_are_those_of_which_the_statistics_say_so(tmp_path: Path) -> None:
    """Also fields of `__state`; nothing is known of a column without bounds, nor of another tool's text."""
    state = pa.array([{"g": 1, "h": None}, {"g": 2, "h": 3}])
    rows = pa.table({"k": [1, 2], "n": [None, "a"], "long": ["x" * 200, "y"], "__state": state})
    pq.write_table(rows, tmp_path / "f.parquet")
    footer = pq.read_metadata(tmp_path / "f.parquet")
    stats = statistics(footer, ["k", "n", "long", "__state.g", "__state.h", "missing"])
    assert without_nulls(stats) == {"k", "__state.g"}
    assert without_nulls(loosened(stats)) == {"k", "__state.g"}, "rows were deleted since"
    for other in ("", "{", "[]", '{"numRecords":1}', '{"nullCount":[1]}', '{"nullCount":{"__state":1}}'):
        assert without_nulls(other) == frozenset()


@pytest.mark.parametrize("columns", [["a", "a.b"], ["a.b", "a"], ["a.b", "a.b.c", "a"]])
def test_a_column_may_have_a_dot_in_its_name(tmp_path: Path, columns: list[str]) -> None:
    """Only below `__state` it leads to a field."""
    rows = {name: [number, number + 10] for number, name in enumerate(columns)}
    pq.write_table(pa.table({**rows, "__state": [{"g.h": 1}, {"g.h": 2}]}), tmp_path / "f.parquet")
    stats = statistics(pq.read_metadata(tmp_path / "f.parquet"), [*columns, "__state.g.h"])
    found = json.loads(stats)
    assert found["minValues"] == {name: low for name, (low, _) in rows.items()} | {"__state": {"g.h": 1}}
    assert found["maxValues"] == {name: high for name, (_, high) in rows.items()} | {"__state": {"g.h": 2}}
    assert without_nulls(stats) == {*columns, "__state.g.h"}


@pytest.mark.parametrize("columns", [["a", "a.b"], ["a.b", "a"]])
def test_a_column_that_is_called_as_a_field_of_another_has_no_bounds(tmp_path: Path, columns: list[str]) -> None:
    both = {"a": [{"b": 1}], "a.b": [7]}
    pq.write_table(pa.table({name: both[name] for name in columns}), tmp_path / "f.parquet")
    found = json.loads(statistics(pq.read_metadata(tmp_path / "f.parquet"), ["a.b"]))
    assert found["minValues"] == found["maxValues"] == found["nullCount"] == {}
