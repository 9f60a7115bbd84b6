"""A lake as Python code sees it, without a JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import strandline
from strandline.jobs.model.errors import InvalidQuery, SqlSyntaxError, UnknownName
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


def test_the_package_loads_neither_spark_nor_dagster() -> None:
    program = "import sys, strandline; sys.exit(str([m for m in ('pyspark', 'dagster') if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"
