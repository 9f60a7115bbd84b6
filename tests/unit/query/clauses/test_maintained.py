"""Clauses of SELECT that other dialects have: the view is the query after every epoch of a random history."""

from __future__ import annotations

import pytest
from duckdb import DuckDBPyConnection

from tests.support.checked_views import defined, wrong

QUERIES = (
    # joins without an equality, and in any order
    "SELECT a.k, b.n FROM t AS a, s AS z, u AS b WHERE a.id = b.id AND z.v = b.n",
    "SELECT t.id, u.id AS i FROM t JOIN u ON t.n < u.n",
    "SELECT t.id, u.id AS i FROM t JOIN u ON t.n IS NOT DISTINCT FROM u.n",
    "SELECT t.id, u.id AS i FROM t CROSS JOIN u",
    *(
        f"SELECT t.id, u.id AS i FROM t {side} JOIN u ON {on}"
        for side in ("LEFT", "RIGHT", "FULL")
        for on in ("t.n < u.n", "t.n = u.n OR t.k = u.k")
    ),
    "SELECT t.k, COUNT(*) AS m FROM t, u GROUP BY t.k",
    "CREATE TABLE v AS SELECT t.k, COUNT(*) AS n FROM t JOIN u ON t.n = u.n GROUP BY t.k;",
    # subqueries without an equality
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.n < t.n)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.n > 3)",
    # sets
    "SELECT k, n FROM t INTERSECT ALL SELECT k, n FROM u",
    "SELECT k, n FROM t EXCEPT ALL SELECT k, n FROM u",
    "SELECT k FROM s EXCEPT ALL SELECT k FROM u EXCEPT ALL SELECT k FROM c",
    "SELECT k FROM s UNION CORRESPONDING SELECT k, n FROM t",
    "SELECT n, k FROM c UNION ALL CORRESPONDING BY (k) SELECT k, n FROM t",
    # stars and windows
    "SELECT * EXCEPT (x) RENAME (k AS z, v AS w) FROM s",
    "SELECT k, COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY k HAVING COUNT(*) > 1",
    "CREATE TABLE v AS SELECT k, COUNT(*) AS c FROM s WINDOW SESSION (10 SECONDS) GROUP BY k EMIT FINAL;",
    # casts, parts of dates, intervals
    "SELECT v::DOUBLE AS a, CAST(v AS TEXT) AS b, d::NUMERIC(12, 3) AS e, v::SMALLINT::DOUBLE PRECISION AS f FROM s",
    "SELECT EXTRACT(YEAR FROM ts) AS y, EXTRACT(EPOCH FROM day) AS e FROM s WHERE ts > day + INTERVAL '1' HOUR",
    "SELECT ROW(v, k)->f2 AS a, MD5(k) AS b FROM s",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_view_is_its_select_after_every_epoch(duck: DuckDBPyConnection, sql: str) -> None:
    assert [wrong(sql, duck, seed) for seed in (0, 1)] == ["", ""]


def columns_of(sql: str) -> list[str]:
    found = defined(sql).get("v")
    return [f"{column.name}{'!' if column.key else ''}" for column in found.columns]  # type: ignore[union-attr]


def test_a_view_of_windows_shows_them_after_its_key() -> None:
    window = "WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY k"
    assert columns_of(f"SELECT COUNT(*) AS c, k FROM s {window}") == ["k!", "windowstart", "windowend", "c"]
    assert columns_of(f"SELECT k, windowend AS e FROM s {window}") == ["k!", "windowstart", "e"]
    assert columns_of(f"SELECT DISTINCT k FROM s {window}") == ["k"]


def test_corresponding_keeps_the_columns_that_all_branches_have() -> None:
    assert columns_of("SELECT k, v FROM s UNION CORRESPONDING SELECT id, k FROM t") == ["k"]
