"""What a stage looks back at, read from its rule: joins, sessions, windows and whatever retracts; folds do not."""

from __future__ import annotations

import pytest

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.rules.maintenance import looks_back
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog

SOURCES = (
    "CREATE STREAM s (k VARCHAR, v INT)",
    "CREATE STREAM r (k VARCHAR, v INT)",
    "CREATE TABLE t (k VARCHAR PRIMARY KEY, v INT)",
)


def of_view(query: str) -> list[set[str]]:
    """What each stage of a view looks back at."""
    catalog = MemoryCatalog()
    for statement in (*SOURCES, f"CREATE MATERIALIZED VIEW x AS {query}"):
        run(statement, catalog)
    return [set(looks_back(stage)) for stage in plan(catalog.get("x"), catalog).stages]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT k, v FROM s WHERE v > 1", [set()]),
        ("SELECT k FROM s UNION ALL SELECT k FROM r", [set()]),
        ("SELECT k, COUNT(*) AS n, MAX(v) AS m, COLLECT_SET(v) AS l FROM s GROUP BY k", [set()]),
        (
            "SELECT k, MAX(v) AS m, COLLECT_LIST(v) AS l, MEDIAN(v) AS d FROM s GROUP BY k",
            [set(), set(), {"x__stage_1", "x__stage_2"}],
        ),
        ("SELECT k, TOPK(v, 2) AS top FROM s WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 DAY) GROUP BY k", [set()]),
        ("SELECT k, MAX(v) AS m FROM t GROUP BY k", [{"t"}]),
        ("SELECT k, SUM(v) AS m FROM t GROUP BY k", [set()]),
        ("SELECT s.k, t.v FROM s JOIN t ON s.k = t.k", [{"s", "t"}]),
        ("SELECT k FROM s WHERE k IN (SELECT k FROM r)", [{"s", "r"}]),
        ("SELECT k, COUNT(*) AS n FROM s WINDOW SESSION (1 MINUTE) GROUP BY k", [{"s"}]),
        ("SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY v) AS place FROM s", [{"s"}]),
        (
            "SELECT n, MAX(k) AS k FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) AS c GROUP BY n",
            [set(), {"x__stage_1"}],
        ),
    ],
)
def test_what_a_view_looks_back_at(query: str, found: list[set[str]]) -> None:
    assert of_view(query) == found


def test_the_newest_row_of_a_key_needs_no_former_event() -> None:
    catalog = MemoryCatalog()
    for statement in SOURCES:
        run(statement, catalog)
    (stage,) = plan(catalog.get("t"), catalog).stages
    assert looks_back(stage) == frozenset()
