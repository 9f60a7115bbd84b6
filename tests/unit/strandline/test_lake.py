"""A lake as Python code sees it, without a JVM."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import strandline
from strandline.jobs.model.errors import EncodeFailed, InvalidQuery, SqlSyntaxError, TypeMismatch, UnknownName
from strandline.state_store.errors import SettingsError, TableMissing, VersionGone
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import append, delete

FILE = Path(__file__).parents[3] / "jobs" / "pipelines" / "package_locations.sql"
ROWS = [{"package_id": 1, "current_location": "Rome"}, {"package_id": 2, "current_location": "Oslo"}]


@pytest.fixture
def opened(lake: LakeLayout) -> strandline.Lake:
    """The pattern catalogue's projection after two epochs: two rows, of which one was deleted."""
    found = strandline.open_lake(str(lake.root))
    found.apply(FILE)
    append(lake, "package_locations", ROWS)
    delete(lake, "package_locations", 1, "package_id = 1")
    return found


def test_rows_come_in_the_frame_that_is_asked_for(opened: strandline.Lake) -> None:
    assert opened.names() == ("package_checkins", "package_locations")
    assert opened.version("package_locations") == 1
    assert opened.arrow("package_locations").to_pylist() == ROWS[1:]
    assert opened.arrow("package_locations", ["package_id"], version=0).num_rows == 2
    assert opened.arrow("package_locations", where={"package_id": [1]}).num_rows == 0
    assert opened.pandas("package_locations").to_dict("records") == ROWS[1:]
    assert opened.query("SELECT current_location AS at FROM package_locations") == [{"at": "Oslo"}]


def test_changes_since_a_version_add_up(opened: strandline.Lake) -> None:
    found = opened.changes("package_locations", after=0)
    assert found.column_names == [
        *("package_id", "current_location", "_commit_version", "_commit_timestamp", "__weight")
    ]
    assert [(row["package_id"], row["__weight"]) for row in found.to_pylist()] == [(1, -1)]
    assert opened.changes("package_locations").num_rows == 3
    assert opened.changes("package_locations", after=1).num_rows == 0
    with pytest.raises(VersionGone):
        opened.changes("package_locations", after=7)


def test_what_is_not_there_is_a_typed_error(opened: strandline.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="nope"):
        opened.arrow("nope")
    with pytest.raises(TableMissing):
        opened.arrow("package_checkins")
    assert opened.version("package_checkins") is None
    with pytest.raises(SqlSyntaxError):
        opened.query("SHOW TABLES")
    with pytest.raises(SettingsError, match="motor"):
        strandline.open_lake("x", motor="duckdb")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SettingsError, match="polars is not installed"):
        opened.polars("package_locations")


def test_statements_are_executed_and_definitions_described(opened: strandline.Lake) -> None:
    said = opened.execute(
        "CREATE VIEW in_oslo AS SELECT package_id AS id FROM package_locations WHERE current_location = 'Oslo';"
        "CREATE TABLE doors (id BIGINT PRIMARY KEY);",
        pipeline="doors",
    )
    assert said == ("view 'in_oslo' created (pipeline 'doors')", "table 'doors' created (pipeline 'doors')")
    assert opened.plain_views() == ("in_oslo",)
    assert opened.query("SELECT * FROM in_oslo") == [{"id": 2}]
    about = opened.describe("doors")
    assert (about["kind"], about["pipeline"]) == ("table", "doors")
    assert about["columns"] == [{"name": "id", "type": "BIGINT", "key": True}]
    assert opened.describe("in_oslo")["reads"] == ["package_locations"]
    with pytest.raises(InvalidQuery, match="`execute` is for what changes"):
        opened.execute("SELECT * FROM in_oslo")
    with pytest.raises(UnknownName):
        opened.describe("nope")


def test_rows_of_a_select_as_arrow_and_its_columns_alone(opened: strandline.Lake) -> None:
    text = "SELECT package_id AS id, CAST('1.50' AS DECIMAL(9, 2)) AS price FROM package_locations"
    assert opened.query_arrow(text).to_pylist() == [{"id": 2, "price": Decimal("1.50")}]
    empty = opened.query_arrow(f"{text} WHERE package_id > 7")
    assert (empty.num_rows, empty.schema.types) == (0, [pa.int64(), pa.decimal128(9, 2)])
    assert opened.columns(text) == {"id": "BIGINT", "price": "DECIMAL(9, 2)"}
    with pytest.raises(UnknownName):
        opened.columns("SELECT nope FROM package_locations")


def test_rows_of_python_are_inserted(tmp_path: Path) -> None:
    lake = strandline.open_lake(str(tmp_path / "lake"))
    lake.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, at TIMESTAMP, price DECIMAL(9, 2), tags ARRAY<VARCHAR>, n INT NOT NULL)"
        ";CREATE MATERIALIZED VIEW v AS SELECT SUM(price) AS price FROM t; ALTER TABLE t RENAME TO prices;"
    )
    at = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
    row = {"id": 1, "at": at, "price": Decimal("1.50"), "tags": ["a", "ü"], "n": 1}
    assert lake.insert("prices", [row, {"id": 2, "n": 2}]) == 2
    assert lake.insert("prices", [{**row, "price": Decimal("2.50")}]) == 1
    assert lake.insert("prices", []) == 0
    lake.drain("default")
    assert lake.query("SELECT * FROM prices WHERE id = 1") == [{**row, "price": Decimal("2.50")}]
    assert lake.query("SELECT * FROM v") == [{"price": Decimal("2.50")}]
    refused: list[tuple[str, dict[str, object], type[Exception], str]] = [
        ("nope", row, UnknownName, "unknown stream or table 'nope'"),
        ("t", row, UnknownName, "`t` is called 'prices' now"),
        ("v", row, InvalidQuery, "'v' is a view"),
        ("prices", {**row, "n": None}, TypeMismatch, "column 'n' is NOT NULL"),
        ("prices", {**row, "price": "much"}, EncodeFailed, "price"),
        ("prices", {**row, "nope": 1}, EncodeFailed, "'prices' has no column 'nope'"),
    ]
    for name, wrong, error, why in refused:
        with pytest.raises(error, match=why):
            lake.insert(name, [{"id": 7, "n": 7}, wrong])
    lake.drain("default")
    assert lake.query("SELECT COUNT(*) AS n FROM prices") == [{"n": 2}]


def test_the_package_loads_neither_spark_nor_dagster() -> None:
    program = "import sys, strandline; sys.exit(str([m for m in ('pyspark', 'dagster') if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


def test_columns_and_versions_that_are_not_there_are_typed_errors(opened: strandline.Lake) -> None:
    for columns in (["package"], ["__state"]):
        with pytest.raises(UnknownName, match="unknown column"):
            opened.arrow("package_locations", columns)
    with pytest.raises(UnknownName, match="unknown column"):
        opened.arrow("package_locations", where={"package": [1]})
    for version in (-1, 99):
        with pytest.raises(VersionGone):
            opened.arrow("package_locations", version=version)
    with pytest.raises(SettingsError, match="NUL"):
        strandline.open_lake("a\0b")
