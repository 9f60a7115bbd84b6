"""Clauses of SELECT that other dialects have: the view is the query after every epoch of a random history."""

from __future__ import annotations

import pytest
from duckdb import DuckDBPyConnection

from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from tests.support.checked_views import defined, wrong

# In the history of this seed every view has a row at some time.
_SEED = 5
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
    # IN and EXISTS as values
    "SELECT id FROM t WHERE n = 1 OR k IN (SELECT k FROM u)",
    "SELECT id FROM t WHERE n = 1 OR NOT k IN (SELECT k FROM u)",
    "SELECT id, EXISTS (SELECT 1 FROM u WHERE u.k = t.k) AS e, k IN (SELECT u.k FROM u WHERE u.n = t.n) AS i FROM t",
    "SELECT id, k NOT IN (SELECT k FROM u GROUP BY k HAVING COUNT(*) > 1) AS e FROM t",
    "SELECT k, COUNT(*) AS c FROM t GROUP BY k HAVING k IN (SELECT k FROM u)",
    # the first rows
    "SELECT id, n FROM t ORDER BY 2 DESC, id LIMIT 2 OFFSET 1",
    "SELECT k, COUNT(*) AS c FROM s GROUP BY k ORDER BY COUNT(*) DESC FETCH FIRST ROW ONLY",
    "SELECT id, n FROM t ORDER BY n, id OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY",
    "SELECT DISTINCT k FROM s ORDER BY k LIMIT 2",
    "SELECT k FROM t UNION SELECT k FROM u ORDER BY k LIMIT 2",
    "SELECT DISTINCT ON (k) k, n FROM t ORDER BY k, n DESC LIMIT 2",
    "SELECT q.k FROM (SELECT k, n FROM t ORDER BY n LIMIT 3) AS q",
    "SELECT id, n FROM t ORDER BY n DESC FETCH FIRST 2 ROWS WITH TIES",
    "SELECT k, v FROM s ORDER BY 2 OFFSET 1 ROWS FETCH FIRST 2 ROWS WITH TIES",
    "SELECT DISTINCT k, n FROM t ORDER BY n FETCH NEXT ROW WITH TIES",
    "SELECT k, n FROM t ORDER BY ALL DESC LIMIT 2",
    # values as columns, columns as values
    "SELECT * FROM (SELECT id % 2 AS odd, k, n FROM t) PIVOT (SUM(n) FOR k IN ('a', 'b' AS other))",
    "SELECT p.odd, p.a_c, p.b_m FROM (SELECT id % 2 AS odd, k, n FROM t) AS q"
    " PIVOT (COUNT(*) AS c, MAX(n) AS m FOR k IN ('a', 'b')) AS p WHERE p.a_c > 0",
    "SELECT * FROM (SELECT id, n, id * 2 AS m FROM t) UNPIVOT (value FOR name IN (n, m AS double)) ORDER BY ALL",
    "SELECT * FROM (SELECT id, n, id * 2 AS m FROM t) UNPIVOT INCLUDE NULLS (value FOR name IN (n, m))",
    # subqueries and VALUES without a name, names after the view's, ORDER BY that says nothing, GROUP BY ALL
    "SELECT k FROM (SELECT k FROM s)",
    "SELECT * FROM (SELECT k, n FROM t), (SELECT n AS m FROM u WHERE n > 1)",
    "SELECT t.k, m FROM t JOIN (SELECT id AS i, n AS m FROM u) ON t.id = i",
    "SELECT column1 AS a FROM (VALUES (1), (2))",
    "CREATE MATERIALIZED VIEW v (a, b) AS SELECT k, COUNT(*) AS c FROM t GROUP BY k;",
    "CREATE VIEW v (a) AS SELECT k, n FROM t UNION SELECT k, n FROM u;",
    "CREATE VIEW v (a, b) AS SELECT k AS b, n AS a FROM t ORDER BY b;",
    "SELECT k, n FROM t ORDER BY n, k",
    "SELECT k, n FROM t UNION ALL SELECT k, n FROM u ORDER BY 1",
    "SELECT k, COUNT(*) AS c FROM t GROUP BY ALL ORDER BY SUM(n)",
    "SELECT k, n + 1 AS m, 7 AS z, COUNT(*) AS c FROM t GROUP BY ALL",
    "SELECT k, COUNT(*) AS c, RANK() OVER (ORDER BY SUM(n)) AS r FROM t GROUP BY ALL",
    "WITH q AS MATERIALIZED (SELECT k FROM t), r AS NOT MATERIALIZED (SELECT k FROM u)"
    " SELECT q.k FROM q JOIN r ON q.k = r.k",
    # numbers as rows
    "SELECT t.id, r.i FROM t, RANGE(t.n) AS r(i)",
    "SELECT t.id, r.i FROM t LEFT JOIN GENERATE_SERIES(t.n, 3) AS r(i) ON TRUE",
    "SELECT COUNT(*) AS c FROM RANGE(5, 1)",
    "SELECT t.k, i, i + 1 AS j FROM t, RANGE(t.n) AS r(i) GROUP BY ALL",
    "SELECT COUNT(*) AS c, SUM(a) AS d FROM (SELECT i AS a, i + 1 AS b FROM RANGE(4) AS r(i) GROUP BY ALL)",
    # a number of days out of dates that may be none
    "SELECT k, (day + v) - day AS a, day + (day - DATE '2024-01-01') AS b FROM s",
    # aggregates by the names of other dialects
    "SELECT k, COUNT_IF(n > 1) AS a, COUNTIF(n > 1) FILTER (WHERE id > 1) AS b, MEDIAN(n) AS c,"
    " QUANTILE_DISC(n, 0.3) AS d FROM t GROUP BY k",
    "SELECT k, ARG_MAX(id, n) AS a, ARG_MIN(n, id) AS b, STDDEV(n) AS c, ANY_VALUE(n) AS d FROM t GROUP BY k",
    "SELECT k, LIST(n ORDER BY n, id) AS a, LISTAGG(k, '-') WITHIN GROUP (ORDER BY id) AS b,"
    " STRING_AGG(DISTINCT k, ',' ORDER BY k DESC) AS c, ARRAY_AGG(DISTINCT n ORDER BY n) AS d,"
    " GROUP_CONCAT(k) AS e FROM t GROUP BY k",
    "SELECT n, STRING_AGG(DISTINCT k, ',' ORDER BY k DESC) AS c FROM t GROUP BY n",
    "SELECT COVAR_POP(n, id) AS a, COVAR_SAMP(n, id) AS b, CORR(n, id) AS c, REGR_COUNT(n, id) AS d,"
    " REGR_AVGX(n, id) AS e, REGR_AVGY(n, id) AS f FROM t",
    "SELECT k, REGR_SXX(n, id) AS g, REGR_SYY(n, id) AS h, REGR_SXY(n, id) AS i, REGR_SLOPE(n, id) AS j,"
    " REGR_INTERCEPT(n, id) AS l, REGR_R2(n, id) AS m FROM t GROUP BY k",
    # any and all; rows of values
    "SELECT id, n > ANY (SELECT n FROM u) AS a, n >= ALL (SELECT n FROM u WHERE n > 2) AS b,"
    " n <> ANY (SELECT n FROM u) AS c, n = ALL (SELECT n FROM u) AS d FROM t",
    "SELECT id, n > ANY (SELECT n FROM u WHERE u.k = t.k) AS a FROM t",
    "SELECT id FROM t WHERE n >= ALL (SELECT n FROM t WHERE n IS NOT NULL)",
    "SELECT id, n IN (SELECT n FROM t WHERE n > 1) AS a FROM t",
    "SELECT id FROM t WHERE (id, n) IN (SELECT id, n FROM t WHERE n > 1)",
    "SELECT id FROM t WHERE (k, n) NOT IN (SELECT k, n FROM u)",
    "SELECT id FROM t WHERE n = 1 OR (k, n) IN (SELECT k, n FROM u)",
    "SELECT id FROM t WHERE (k, n) IN (('a', 1), ('b', 2)) OR (id, n) > (2, 3)",
    "SELECT id, (id, n) <= (2, 3) AS a, (k, n) <> ('a', 2) AS b, (k, n) IS NOT DISTINCT FROM ('a', 2) AS c FROM t",
    # joins that filter, and joins by name
    "SELECT t.id FROM t SEMI JOIN u ON t.k = u.k",
    "SELECT id, n FROM t ANTI JOIN u USING (id)",
    "SELECT t.id FROM t LEFT ANTI JOIN u ON t.n < u.n WHERE t.id > 1 OR t.n = 2",
    "SELECT t.id, c.n FROM t SEMI JOIN u ON t.k = u.k JOIN c ON c.k = t.k",
    "SELECT id, k FROM t NATURAL JOIN (SELECT id FROM u)",
    "SELECT id, x FROM t NATURAL LEFT JOIN (SELECT id, n + 1 AS x FROM u) AS q",
    # conditions without FROM
    "SELECT id, id IN (SELECT id FROM t) AS a FROM t",
    "SELECT 1 AS a WHERE 1 IN (SELECT id FROM t) AND EXISTS (SELECT 1 FROM u)",
    "SELECT 1 AS a WHERE NOT EXISTS (SELECT 1 FROM u WHERE n > 3)",
    # windows with names, and what they share
    "SELECT id, SUM(n) OVER w AS a, RANK() OVER (w ORDER BY n) AS b, SUM(n) OVER (x ROWS BETWEEN 1 PRECEDING"
    " AND CURRENT ROW) AS c FROM t WINDOW w AS (PARTITION BY k), x AS (w ORDER BY id)",
    "SELECT id, PERCENT_RANK() OVER (PARTITION BY k ORDER BY n) AS a, CUME_DIST() OVER (ORDER BY n) AS b FROM t",
    # frames that reach over time, neighbours that are not NULL, different values
    "SELECT id, SUM(n) OVER (PARTITION BY k ORDER BY FROM_UNIXTIME(id * CAST(1000 AS BIGINT))"
    " RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) AS a FROM t",
    "SELECT v, COUNT(*) OVER (PARTITION BY k ORDER BY day DESC RANGE BETWEEN INTERVAL '1' DAY PRECEDING"
    " AND INTERVAL '2' DAY FOLLOWING) AS b FROM s",
    "SELECT id, LAG(n) IGNORE NULLS OVER (PARTITION BY k ORDER BY id) AS a,"
    " LEAD(n, 2, -9 IGNORE NULLS) OVER (PARTITION BY k ORDER BY id) AS b FROM t",
    "SELECT id, COUNT(DISTINCT n) OVER (PARTITION BY k) AS a, COUNT(DISTINCT n * 1e0) OVER (PARTITION BY k ORDER BY n)"
    " AS b, COUNT(DISTINCT n) FILTER (WHERE n > 1) OVER (PARTITION BY k ORDER BY id ROWS 2 PRECEDING) AS c FROM t",
    "SELECT id, BOOL_OR(n > 2) OVER (PARTITION BY k) AS a, BOOL_AND(n > 2) OVER (PARTITION BY k ORDER BY id) AS b,"
    " COUNT_IF(n > 2) OVER (PARTITION BY k) AS c FROM t",
    # names of the SELECT list in HAVING, and functions of other dialects
    "SELECT k, COUNT(*) AS c, SUM(n) AS m FROM t GROUP BY k HAVING c > 1 AND m > 2",
    "SELECT 1 AS one FROM t HAVING 1 < 2",
    "SELECT k, APPROX_COUNT_DISTINCT(n) AS a, APPROX_PERCENTILE(n, 0.5) AS b FROM t GROUP BY k",
    "CREATE LOCAL VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k;",
    "SELECT id, NTH_VALUE(id, 2) OVER (PARTITION BY k ORDER BY n) AS a, NTH_VALUE(id, 2) OVER (PARTITION BY k) AS b,"
    " NTH_VALUE(n, 1) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS c FROM t",
    # subqueries of one row at most
    "SELECT id, (SELECT n FROM u ORDER BY n DESC, id LIMIT 1) AS a FROM t",
    "SELECT id, (SELECT n FROM t UNION SELECT n FROM u ORDER BY n LIMIT 1) AS a FROM t",
    "SELECT id, (SELECT u.n FROM u WHERE u.k = t.k ORDER BY u.n DESC, u.id DESC LIMIT 1) AS a FROM t",
    "SELECT id, (SELECT n + 1 FROM u WHERE u.id = t.id) AS a, (SELECT k FROM u WHERE u.id = 2) AS b FROM t",
    "SELECT id, {'a': n, 'b': {'c': k}} AS a FROM t",
    # brackets around joins
    "SELECT t.k, u.n FROM t JOIN (u JOIN c ON u.k = c.k) ON t.id = u.id",
    "SELECT t.k, u.n FROM (t LEFT JOIN u ON t.id = u.id) JOIN c ON c.k = t.k WHERE t.n > 1",
    "SELECT t.k, u.n FROM t JOIN u JOIN c ON u.k = c.k ON t.id = u.id",
    # aggregates
    "SELECT k, BIT_AND(n) AS a, BIT_OR(n) AS b, BIT_XOR(n) AS c, MODE(n) AS e FROM t GROUP BY k",
    "SELECT n, STRING_AGG(k, ', ' ORDER BY id DESC) AS a, STRING_AGG(k, '''') AS b FROM t GROUP BY n",
    "SELECT k, ARRAY_AGG(n ORDER BY id DESC) AS a, ARRAY_AGG(id ORDER BY n, k) FILTER (WHERE n > 1) AS b"
    " FROM t GROUP BY k",
    "SELECT k, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY n) AS a,"
    " PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY id DESC) AS b, MODE() WITHIN GROUP (ORDER BY n) AS c"
    " FROM t GROUP BY k",
    "SELECT k, FIRST_VALUE(v) AS a, LAST_VALUE(v) AS b, FIRST_VALUE(v ORDER BY x DESC) AS c,"
    " LAST_VALUE(v ORDER BY x) AS e FROM s GROUP BY k",
    # lists and newest values in the order of events: rows of tables have the places of theirs, also in subqueries
    "SELECT COUNT(*) AS c, COLLECT_SET(a.n) AS d FROM t AS a CROSS JOIN UNNEST(ARRAY[3, a.id, 1]) AS w (x)"
    " LEFT JOIN u AS b ON w.x = b.id",
    "SELECT a.k, LATEST_BY_OFFSET(b.n, 2) AS d, EARLIEST_BY_OFFSET(a.n) AS e"
    " FROM t AS a CROSS JOIN UNNEST(ARRAY[3, a.id]) AS w (x) JOIN u AS b ON w.x = b.id GROUP BY a.k",
    "SELECT COLLECT_LIST(q.x) AS d FROM (SELECT a.n, x FROM t AS a CROSS JOIN UNNEST(ARRAY[3, a.id, 1]) AS w (x)) AS q"
    " RIGHT JOIN u AS b ON q.x = b.id",
    "SELECT b.k, COLLECT_LIST(q.z) AS d FROM u AS b LEFT JOIN"
    " (SELECT id, COALESCE(n, 5) AS z FROM t WHERE n <> 2) AS q ON q.id = b.id GROUP BY b.k",
    "SELECT COLLECT_LIST(q.z) AS d FROM (SELECT id, n AS z FROM t UNION ALL SELECT id, n FROM u) AS q"
    " JOIN t AS b ON q.id = b.id",
    # rows that OVER numbers have none, nor have groups: their lists are in the order of the values
    "SELECT COLLECT_LIST(q.z) AS d FROM (SELECT id, n AS z, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS r FROM t)"
    " AS q JOIN u AS b ON q.id = b.id",
    "SELECT COLLECT_LIST(q.z) AS d FROM (SELECT k, v AS z, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS r FROM s)"
    " AS q",
    "SELECT COLLECT_LIST(q.z) AS d FROM (SELECT k, COUNT(*) AS z FROM s GROUP BY k) AS q JOIN u AS b ON q.k = b.k",
    # the grouping set of a row
    "SELECT k, GROUPING(k) AS g, COUNT(*) AS c FROM t GROUP BY ROLLUP (k) ORDER BY GROUPING(k) DESC, k LIMIT 2",
    "SELECT k, v, GROUPING(k, v) AS g FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY CUBE (k, v)",
    "SELECT n + 1 AS m, GROUPING(n + 1) AS g, GROUPING((k)) AS h FROM t GROUP BY GROUPING SETS ((n + 1, k), (k))",
    "SELECT k, RANK() OVER (PARTITION BY GROUPING(k) ORDER BY SUM(n)) AS r FROM t GROUP BY ROLLUP (k)"
    " QUALIFY GROUPING(k) = 0 OR r = 1",
    # the words about NULLs, inside and after the call
    "SELECT k, ARRAY_AGG(v IGNORE NULLS ORDER BY x) AS a, FIRST_VALUE(v ORDER BY x DESC) IGNORE NULLS AS b,"
    " LAST_VALUE(v IGNORE NULLS) FILTER (WHERE x > 0) AS c, FIRST_VALUE(v) RESPECT NULLS AS e FROM s GROUP BY k",
    "SELECT id, FIRST_VALUE(n IGNORE NULLS) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"
    " AS a, LAST_VALUE(n) IGNORE NULLS OVER (PARTITION BY k ORDER BY n ROWS UNBOUNDED PRECEDING) AS b FROM t",
    # windows of time in FROM
    "SELECT k, window_start, COUNT(*) AS c FROM TUMBLE(s, ts, INTERVAL '1' HOUR) GROUP BY k, window_start",
    "SELECT w.k, w.window_start, w.window_end FROM HOP(s, ts, INTERVAL '30' MINUTE, INTERVAL '1' HOUR) AS w",
    # sets
    "SELECT k, n FROM t INTERSECT ALL SELECT k, n FROM u",
    "SELECT k, n FROM t EXCEPT ALL SELECT k, n FROM u",
    "SELECT k FROM s EXCEPT ALL SELECT k FROM u EXCEPT ALL SELECT k FROM c",
    "SELECT k FROM s UNION CORRESPONDING SELECT k, n FROM t",
    "SELECT n, k FROM c UNION ALL CORRESPONDING BY (k) SELECT k, n FROM t",
    # a pseudo column's name
    "CREATE MATERIALIZED VIEW w AS SELECT k, ROWTIME AS rowtime, v FROM s;"
    " CREATE MATERIALIZED VIEW v AS SELECT k, MAX(rowtime) AS last FROM w GROUP BY k;",
    # stars and windows
    "SELECT * EXCEPT (x) RENAME (k AS z, v AS w) FROM s",
    "SELECT k, COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY k HAVING COUNT(*) > 1",
    "CREATE TABLE v AS SELECT k, COUNT(*) AS c FROM s WINDOW SESSION (10 SECONDS) GROUP BY k EMIT FINAL;",
    # casts, parts of dates, intervals
    "SELECT v::DOUBLE AS a, CAST(v AS TEXT) AS b, d::NUMERIC(12, 3) AS e, v::SMALLINT::DOUBLE PRECISION AS f FROM s",
    "SELECT EXTRACT(YEAR FROM ts) AS y, EXTRACT(EPOCH FROM day) AS e FROM s WHERE ts > day - INTERVAL '1' MONTH",
    "SELECT ROW(v, k)->f2 AS a, MD5(k) AS b FROM s",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_view_is_its_select_after_every_epoch(duck: DuckDBPyConnection, sql: str) -> None:
    assert wrong(sql, duck, _SEED) == ""


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT id FROM t ORDER BY nope", UnknownName, "'nope'"),
        ("SELECT id FROM t UNION SELECT id FROM u ORDER BY n", UnknownName, "'n'"),
        ("SELECT 1 UNION ALL BY NAME SELECT 2", InvalidQuery, "has none"),
        ("SELECT id FROM t SEMI JOIN u ON t.id = u.id RIGHT JOIN c ON c.k = t.k", NotSupported, "RIGHT JOIN after"),
        ("SELECT id FROM t WHERE (k, n) IN (SELECT k FROM u)", InvalidQuery, "2 columns, not 1"),
        ("SELECT id FROM t WHERE (k, n) = (k, n, id)", TypeMismatch, "rows of 2 and 3"),
        ("SELECT SUM(n) OVER w AS a FROM t", InvalidQuery, "no window 'w'"),
        ("SELECT SUM(n) OVER (w ORDER BY id) AS a FROM t WINDOW w AS (ORDER BY n)", InvalidQuery, "ORDER already"),
        ("SELECT CAST('2024-01-01' AS DATE) - INTERVAL '-2147483648 days' AS a", InvalidQuery, "longer than all years"),
        ("SELECT CAST('0.1' AS DECIMAL('x')) AS a", TypeMismatch, "not a type"),
        ("SELECT id FROM t ORDER BY 3 LIMIT 1", InvalidQuery, "1 items"),
        ("CREATE TABLE v AS SELECT id, n FROM t ORDER BY n LIMIT 1;", NotSupported, "LIMIT|ORDER BY"),
        ("SELECT t.k FROM t LEFT JOIN (u JOIN c ON u.k = c.k) USING (id)", NotSupported, "in brackets"),
        ("SELECT t.k FROM t, u FULL JOIN c ON t.k = c.k", UnknownName, "'t'"),
        ("SELECT * FROM TUMBLE(s, ts, INTERVAL '1' MONTH)", InvalidQuery, "without months"),
        ("SELECT * FROM HOP(s, ts, INTERVAL '7' MINUTE, INTERVAL '1' HOUR)", InvalidQuery, "multiple of the step"),
        ("SELECT v + INTERVAL '1' DAY AS a FROM s", TypeMismatch, "not INT"),
        ("SELECT SUM(v ORDER BY x) AS a FROM s", InvalidQuery, "takes no ORDER BY"),
        ("SELECT ARRAY_AGG(v ORDER BY k, k || 'x' DESC) AS a FROM s", NotSupported, "both directions"),
        ("SELECT ARRAY_AGG(DISTINCT v ORDER BY x) AS a FROM s", TypeMismatch, "ordered by the value itself"),
        ("SELECT ARRAY_AGG(DISTINCT v IGNORE NULLS) AS a FROM s", InvalidQuery, "do not belong here|one value"),
        ("SELECT SUM(v IGNORE NULLS) AS a FROM s", InvalidQuery, "do not belong here"),
        ("SELECT SUM(v) IGNORE NULLS OVER (ORDER BY x) AS a FROM s", InvalidQuery, "do not belong here"),
        ("SELECT ABS(v IGNORE NULLS) AS a FROM s", InvalidQuery, "do not belong here"),
        ("SELECT PERCENTILE_CONT(0.5) AS a FROM s", TypeMismatch, "WITHIN GROUP"),
        ("SELECT PERCENTILE_DISC(2) WITHIN GROUP (ORDER BY v) AS a FROM s", TypeMismatch, "from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(sql: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message):
        defined(sql)


def columns_of(sql: str) -> list[str]:
    found = defined(sql).get("v")
    return [f"{column.name}{'!' if column.key else ''}" for column in found.columns]  # type: ignore[union-attr]


def test_a_view_of_windows_shows_them_after_its_key() -> None:
    window = "WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY k"
    assert columns_of(f"SELECT COUNT(*) AS c, k FROM s {window}") == ["c", "k!", "windowstart", "windowend"]
    assert columns_of(f"SELECT k, windowend AS e FROM s {window}") == ["k!", "windowstart", "e"]
    assert columns_of(f"SELECT DISTINCT k FROM s {window}") == ["k"]


def test_corresponding_keeps_the_columns_that_all_branches_have() -> None:
    assert columns_of("SELECT k, v FROM s UNION CORRESPONDING SELECT id, k FROM t") == ["k"]
