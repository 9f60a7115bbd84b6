"""Views against plain tables that are kept by hand: the same question, asked of both after each epoch.

The other property tests take the expected rows from our own recompute texts; what those share with the rules, such as a
rewriting of the query, only this one sees.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from strandline.jobs.model.definitions import View
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.examples import examples, seed_of
from tests.support.memory_catalog import MemoryCatalog
from tests.support.plain_tables import SOURCES, PlainTables, told_apart

_EPOCHS = 4
_MOST_EVENTS = 8

_HOUR = "time_bucket(INTERVAL '1 hour', ts, TIMESTAMPTZ '2000-01-01')"
_HALF = "time_bucket(INTERVAL '30 minutes', ts, TIMESTAMPTZ '2000-01-01')"
_SESSIONS = """
WITH y AS (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= INTERVAL '1 hour' THEN 0 ELSE 1 END n
           FROM t WHERE ts IS NOT NULL),
     z AS (SELECT *, sum(n) OVER (PARTITION BY k ORDER BY ts) AS m FROM y)
SELECT id, date_trunc('ms', min(ts) OVER (PARTITION BY k, m)),
       date_trunc('ms', max(ts) OVER (PARTITION BY k, m)) + INTERVAL '1 hour' FROM z
"""

Case = tuple[str, str | None]
"""A SELECT in our language, and DuckDB's words for it where they are others."""

JOINS: tuple[Case, ...] = (
    ("SELECT t.id AS a, u.id AS z FROM t FULL JOIN u ON t.k = u.k AND t.v > 0", None),
    ("SELECT t.id AS a, u.id AS z FROM t FULL JOIN u ON t.k = u.k AND u.v > 0 AND t.b", None),
    ("SELECT t.id AS a, u.id AS z FROM t LEFT JOIN u ON t.k IS NOT DISTINCT FROM u.k AND t.v < u.v", None),
    ("SELECT t.id AS a, u.id AS z FROM t FULL JOIN u ON t.x = u.x", None),
    ("SELECT t.id AS a, u.id AS z FROM t LEFT JOIN u ON t.w = u.w", None),
    ("SELECT t.id AS a, u.id AS z FROM t FULL JOIN u ON FALSE", None),
    ("SELECT t.id AS a, u.id AS z FROM t FULL JOIN u ON t.k = u.k OR t.v = u.v", None),
    ("SELECT p.id AS a, q.id AS z FROM t p FULL JOIN t q ON p.v = q.id AND p.b", None),
    (
        "SELECT t.id AS a, u.id AS z, n.v FROM t FULL JOIN u ON t.k = u.k FULL JOIN n ON COALESCE(t.k, u.k) = n.k",
        None,
    ),
    ("SELECT s.sid, u.id AS z FROM s FULL JOIN u ON s.k = u.k AND s.v <= u.v", None),
    ("SELECT t.k, COUNT(DISTINCT u.v) AS c, MIN(u.v) AS m FROM t LEFT JOIN u ON t.v = u.v GROUP BY t.k", None),
)

SUBQUERIES: tuple[Case, ...] = (
    ("SELECT id FROM t WHERE v NOT IN (SELECT v FROM u)", None),
    (
        "SELECT id, v > ANY (ARRAY[id, 1]) AS a, v <> ALL (ARRAY[id, NULL]) AS b, k < SOME (ARRAY['b', k]) AS c FROM t",
        "SELECT id, v > id OR v > 1 AS a, v <> id AND v <> NULL AS b, k < 'b' OR k < k AS c FROM t",
    ),
    ("SELECT id, v NOT IN (SELECT v FROM u WHERE u.k = t.k) AS i FROM t", None),
    ("SELECT id FROM t WHERE v NOT IN (SELECT MAX(v) FROM u GROUP BY k)", None),
    ("SELECT id FROM t WHERE (k IN (SELECT k FROM u)) IS NULL", None),
    ("SELECT id FROM t WHERE x NOT IN (SELECT x FROM u WHERE x IS NOT NULL)", None),
    ("SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.v = t.v AND u.k <> t.k)", None),
    ("SELECT k, SUM(v) AS a FROM t GROUP BY k HAVING k NOT IN (SELECT k FROM u)", None),
    ("SELECT id, (SELECT COUNT(*) FROM u WHERE u.k = t.k AND u.v = t.v) + 1 AS h FROM t", None),
    ("SELECT id FROM t WHERE v = ANY (SELECT v FROM u)", None),
    ("SELECT id FROM t WHERE v <> ALL (SELECT v FROM u)", None),
    ("SELECT t.id AS a, u.id AS z FROM t JOIN u ON t.k = u.k AND u.v IN (SELECT v FROM n)", None),
    (
        "SELECT t.id AS a, u.id AS z FROM t JOIN u ON t.k = u.k AND EXISTS (SELECT 1 FROM n WHERE n.k = u.k AND n.v >"
        " t.v) LEFT JOIN n ON n.v = t.v",
        None,
    ),
    ("SELECT t.id AS a, u.id AS z FROM t LEFT JOIN n ON n.v = t.v JOIN u ON u.v = (SELECT MAX(v) FROM n)", None),
    ("SELECT id FROM t WHERE v <> ALL ((SELECT v FROM u WHERE v IS NOT NULL))", None),
    ("SELECT id FROM t WHERE v = ANY (ARRAY[1, 2]) OR NOT v = SOME (ARRAY[1])", "SELECT id FROM t WHERE v IS NOT NULL"),
)

GROUPS: tuple[Case, ...] = (
    (
        "SELECT k, MAX(b) AS x, MIN(b) AS n, HISTOGRAM(v) AS h, HISTOGRAM(b) AS i, COUNT(DISTINCT (k, v)) AS d FROM t"
        " GROUP BY k",
        "SELECT k, MAX(b), MIN(b), COALESCE(HISTOGRAM(v), MAP {}), COALESCE(HISTOGRAM(b), MAP {}), COUNT(DISTINCT"
        " (k, v)) FROM t GROUP BY k",
    ),
    (
        "SELECT k, ARRAY_AGG(id ORDER BY v DESC, k, id) AS a, ARRAY_AGG(id ORDER BY k, x DESC NULLS LAST, id) AS c,"
        " ARRAY_AGG(id ORDER BY d NULLS LAST, id DESC) AS e, STRING_AGG(k, '|' ORDER BY b DESC NULLS FIRST, id) AS g,"
        " LAST_VALUE(id ORDER BY dt DESC, ts, id DESC) AS l FROM t GROUP BY k",
        "SELECT k, ARRAY_AGG(id ORDER BY v DESC NULLS LAST, k NULLS FIRST, id), ARRAY_AGG(id ORDER BY x DESC NULLS"
        " LAST, id), ARRAY_AGG(id ORDER BY d NULLS LAST, id DESC), STRING_AGG(k, '|' ORDER BY b DESC NULLS FIRST, id),"
        " LAST(id ORDER BY dt DESC NULLS LAST, ts NULLS FIRST, id DESC) FROM t GROUP BY k",
    ),
    ("SELECT k AS a, v AS c, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((a, c), (c))", None),
    (
        "SELECT k, BOOL_AND(b) AS a, COUNT(*) AS n FROM t GROUP BY k ORDER BY k NULLS FIRST LIMIT 1 + 1",
        "SELECT k, BOOL_AND(b), COUNT(*) FROM t GROUP BY k ORDER BY k NULLS FIRST LIMIT 2",
    ),
    ("SELECT t.st.a AS x, SUM(st.a) AS s, COUNT(*) AS n FROM t WHERE st['a'] IS NOT NULL GROUP BY t.st.a", None),
    ("SELECT id, arr && [1, 2] AS o FROM t WHERE arr IS NOT NULL", None),
    ("SELECT b, SUM(x) AS a, AVG(x) AS g, MIN(x) AS i, MAX(x) AS m FROM t GROUP BY b", None),
    ("SELECT x, COUNT(*) AS c FROM t GROUP BY x", None),
    ("SELECT k, ANY_VALUE(v ORDER BY id DESC) AS a FROM t GROUP BY k", None),
    ("SELECT st, arr, COUNT(*) AS c FROM t GROUP BY st, arr", None),
    ("SELECT k, b, COUNT(*) AS c, GROUPING(k, b) AS g FROM t GROUP BY CUBE (k, b) HAVING COUNT(*) > 1", None),
    ("SELECT COUNT(DISTINCT x) AS c, COUNT(DISTINCT ts) AS a, SUM(DISTINCT d) AS m FROM t", None),
    ("SELECT k AS name, COUNT(*) AS c FROM t GROUP BY name", None),
    ("SELECT v + 1 AS a, COUNT(*) AS c FROM t GROUP BY 1", None),
    ("SELECT v + 1 AS v, COUNT(*) AS c FROM t GROUP BY v", None),
    ("SELECT UPPER(k) AS a, b, COUNT(*) AS c FROM t GROUP BY ROLLUP (1, 2)", None),
    (
        "SELECT EXTRACT(EPOCH FROM ts) AS a, COUNT(*) AS c FROM t GROUP BY EXTRACT(EPOCH FROM ts)",
        "SELECT floor(epoch(ts))::BIGINT, COUNT(*) FROM t GROUP BY ALL",
    ),
)

SETS: tuple[Case, ...] = (
    ("(SELECT k FROM t) UNION (SELECT k FROM u)", None),
    ("(SELECT v FROM t UNION ALL SELECT v FROM u) EXCEPT ALL SELECT v FROM n", None),
    ("SELECT v FROM t EXCEPT ALL (SELECT v FROM u UNION ALL SELECT v FROM n)", None),
    ("((SELECT k FROM t) UNION (SELECT k FROM u)) INTERSECT (SELECT k FROM n)", None),
    ("(SELECT v FROM t) UNION ALL (SELECT v FROM u) ORDER BY v LIMIT 2", None),
    ("(SELECT v FROM t ORDER BY v LIMIT 1) UNION ALL (SELECT v FROM u ORDER BY v DESC LIMIT 1)", None),
    ("SELECT x FROM t INTERSECT ALL SELECT x FROM u", None),
    ("SELECT v FROM t UNION ALL SELECT v FROM u INTERSECT SELECT v FROM n", None),
)

WINDOWS: tuple[Case, ...] = (
    (
        "SELECT id, ROW_NUMBER() OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n, RANK() OVER (ORDER"
        " BY v RANGE UNBOUNDED PRECEDING) AS r, LAG(id) OVER (ORDER BY id GROUPS 1 PRECEDING) AS l FROM t",
        None,
    ),
    (
        "SELECT id, RANK() OVER (PARTITION BY k) AS r, DENSE_RANK() OVER () AS d, PERCENT_RANK() OVER (PARTITION BY b)"
        " AS p, CUME_DIST() OVER () AS c FROM t",
        None,
    ),
    ("SELECT id, RANK() OVER (PARTITION BY b ORDER BY x) AS r, NTILE(2) OVER (ORDER BY v DESC, id) AS n FROM t", None),
    ("SELECT id, SUM(v) OVER (PARTITION BY b ORDER BY v RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS r FROM t", None),
    ("SELECT id, COUNT(v) FILTER (WHERE v > 1) OVER (PARTITION BY k) AS r FROM t", None),
    ("SELECT id, SUM(d) FILTER (WHERE b) OVER (PARTITION BY k ORDER BY id) AS r FROM t", None),
    ("SELECT id, COUNT(*) FILTER (WHERE b) OVER () AS r FROM t", None),
    ("SELECT id, MAX(k) FILTER (WHERE v > 1) OVER (PARTITION BY b) AS m FROM t", None),
    ("SELECT DISTINCT ON (k) k, id, v FROM t ORDER BY k, v, id", None),
    ("SELECT id, MEDIAN(v) OVER (PARTITION BY k) AS m, SUM(DISTINCT v) OVER (PARTITION BY k) AS s FROM t", None),
    (
        "SELECT id, SUM(v) OVER (PARTITION BY b ORDER BY k GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS g, COUNT(*)"
        " OVER (ORDER BY v DESC GROUPS UNBOUNDED PRECEDING) AS c, MEDIAN(w) OVER (PARTITION BY k ORDER BY v GROUPS"
        " BETWEEN CURRENT ROW AND 2 FOLLOWING EXCLUDE NO OTHERS) AS m FROM t",
        None,
    ),
    (
        "SELECT id, SUM(v) OVER (ORDER BY k, id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW) AS a,"
        " COUNT(*) OVER (PARTITION BY b ORDER BY v RANGE BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS c,"
        " MAX(d) OVER (ORDER BY v GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) AS g, ARRAY_AGG(id ORDER BY"
        " id) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES)"
        " AS l, LAST_VALUE(id) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE"
        " CURRENT ROW) AS z FROM t",
        None,
    ),
    (
        "SELECT id, ARRAY_AGG(id ORDER BY id) OVER (ORDER BY id ROWS BETWEEN ABS(v) PRECEDING AND id FOLLOWING) AS a,"
        " SUM(id) OVER (PARTITION BY b ORDER BY id ROWS BETWEEN id FOLLOWING AND ABS(v) FOLLOWING) AS s, COUNT(k) OVER"
        " (ORDER BY v GROUPS BETWEEN ABS(v) PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS g, MIN(id) OVER (ORDER BY"
        " k DESC, id ROWS ABS(v) PRECEDING) AS l, MEDIAN(id) OVER (PARTITION BY b ORDER BY d DESC RANGE BETWEEN"
        " ABS(v) PRECEDING AND CURRENT ROW) AS m, SUM(id) OVER (ORDER BY d NULLS LAST RANGE BETWEEN UNBOUNDED PRECEDING"
        " AND ABS(d) FOLLOWING) AS p FROM t WHERE v IS NOT NULL AND d IS NOT NULL",
        None,
    ),
    (
        "SELECT id, SUM(id) OVER (ORDER BY v NULLS LAST RANGE BETWEEN id PRECEDING AND 1 + id FOLLOWING) AS p, COUNT(*)"
        " OVER (PARTITION BY b ORDER BY v DESC NULLS FIRST RANGE BETWEEN id FOLLOWING AND UNBOUNDED FOLLOWING) AS c"
        " FROM t",
        None,
    ),
    (
        "SELECT id, STRING_AGG(k, '|') OVER (PARTITION BY b ORDER BY id) AS g, ARRAY_AGG(v) OVER (ORDER BY id ROWS"
        " BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS l FROM t",
        None,
    ),
    (
        "SELECT id, MEDIAN(v) FILTER (WHERE b) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS m FROM t",
        None,
    ),
    (
        "SELECT id, LAST_VALUE(v IGNORE NULLS) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) AS m"
        " FROM t",
        None,
    ),
    (
        "SELECT id, FIRST_VALUE(k) OVER (PARTITION BY b ORDER BY id RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m"
        " FROM t",
        None,
    ),
    (
        "SELECT id, window_start AS a FROM TUMBLE(t, ts, INTERVAL '1' HOUR)",
        f"SELECT id, {_HOUR} FROM t WHERE ts IS NOT NULL",
    ),
    (
        "SELECT id, window_start AS a, window_end AS z FROM HOP(t, ts, INTERVAL '30' MINUTE, INTERVAL '1' HOUR)",
        f"SELECT id, w, w + INTERVAL '1 hour' FROM (SELECT id, unnest([{_HALF}, {_HALF} - INTERVAL '30 minutes']) AS w"
        " FROM t WHERE ts IS NOT NULL)",
    ),
    ("SELECT id, window_start AS a, window_end AS z FROM SESSION(t, ts, INTERVAL '1' HOUR, k)", _SESSIONS),
)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("part", range(examples(1)))
@pytest.mark.parametrize(
    "cases", [JOINS, SUBQUERIES, GROUPS, SETS, WINDOWS], ids=["joins", "subqueries", "groups", "sets", "windows"]
)
def test_views_are_what_plain_tables_say(cases: tuple[Case, ...], part: int, db: duckdb.DuckDBPyConnection) -> None:
    seed = seed_of(part)
    catalog = MemoryCatalog()
    run(SOURCES, catalog)
    plain = PlainTables(seed)
    asked = {f"v{number}": duck or ours for number, (ours, duck) in enumerate(cases)}
    for name, (ours, _) in zip(asked, cases, strict=True):
        run(f"CREATE MATERIALIZED VIEW {name} AS {ours};", catalog)
    lake = DuckLake(catalog, catalog.definitions(), db)
    seen = dict.fromkeys(asked, 0)
    try:
        for epoch, events in enumerate(plain.epochs(_EPOCHS, _MOST_EVENTS)):
            for log, rows in events.items():
                lake.feed(log, rows)
            lake.refresh()
            for name, sql in asked.items():
                view = catalog.get(name)
                assert isinstance(view, View)
                actual = told_apart([row[column.name] for column in view.columns] for row in lake.rows(name))
                expected = plain.rows(sql)
                assert actual == expected, f"STRANDLINE_SEED={seed}, epoch {epoch}: {view.query}"
                seen[name] += expected.total()
    finally:
        lake.close()
        plain.close()
    assert sum(map(bool, seen.values())) > len(seen) // 2, f"too few rows to tell: {seen}"
