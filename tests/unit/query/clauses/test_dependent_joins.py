"""Subqueries computed for each value that they read: as views, against DuckDB's own answer to the same text."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.memory_catalog import MemoryCatalog
from tests.support.rule_harness import multiset

SOURCES = """
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, a INT);
CREATE TABLE u (uid INT PRIMARY KEY, k VARCHAR, w INT);
"""
_EPOCHS = 4
QUERIES = (
    # a subquery that stands for a value, without an equality
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.w < t.a) AS n FROM t",
    "SELECT id, (SELECT MAX(u.w) + 1 FROM u WHERE u.k = t.k AND u.w <> t.a) AS n FROM t",
    "SELECT id, (SELECT SUM(w) FROM u WHERE u.w BETWEEN t.a AND t.a + 2) AS n FROM t",
    "SELECT id FROM t WHERE a > (SELECT MIN(w) FROM u WHERE u.k > t.k)",
    "SELECT id, (SELECT w FROM u WHERE u.k = t.k AND u.w < t.a ORDER BY w DESC LIMIT 1) AS n FROM t",
    # LATERAL
    "SELECT t.id, l.w FROM t, LATERAL (SELECT u.w FROM u WHERE u.k = t.k) AS l",
    "SELECT t.id, l.uid FROM t, LATERAL (SELECT uid FROM u WHERE u.k = t.k ORDER BY w DESC, uid LIMIT 2) AS l",
    "SELECT t.id, l.uid FROM t LEFT JOIN LATERAL (SELECT uid FROM u WHERE u.k = t.k ORDER BY w, uid LIMIT 1) AS l"
    " ON TRUE",
    "SELECT t.id, l.uid FROM t LEFT JOIN LATERAL (SELECT uid, w FROM u WHERE u.k = t.k) AS l ON l.w > 2",
    "SELECT t.id, l.x FROM t CROSS JOIN LATERAL (SELECT u.w + t.a AS x FROM u WHERE u.w > t.a) AS l",
    "SELECT t.id, l.x, l.y FROM t, LATERAL (SELECT t.a * 2 AS x, t.k AS y) AS l",
    "SELECT t.id, l.n, l.m FROM t, LATERAL (SELECT COUNT(*) AS n, MAX(w) AS m FROM u WHERE u.k = t.k AND w < t.a) AS l",
    "SELECT t.id, l.w, l.n FROM t, LATERAL (SELECT w, COUNT(*) AS n FROM u WHERE u.k = t.k GROUP BY w) AS l",
    "SELECT t.id, l.w FROM t, LATERAL (SELECT DISTINCT w FROM u WHERE u.k = t.k) AS l",
    "SELECT t.id, l.p FROM t, LATERAL (SELECT RANK() OVER (ORDER BY w) AS p FROM u WHERE u.k = t.k) AS l",
    "SELECT t.id, l.a, m.b FROM t, LATERAL (SELECT w FROM u WHERE u.k = t.k) AS l (a), LATERAL (SELECT COUNT(*) FROM u"
    " WHERE u.w > l.a AND u.w > t.a) AS m (b)",
    "SELECT t.id, z.uid, l.w FROM t JOIN u AS z ON t.k = z.k LEFT JOIN LATERAL (SELECT MAX(w) AS w FROM u"
    " WHERE u.w < z.w AND u.w > t.a) AS l ON TRUE",
    "SELECT t.id, COUNT(*) AS n FROM t, LATERAL (SELECT w FROM u WHERE u.w >= t.a) AS l GROUP BY t.id",
    "SELECT * FROM t, LATERAL (SELECT w FROM u WHERE u.k = t.k) AS l",
    "SELECT t.id, l.i, l.w FROM t LEFT JOIN LATERAL (SELECT x.id AS i, u.w FROM t AS x LEFT JOIN u ON u.k = t.k"
    " AND u.w > x.a WHERE x.k = t.k) AS l ON TRUE",
    "SELECT t.id, l.n FROM t, LATERAL (SELECT COUNT(*) AS n FROM u WHERE COALESCE(u.w < t.a, TRUE)) AS l",
    # values for which NULL finds something, too
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.w IS DISTINCT FROM t.a) AS n FROM t",
    "SELECT id, (SELECT MAX(w) FROM u WHERE u.k IS NOT DISTINCT FROM t.k) AS n FROM t",
    # of rows that an outer join pads
    "SELECT t.id, z.uid, l.n FROM t LEFT JOIN u AS z ON z.w = t.a, LATERAL (SELECT COUNT(*) AS n FROM u"
    " WHERE u.k = z.k) AS l",
    "SELECT t.id FROM t LEFT JOIN u AS z ON z.w = t.a WHERE NOT EXISTS (SELECT 1 FROM u LEFT JOIN t AS y ON y.id = z.w"
    " WHERE u.w = 2)",
    "SELECT t.id, (SELECT COUNT(*) FROM u WHERE u.k IS DISTINCT FROM z.k) AS n FROM t FULL JOIN u AS z ON z.w = t.a",
    # two levels up
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.w = t.a AND EXISTS (SELECT 1 FROM u AS z WHERE z.k = t.k"
    " AND z.uid <> u.uid))",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE NOT EXISTS (SELECT 1 FROM u AS z WHERE z.k = t.k"
    " AND z.w = u.w))",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.w > (SELECT MIN(z.w) FROM u AS z WHERE z.k = t.k"
    " AND z.uid < u.uid))",
    "SELECT id FROM t WHERE t.a IN (SELECT u.w FROM u WHERE u.k NOT IN (SELECT z.k FROM u AS z WHERE z.w > t.a))",
    "SELECT id, (SELECT MAX(w) FROM u WHERE u.k = t.k AND u.w IN (SELECT z.w FROM u AS z WHERE z.w <> t.a)) AS n"
    " FROM t",
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.w IN (SELECT z.w FROM u AS z WHERE z.uid = t.a)) AS n FROM t",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM u AS y WHERE y.w = u.w AND EXISTS"
    " (SELECT 1 FROM u AS z WHERE z.k = t.k AND z.uid >= y.uid)))",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND t.a IN (SELECT z.w FROM u AS z))",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND t.a <> ALL (SELECT z.w FROM u AS z"
    " WHERE z.uid > u.uid))",
    # rows of values, and all columns
    "SELECT id, (COALESCE(a, 0), COALESCE(k, '')) < ANY (SELECT COALESCE(w, 0), COALESCE(k, '') FROM u) AS x FROM t",
    "SELECT id, (COALESCE(a, 0), id) >= ALL (SELECT COALESCE(w, 0), uid FROM u) AS y FROM t",
    "SELECT id FROM t WHERE (a, id) <> ANY (SELECT w, uid FROM u) OR (a, id) < ALL (SELECT w, uid FROM u)",
    "SELECT id, a > ANY (SELECT * FROM (SELECT w FROM u) AS q) AS x, a IN (SELECT * FROM (SELECT w FROM u) AS q) AS y"
    " FROM t",
    # queries in FROM of a subquery
    "SELECT id FROM t WHERE a IN (SELECT w FROM (SELECT w FROM u WHERE u.k = t.k) AS q)",
    "SELECT id, (SELECT MAX(w) FROM (SELECT w FROM u WHERE u.k = t.k AND u.w < t.a) AS q) AS n FROM t",
    "SELECT id, (SELECT MAX(n) FROM (SELECT k, COUNT(*) AS n FROM u WHERE u.w = t.a GROUP BY k) AS q) AS n FROM t",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT DISTINCT w FROM u WHERE u.k = t.k) AS q JOIN u AS z"
    " ON z.w > q.w)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u AS z LEFT JOIN (SELECT w FROM u WHERE u.k = t.k) AS q"
    " ON q.w = z.w WHERE q.w IS NULL)",
    "SELECT id FROM t WHERE t.a < (SELECT COUNT(*) FROM (SELECT w FROM u WHERE k = t.k ORDER BY w, uid LIMIT 2) AS q)",
    "SELECT t.id, l.n FROM t, LATERAL (SELECT COUNT(*) AS n FROM (SELECT w FROM u WHERE u.w <> t.a) AS q) AS l",
    # grouped queries after IN and EXISTS
    "SELECT id FROM t WHERE a NOT IN (SELECT COUNT(*) FROM u WHERE u.k = t.k GROUP BY w)",
    "SELECT id FROM t WHERE a NOT IN (SELECT MAX(w) FROM u WHERE u.k = t.k)",
    "SELECT id FROM t WHERE EXISTS (SELECT MAX(w) FROM u WHERE u.k = t.k)",
    "SELECT id FROM t WHERE EXISTS (SELECT w FROM u WHERE u.k = t.k GROUP BY w HAVING COUNT(*) > 1)",
    "SELECT id FROM t WHERE a IN (SELECT w + t.a - t.a FROM u WHERE u.k = t.k)",
    # ON of outer joins
    "SELECT t.id, u.uid FROM t LEFT JOIN u ON t.k = u.k AND t.a IN (SELECT w FROM u)",
    "SELECT t.id, u.uid FROM t LEFT JOIN u ON t.k = u.k AND t.a NOT IN (SELECT w FROM u AS z WHERE z.k = t.k)",
    "SELECT t.id, u.uid FROM t LEFT JOIN u ON t.k = u.k AND u.w > (SELECT MIN(a) FROM t)",
    "SELECT t.id, u.uid FROM t FULL JOIN u ON t.k = u.k AND EXISTS (SELECT 1 FROM t AS z WHERE z.a = u.w)",
    "SELECT t.id, u.uid FROM t RIGHT JOIN u ON t.k = u.k AND u.w IN (SELECT a FROM t) AND NOT (t.a = (SELECT MAX(w)"
    " FROM u AS z WHERE z.k = t.k))",
    "SELECT t.id, u.uid, z.id AS zid FROM t JOIN u ON t.k = u.k AND u.w IN (SELECT a FROM t) FULL JOIN t AS z"
    " ON z.a = u.w AND z.a > ALL (SELECT uid - 5 FROM u AS y WHERE y.k = z.k)",
    "SELECT t.k, COUNT(u.uid) AS n, COUNT(*) AS m FROM t LEFT JOIN u ON t.k = u.k AND (t.a IN (SELECT w FROM u) OR"
    " u.w IS NULL) GROUP BY t.k",
)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        yield connection


@pytest.mark.parametrize("query", QUERIES)
def test_a_view_is_what_duckdb_answers(query: str, db: duckdb.DuckDBPyConnection) -> None:
    catalog = MemoryCatalog()
    run(f"{SOURCES} CREATE MATERIALIZED VIEW v AS {query};", catalog)
    view = catalog.get("v")
    assert isinstance(view, View)
    names = [each.name for each in view.columns]
    lake, pick, offset, most = DuckLake(catalog, catalog.definitions(), db), random.Random(7), 0, 0
    try:
        for _ in range(_EPOCHS):
            for name in ("t", "u"):
                source = catalog.get(name)
                assert isinstance(source, Source)
                columns = [each.name for each in source.columns]
                rows = []
                for _ in range(pick.randint(2, 6)):
                    values = (pick.randint(1, 9), pick.choice([None, "a", "b"]), pick.choice([None, 0, 1, 2, 3, 4]))
                    gone = {"_tombstone": True} if pick.random() < 0.25 else {}
                    place = {"_partition": 0, "_offset": offset, "_stream_time": None, "_timestamp": None}
                    rows.append({**dict(zip(columns, values, strict=True)), **place, **gone})
                    offset += 1
                lake.feed(f"{name}__log", rows)
            lake.refresh()
            assert lake.wrong("v") == ""
            tables = ", ".join(f"{name} AS ({lake.visible_sql(name)})" for name in ("t", "u"))
            expected = multiset(db.execute(f"WITH {tables} {query}").fetchall())
            assert multiset([row[name] for name in names] for row in lake.rows("v")) == expected
            most = max(most, len(expected))
        assert most > 0
    finally:
        lake.close()


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (
            "SELECT t.id FROM t, LATERAL (SELECT x.id FROM t AS x FULL JOIN u ON u.k = x.k AND u.w = t.a) AS l",
            NotSupported,
            "ON of a RIGHT or FULL JOIN",
        ),
        (
            "SELECT l.w FROM t RIGHT JOIN LATERAL (SELECT w FROM u WHERE u.k = t.k) AS l ON TRUE",
            NotSupported,
            "LATERAL",
        ),
        ("SELECT 1 AS x FROM t, LATERAL (SELECT w FROM u)", InvalidQuery, "needs a name"),
        ("SELECT id, a > ANY (SELECT * FROM u) AS x FROM t", InvalidQuery, "1 value is compared with the 3 columns"),
        ("SELECT l.a FROM t, LATERAL (SELECT w FROM u) AS l (a, b)", InvalidQuery, "2 names"),
        (
            "SELECT t.id FROM t LEFT JOIN u ON t.k = u.k AND EXISTS (SELECT 1 FROM u z WHERE z.k = t.k AND z.w = u.w)",
            NotSupported,
            "reads one of its sides",
        ),
        (
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u RIGHT JOIN (SELECT w FROM u WHERE k = t.k) q ON q.w = u.w)",
            NotSupported,
            "stands in no RIGHT or FULL JOIN",
        ),
    ],
)
def test_what_cannot_be_computed_for_each_value(query: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message):
        run(f"{SOURCES} CREATE MATERIALIZED VIEW v AS {query};", MemoryCatalog())
