"""Inputs whose names differ only in case, which engines take for one: each branch of a UNION may name its own so."""

from __future__ import annotations

from random import Random

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import Settings
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.oracle import expected, visible
from tests.support.served_lake import ServedLake

SOURCES = """
CREATE TABLE a (k BIGINT PRIMARY KEY, v BIGINT);
CREATE TABLE b (k BIGINT PRIMARY KEY, v BIGINT);
CREATE MATERIALIZED VIEW u WITH (REFRESH = '{}') AS {};
"""
UNIONS = [
    "SELECT t.v AS v, t.k AS k FROM a t UNION ALL SELECT `T`.v, `T`.k FROM b `T`",
    "SELECT t.v AS v, T_2.k AS k FROM a t JOIN b T_2 ON t.k = T_2.k"
    " UNION ALL SELECT `T`.v, t_2.v FROM b `T` LEFT JOIN a t_2 ON t_2.k = `T`.k",
    "SELECT x.v, COUNT(*) AS n FROM (SELECT t.v FROM a t JOIN b q ON t.k = q.k UNION ALL"
    " SELECT `T`.v FROM b `T` JOIN a `Q` ON `T`.k = `Q`.k) x GROUP BY x.v",
]


@pytest.mark.parametrize("refresh", ["incremental", "full"])
@pytest.mark.parametrize("union", UNIONS)
def test_each_input_has_its_own_rows(settings: Settings, duckdb_engine: DuckDBEngine, refresh: str, union: str) -> None:
    made = ServedLake(settings, SOURCES.format(refresh, union))
    random = Random(3)
    made.append("a", [{"k": k, "v": k} for k in range(20)])
    made.append("b", [{"k": k, "v": 100 + k} for k in range(10, 30)])
    for _ in range(3):
        made.refresh(duckdb_engine)
        for name in ("a", "b"):
            made.append(name, [{"k": random.randrange(30), "v": random.randrange(1000)} for _ in range(3)])
    # Changes of several commits, which nobody keeps in memory.
    with made.duckdb_engine() as afresh:
        made.refresh(afresh)
    catalog = Catalog(made.lake)
    columns = [column.name for column in catalog.get("u").columns]  # type: ignore[union-attr]
    assert visible(made.lake, "u", columns) == expected(made.lake, catalog, "u")
