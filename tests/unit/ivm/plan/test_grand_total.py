"""GROUPING SETS, ROLLUP and CUBE as SQL has them: the set `()` is a row that is always there.

After every refresh, also one over no rows, the view equals DuckDB's answer to its own SELECT over the rows there are.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.stage import AggregateStage, MapStage
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of, run
from tests.support.duck_lake import DuckLake
from tests.support.rule_harness import multiset

SOURCES = """
CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR, price INT);
CREATE STREAM visit (product VARCHAR, length INT);
"""
ROLLUP = "SELECT category, COUNT(*) AS n FROM info GROUP BY ROLLUP (category)"
QUERIES = {
    "rollup": "SELECT category, COUNT(*) AS n, SUM(price) AS s, MIN(price) AS m FROM info GROUP BY ROLLUP (category)",
    "rollup of a stream": "SELECT product, MAX(length) AS m FROM visit GROUP BY ROLLUP (product)",
    "only the total": "SELECT MAX(price) AS m FROM info GROUP BY GROUPING SETS (())",
    "the total twice": "SELECT category, COUNT(*) AS n FROM info GROUP BY GROUPING SETS ((), (category), ())",
    "cube": "SELECT category, price, COUNT(*) AS n FROM info GROUP BY CUBE (category, price)",
    "no total": "SELECT category, price, COUNT(*) AS n FROM info GROUP BY GROUPING SETS ((category), (price))",
    "having": f"{ROLLUP} HAVING COUNT(*) <> 1",
    "distinct": "SELECT DISTINCT COUNT(*) AS n FROM info GROUP BY ROLLUP (category)",
    "rank": "SELECT category, RANK() OVER (PARTITION BY COUNT(*) ORDER BY MAX(price) NULLS LAST) AS p FROM info"
    " GROUP BY ROLLUP (category)",
    "value of a subquery": "SELECT category, COUNT(*) - (SELECT COUNT(*) FROM visit) AS n FROM info"
    " GROUP BY ROLLUP (category)",
    "which set": "SELECT category, GROUPING(category) AS g, COUNT(*) AS n FROM info GROUP BY ROLLUP (category)",
    "which of many sets": "SELECT category, price, GROUPING(category, price) * 10 + GROUPING(price) AS g, COUNT(*) AS n"
    " FROM info GROUP BY GROUPING SETS ((price), (category, price), (), (category)) HAVING GROUPING(price) = 0 OR"
    " GROUPING_ID(category, price) = 3",
    "which of many without a total": "SELECT price, GROUPING(price, category) AS g, SUM(price) AS n FROM info"
    " GROUP BY GROUPING SETS ((price), (category, price), (category))",
    "nothing but a condition": "SELECT 42 AS a FROM info HAVING 42 > 20",
    "nothing but a condition that does not hold": "SELECT 42 AS a HAVING 42 > 80",
    "the total twice, alone": "SELECT COUNT(*) AS n FROM info GROUP BY GROUPING SETS ((), ())",
    "no sets": "SELECT category, GROUPING(category) AS g FROM info GROUP BY category",
    "rank by set": "SELECT category, RANK() OVER (PARTITION BY GROUPING(category) ORDER BY COUNT(*)) AS p FROM info"
    " GROUP BY ROLLUP (category)",
    "set and value of a subquery": "SELECT category, GROUPING(category) + (SELECT COUNT(*) FROM visit) AS n FROM info"
    " GROUP BY ROLLUP (category)",
    "joined": f"SELECT q.n, visit.product FROM ({ROLLUP}) AS q LEFT JOIN visit ON visit.length = q.n",
    "rollup of a rollup": f"SELECT q.n, COUNT(*) AS c FROM ({ROLLUP}) AS q GROUP BY ROLLUP (q.n)",
    "sets of sets": "SELECT q.a, COUNT(*) AS c FROM (SELECT category AS a, price AS b FROM info"
    " GROUP BY GROUPING SETS ((category), (price))) AS q GROUP BY GROUPING SETS ((q.a), (q.a, q.b))",
}


def event(offset: int, **values: Any) -> dict[str, Any]:
    return {"_partition": 0, "_offset": offset, **values}


EPOCHS: list[dict[str, list[dict[str, Any]]]] = [
    {},
    {
        "info__log": [event(0, product="apple", category="fruit", price=2), event(1, product="fig", price=3)],
        "visit": [event(0, product="apple", length=1)],
    },
    {"info__log": [event(2, product="pear", category="fruit", price=9)], "visit": [event(1, length=3)]},
    {"info__log": [event(3, product="pear", category="pome", price=1), event(4, product="fig", _tombstone=True)]},
    {"info__log": [event(5, product=name, _tombstone=True) for name in ("apple", "pear")]},
    {},
]


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["full", "shared"])
@pytest.mark.parametrize("name", QUERIES)
def test_the_total_is_there_over_no_rows_and_never_twice(
    name: str, state: str, catalog: Catalog, duck: duckdb.DuckDBPyConnection
) -> None:
    run(f"CREATE MATERIALIZED VIEW v WITH (STATE='{state}') AS {QUERIES[name]}", catalog)
    bench = DuckLake(catalog, catalog.definitions(), duck)
    for feeds in EPOCHS:
        for log, rows in feeds.items():
            bench.feed(log, rows)
        bench.refresh()
        held = ", ".join(f"{source} AS ({bench.visible_sql(source)})" for source in ("info", "visit"))
        wanted = duck.execute(f"WITH {held} {QUERIES[name]}").fetchall()
        assert multiset([list(row.values()) for row in bench.rows("v")]) == multiset(wanted)
    bench.close()


def test_the_total_of_a_window_is_none(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    run(
        "CREATE MATERIALIZED VIEW v AS SELECT product, COUNT(*) AS n FROM visit WINDOW TUMBLING (SIZE 1 HOUR)"
        " GROUP BY ROLLUP (product)",
        catalog,
    )
    bench = DuckLake(catalog, catalog.definitions(), duck)
    bench.refresh()
    assert bench.rows("v") == []
    bench.close()


def test_the_total_is_an_aggregate_of_its_own(catalog: Catalog) -> None:
    """So that neither is a copy of every row made for it, nor the groups computed again when it changes."""
    run(f"CREATE MATERIALIZED VIEW v AS {ROLLUP}", catalog)
    groups, total, both = plan(catalog.get("v"), catalog).stages
    assert isinstance(groups, AggregateStage)
    assert isinstance(total, AggregateStage)
    assert isinstance(both, MapStage)
    assert [groups.key, total.key] == [("category",), ()]
    assert not any(core.expand for stage in (groups, total) for core in stage.body)
