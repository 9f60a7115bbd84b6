"""Several PARTITION BYs in one SELECT: what can fail of a row is computed before any window takes it in."""

from __future__ import annotations

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.model.definitions import View
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import Block
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog

SOURCE = "CREATE STREAM s (a VARCHAR, b VARCHAR, n INT, v INT);"


def query(select: str) -> Block:
    catalog = MemoryCatalog()
    run(f"{SOURCE} CREATE MATERIALIZED VIEW w AS {select};", catalog)
    view = catalog.get("w")
    assert isinstance(view, View)
    found = query_of(view, catalog)
    assert isinstance(found, Block)
    return found


def test_a_row_that_fails_in_one_partition_is_in_no_window_of_another() -> None:
    outer = query(
        "SELECT RANK() OVER (ORDER BY v) AS r, SUM(10 / n) OVER (PARTITION BY CAST(a AS INT)) AS t, CAST(b AS INT) AS c"
        " FROM s"
    )
    inner = outer.inputs[0].source
    assert isinstance(inner, Block)
    assert sum(can_fail(each.expression) for each in inner.outputs) == 3
    assert inner.before_windows
    trees = [*outer.partition, *(each.expression for each in outer.outputs)]
    assert not any(map(can_fail, [*trees, *(node for call in outer.analytic for node in call.arguments)]))


def test_a_bound_that_each_row_brings_stays_in_its_call() -> None:
    query(
        "SELECT SUM(v) OVER (PARTITION BY a ORDER BY v ROWS BETWEEN n PRECEDING AND CURRENT ROW) AS x,"
        " COUNT(*) OVER (PARTITION BY b) AS y FROM s"
    )
    query(
        "SELECT COUNT(*) OVER (PARTITION BY b) AS y,"
        " SUM(v) OVER (PARTITION BY a ORDER BY v ROWS BETWEEN n PRECEDING AND CURRENT ROW) AS x FROM s"
    )
