"""Joins in brackets, and a comma before a join: each view has the rows that DuckDB finds by its text."""

from __future__ import annotations

import duckdb
import pytest

from tests.support.checked_views import unlike_text

QUERIES = [
    # brackets
    "SELECT t.id, u.n, c.k FROM t LEFT JOIN (u JOIN c ON u.k = c.k) ON t.id = u.id",
    "SELECT t.id, u.n, c.k FROM t FULL JOIN (u LEFT JOIN c ON u.k = c.k) ON t.id = u.id AND u.n > 1",
    "SELECT t.id, u.n, c.k AS ck FROM t RIGHT JOIN (u FULL JOIN c ON u.k = c.k) ON t.id = u.id",
    "SELECT t.id, b.k FROM t JOIN (u JOIN c ON u.k = c.k) ON t.id = u.id RIGHT JOIN c AS b ON b.k = t.k",
    "SELECT t.id FROM t LEFT JOIN ((u LEFT JOIN c ON u.k = c.k)) ON t.id = u.id",
    "SELECT t.id, u.id AS i FROM ((t LEFT JOIN c ON t.k = c.k) LEFT JOIN (u FULL JOIN c AS d ON u.k = d.k)"
    " ON t.n = u.n)",
    "SELECT t.id, u.id AS i, c.k FROM t LEFT JOIN (u CROSS JOIN c) ON t.id = u.id",
    # a comma binds less than JOIN
    "SELECT t.id, u.n, c.k FROM t, u FULL JOIN c ON u.k = c.k",
    "SELECT t.id, u.n, c.k FROM t, u RIGHT JOIN c ON u.k = c.k WHERE t.k = c.k",
    "SELECT COUNT(*) AS a, SUM(t.n) AS b FROM t, (SELECT * FROM u WHERE n > 1) AS u RIGHT JOIN c ON u.k = c.k, c AS d"
    " GROUP BY c.k",
    "SELECT c.k FROM c, t LEFT JOIN u USING (id), (VALUES (1), (2)) AS v (z)"
    " RIGHT JOIN (SELECT 2 AS z) AS w ON v.z = w.z",
    "SELECT t.id, (SELECT MAX(u.n) FROM t AS a, u RIGHT JOIN c ON u.k = c.k) AS m FROM t",
    "SELECT a.id AS i, b.id AS j, b.n, c.n AS m FROM t AS a, t AS b JOIN u AS c USING (id)",
    "SELECT a.k, b.id, c.m FROM c AS a, t AS b NATURAL JOIN (SELECT id, n AS m FROM u) AS c",
    "SELECT a.n AS x, t.id FROM ((VALUES ('a', 1), ('b', 2)) AS a (k, n) FULL JOIN t ON a.n = t.n)",
    "SELECT t.id, a.n AS x FROM t JOIN ((VALUES ('a', 1), ('b', 2)) AS a (k, n) JOIN u ON a.n = u.n) ON a.k = t.k",
    # `*` shows a column once where USING made it one
    "SELECT * FROM (SELECT id FROM t) AS b JOIN (SELECT id, k FROM u) AS c USING (id), (SELECT n FROM u) AS a",
]


@pytest.mark.parametrize("select", QUERIES)
def test_the_view_has_the_rows_of_its_text(select: str, duck: duckdb.DuckDBPyConnection) -> None:
    assert unlike_text(select, duck) == ""
