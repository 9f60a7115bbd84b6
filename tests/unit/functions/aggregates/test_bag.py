"""Bags: their texts, and how many values of a group they bear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.aggregates.bag import bag_of, bag_type, merge_bags
from strandline.jobs.functions.aggregates.contract import GroupChanges
from strandline.jobs.model.types import BIGINT

if TYPE_CHECKING:
    import duckdb

DUCKDB = engine_of("duckdb")
TYPE = bag_type(BIGINT).duckdb()


def bag(rows: str) -> str:
    """The text of the bag of rows `v`, `w`."""
    changes = GroupChanges(("v",), "w", "NULL", None)
    made = bag_of(DUCKDB, changes, "v", BIGINT, by_place=False)
    return f"(SELECT CAST({made} AS {TYPE}) FROM ({rows}))"


def test_no_part_of_an_array_is_taken(duck: duckdb.DuckDBPyConnection) -> None:
    """DuckDB copies the whole array for each: a bag of ten thousand values took a minute."""
    text = merge_bags(DUCKDB, "old", bag("SELECT 1 AS v, 1 AS w"), BIGINT, by_place=False)
    assert "slice" not in text


def test_values_that_come_and_go_in_one_epoch_are_counted(duck: duckdb.DuckDBPyConnection) -> None:
    stored = bag("SELECT v, 1 AS w FROM (VALUES (1), (1), (2), (NULL)) AS rows (v)")
    changes = bag(
        "SELECT * FROM (VALUES (1, 1), (1, -1), (1, -1), (2, -1), (3, 1), (3, -1), (4, 1), (NULL, 1)) AS rows (v, w)"
    )
    merged = merge_bags(DUCKDB, stored, changes, BIGINT, by_place=False)
    [(found,)] = duck.execute(f"SELECT {merged}").fetchall()
    assert [(each["v"], each["n"]) for each in found] == [(None, 2), (1, 1), (4, 1)]


def test_a_bag_of_many_values(duck: duckdb.DuckDBPyConnection) -> None:
    """Each as often as it came, in the order of values."""
    merged = merge_bags(
        DUCKDB,
        bag("SELECT i // 2 AS v, 1 AS w FROM range(60000) AS rows (i)"),
        bag("SELECT i AS v, -1 AS w FROM range(0, 30000, 2) AS rows (i)"),
        BIGINT,
        by_place=False,
    )
    [(found,)] = duck.execute(f"SELECT list_transform({merged}, lambda x: [x.v, x.n])").fetchall()
    assert found == [[value, 1 + value % 2] for value in range(30_000)]
