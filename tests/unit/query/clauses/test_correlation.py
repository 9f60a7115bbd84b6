"""Subqueries that read the query around them: where they may, and that the view is then the SELECT as it stands."""

from __future__ import annotations

import duckdb
import pytest

from strandline.jobs.model.errors import NotSupported
from tests.support.checked_views import defined, unlike_text

READ = [
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u JOIN c ON c.k = t.k WHERE u.id = t.id)",
    "SELECT t.id FROM t WHERE t.n IN (SELECT u.n FROM u JOIN c ON c.k = t.k)",
    "SELECT t.id FROM t WHERE t.n = ANY (SELECT u.n FROM u JOIN c ON c.k = t.k AND c.n > u.id)",
    "SELECT t.id, (SELECT COUNT(*) FROM u JOIN c ON c.k = u.k AND c.n = t.n) AS x FROM t",
    "SELECT t.id, (SELECT MAX(u.n) FROM u JOIN c ON c.k = u.k AND c.n = t.n WHERE u.id = t.id) AS x FROM t",
    "SELECT t.id FROM t WHERE t.n > (SELECT MIN(u.n) FROM u JOIN c ON c.k = t.k)",
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING COUNT(*) > (SELECT COUNT(*) FROM u JOIN c ON c.k = t.k)",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM s, UNNEST(s.tags) AS w (y) WHERE y = t.n)",
    "SELECT t.id FROM t WHERE t.n IN"
    " (SELECT u.n FROM u WHERE u.id IN (SELECT c.n FROM c WHERE c.k = u.k) AND u.k = t.k)",
    "SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM u LEFT JOIN c ON c.k = t.k AND c.k = u.k)",
    "SELECT t.id FROM t WHERE t.n > (SELECT COUNT(*) FROM u LEFT JOIN c ON c.k = t.k)",
    "SELECT t.id FROM t WHERE t.n < (SELECT MAX(u.n + t.n) FROM u)",
    "SELECT t.id FROM t WHERE t.n >= (SELECT MIN(u.n) FILTER (WHERE u.k = t.k) FROM u)",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM s, UNNEST(ARRAY[t.n]) AS w (y) WHERE y = 1)",
    "SELECT t.id FROM t WHERE t.n IN (SELECT RANK() OVER (PARTITION BY t.k ORDER BY u.n) FROM u)",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u JOIN (SELECT * FROM c WHERE c.k = t.k) z ON z.k = u.k)",
    # in GROUP BY, and inside aggregates
    "SELECT EXISTS (SELECT 1 FROM u WHERE u.k = t.k) AS x, COUNT(*) AS n FROM t GROUP BY 1",
    "SELECT COUNT(*) AS n FROM t GROUP BY (SELECT COUNT(*) FROM u WHERE u.k = t.k)",
    "SELECT (SELECT MAX(n) FROM u) AS top, SUM(n - (SELECT MAX(n) FROM u)) AS x FROM t",
    "SELECT k, MAX((SELECT COUNT(*) FROM u WHERE u.n = t.n)) AS x FROM t GROUP BY k HAVING COUNT(*) > 0",
    "SELECT k, COUNT(*) FILTER (WHERE n IN (SELECT n FROM u)) AS x FROM t GROUP BY k",
    "SELECT (SELECT COUNT(*) FROM u WHERE u.k = t.k) AS x, k, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((1), (k))",
    # the rows of a query as an array
    "SELECT t.id, ARRAY(SELECT u.id FROM u WHERE u.k = t.k ORDER BY u.id) AS x FROM t",
    "SELECT t.id, ARRAY(SELECT u.n AS y FROM u WHERE u.n < t.n ORDER BY y DESC, u.id LIMIT 2) AS x FROM t",
    "SELECT t.id, ARRAY(SELECT DISTINCT UPPER(u.k) FROM u WHERE u.n = t.n ORDER BY 1) AS x FROM t",
    "SELECT t.id, ARRAY(SELECT COUNT(*) FROM u WHERE u.k = t.k GROUP BY u.n ORDER BY 1) AS x FROM t",
    "SELECT t.id FROM t WHERE LEN(ARRAY(SELECT u.id FROM u WHERE u.k = t.k)) > 1",
    "SELECT ARRAY(SELECT k FROM t WHERE k IS NOT NULL UNION SELECT k FROM u WHERE k IS NOT NULL ORDER BY 1) AS x",
    # names after the alias of a subquery that reads what is around
    "SELECT t.id, (SELECT SUM(q.m) FROM (SELECT DISTINCT u.n FROM u WHERE u.k = t.k) AS q (m)) AS x FROM t",
]

# What DuckDB has in other words, or not at all.
SAID_OTHERWISE = [
    (
        "SELECT t.id, (t.k, t.n) = (SELECT MAX(u.k), MIN(u.n) FROM u WHERE u.id > t.id) AS x FROM t",
        "SELECT t.id, t.k = (SELECT MAX(u.k) FROM u WHERE u.id > t.id)"
        " AND t.n = (SELECT MIN(u.n) FROM u WHERE u.id > t.id) AS x FROM t",
    ),
    (
        "SELECT t.id, (SELECT MIN(u.n), MAX(u.id) FROM u) < (t.n, t.id) AS x FROM t",
        "SELECT t.id, a < t.n OR a = t.n AND b < t.id AS x FROM t, (SELECT MIN(u.n) AS a, MAX(u.id) AS b FROM u)",
    ),
    (
        "SELECT t.id FROM t WHERE ROW(t.k, 2) NOT IN (SELECT u.k, MAX(u.n) FROM u GROUP BY u.k)",
        "SELECT t.id FROM t WHERE (t.k, 2) NOT IN (SELECT u.k, MAX(u.n) FROM u GROUP BY u.k)",
    ),
]

REFUSED = [
    ("EXISTS (SELECT 1 FROM u ASOF JOIN c ON c.k = t.k AND u.n >= c.n)", "cannot be read here"),
    ("EXISTS (SELECT 1 FROM u UNION ALL SELECT 1 FROM c WHERE c.k = t.k)", "only between the ANDs"),
    ("t.n IN (SELECT u.n FROM u UNION SELECT t.n FROM c)", "only between the ANDs"),
    ("t.n > (SELECT MAX(t.n) FROM u)", "over columns of the query around it alone"),
]


@pytest.mark.parametrize("select", READ)
def test_a_condition_of_where_and_of_inner_joins_may_read_what_is_around(
    select: str, duck: duckdb.DuckDBPyConnection
) -> None:
    assert unlike_text(select, duck) == ""


ASKING = [
    "SELECT t.id, s.v FROM t FULL JOIN s ON t.k = s.k AND s.v <= (SELECT MAX(n) FROM u)",
    "SELECT t.id, s.v FROM t LEFT JOIN s ON t.k || 'x' = s.k || 'x' AND s.v <= (SELECT MAX(n) FROM u)",
    "SELECT s.k, s.v, t.n, u.id FROM s FULL JOIN t ON s.k = t.k FULL JOIN u ON t.n = u.n"
    " AND u.n <> (SELECT MIN(n) FROM t)",
]


@pytest.mark.parametrize("select", ASKING)
def test_an_outer_join_of_a_stream_may_ask_for_what_reads_neither_side(
    select: str, duck: duckdb.DuckDBPyConnection
) -> None:
    assert unlike_text(select, duck) == ""


_ITEMS = "FROM s CROSS JOIN UNNEST(s.tags) AS i (tag)"
ITEMS_ASKED = [
    f"SELECT s.k, i.tag {_ITEMS} WHERE i.tag IN (SELECT n FROM t)",
    f"SELECT s.k, i.tag {_ITEMS} WHERE i.tag NOT IN (SELECT n FROM t WHERE n IS NOT NULL) AND s.v > 1",
    f"SELECT s.k, i.tag {_ITEMS} WHERE EXISTS (SELECT 1 FROM t WHERE t.n = i.tag AND t.k = s.k)",
    f"SELECT s.k, i.tag, (SELECT MAX(t.id) FROM t WHERE t.n = i.tag) AS m {_ITEMS}",
    f"SELECT i.tag, COUNT(*) AS c {_ITEMS} WHERE i.tag IN (SELECT n FROM t) GROUP BY i.tag",
    "SELECT s.k, i.tag FROM s LEFT JOIN UNNEST(s.tags) AS i (tag) ON TRUE WHERE i.tag IN (SELECT n FROM t) OR s.v > 1",
]


@pytest.mark.parametrize("select", ITEMS_ASKED)
def test_a_subquery_may_read_the_items_of_unnest(select: str, duck: duckdb.DuckDBPyConnection) -> None:
    assert unlike_text(select, duck) == ""


@pytest.mark.parametrize(("select", "meant"), SAID_OTHERWISE)
def test_rows_of_values_are_compared_with_the_row_of_a_subquery(
    select: str, meant: str, duck: duckdb.DuckDBPyConnection
) -> None:
    assert unlike_text(select, duck, meant=meant) == ""


@pytest.mark.parametrize(("condition", "message"), REFUSED)
def test_anything_else_that_reads_what_is_around_is_refused(condition: str, message: str) -> None:
    with pytest.raises(NotSupported, match=message) as raised:
        defined(f"SELECT t.id FROM t WHERE {condition}")
    assert raised.value.line == 1
