"""A name of the SELECT list stands for its item in those that follow, unless an input has a column of that name."""

from __future__ import annotations

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import NotSupported, UnknownName
from tests.support.catalog_from_sql import run
from tests.support.checked_views import defined, unlike_text

QUERIES = [
    "SELECT id, n + 1 AS b, b * 2 AS c, c + b AS d FROM t",
    "SELECT k AS kk, COUNT(*) AS cnt, cnt + 1 AS m, SUM(n) AS s, s * cnt AS p, UPPER(kk) AS w FROM t GROUP BY k",
    "SELECT k, n % 2 AS r, COUNT(*) AS cnt, RANK() OVER (PARTITION BY r ORDER BY cnt) AS place FROM t GROUP BY k, r",
    "SELECT id, n + 1 AS b, SUM(b) OVER (PARTITION BY k) AS w, w - b AS z FROM t",
    "SELECT k, SUM(n) + 1 AS s, s - 1 - s AS d FROM t GROUP BY k HAVING s * 2 > 4",
    "SELECT id, k AS n, n + 1 AS b FROM t",  # the column counts
    "SELECT *, n * 2 AS d, d + 1 AS e FROM t",
    "SELECT t.id, u.n AS x, x + t.n AS y FROM t JOIN u ON t.id = u.id WHERE u.n > 0",
    "SELECT DISTINCT k AS a, a || 'x' AS b FROM t",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS r, r + 1 AS q FROM t QUALIFY q < 4",
    "SELECT id, n * 2 AS b, b + 1 AS c FROM t WHERE c > 3 AND b < 9",
    "SELECT t.id, u.n - t.n AS d FROM t LEFT JOIN u ON t.k = u.k WHERE d * 2 > 0 OR d IS NULL",
    "SELECT k AS kk, COUNT(*) AS c FROM t WHERE kk <> 'a' GROUP BY kk",
    "SELECT a, b FROM (SELECT n AS a, a + 1 AS b FROM t UNION ALL SELECT n AS c, c + 2 FROM u) AS v",
]


@pytest.mark.parametrize("select", QUERIES)
def test_the_view_has_the_rows_of_its_text(select: str, duck: duckdb.DuckDBPyConnection) -> None:
    assert unlike_text(select, duck) == ""


@pytest.mark.parametrize(
    ("select", "meant"),
    [
        (
            "SELECT n + 1 AS b, SUM(b) AS q, COUNT(DISTINCT b * 2) AS e, q + e AS f FROM t GROUP BY b HAVING f > 2",
            "SELECT n + 1 AS b, SUM(n + 1) AS q, COUNT(DISTINCT (n + 1) * 2) AS e, SUM(n + 1) + COUNT(DISTINCT n) AS f"
            " FROM t GROUP BY n + 1 HAVING SUM(n + 1) + COUNT(DISTINCT n) > 2",
        ),
        (
            "SELECT id, (SELECT MAX(u.n) FROM u WHERE u.k = t.k) AS m, m - n AS diff FROM t",
            "SELECT id, m, m - n AS diff FROM (SELECT *, (SELECT MAX(u.n) FROM u WHERE u.k = t.k) AS m FROM t) AS a",
        ),
    ],
)
def test_so_it_does_where_duckdb_does_not_know_it(select: str, meant: str, duck: duckdb.DuckDBPyConnection) -> None:
    assert unlike_text(select, duck, meant=meant) == ""


def test_a_variable_of_a_lambda_function_hides_it() -> None:
    texts = ["k AS x, TRANSFORM(tags, y => y + 1) AS z", "k AS x, TRANSFORM(tags, x => x + 1) AS z"]
    views = [defined(f"SELECT {each} FROM s").get("v") for each in texts]
    assert [isinstance(each, View) and [str(column.type) for column in each.columns] for each in views] == [
        ["VARCHAR", "ARRAY<INT>"]
    ] * 2


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW v AS SELECT b + 1 AS c, n AS b FROM t",  # it comes later
        "CREATE MATERIALIZED VIEW v AS SELECT SUM(n) AS b, SUM(b) AS c FROM t",
        "CREATE MATERIALIZED VIEW v AS SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS b, SUM(b) OVER () AS c FROM t",
        "CREATE MATERIALIZED VIEW v AS SELECT id, b + 1 AS b FROM t WHERE b > 1",
        "CREATE TABLE v AS SELECT id, n + 1 AS b FROM t WHERE b > 1",
        "CREATE TABLE v AS SELECT id, n + 1 AS b, b + 1 AS c FROM t",  # to ksqlDB it is no name
        "CREATE MATERIALIZED VIEW v WITH (SEMANTICS = 'ksql') AS SELECT id, n + 1 AS b, b + 1 AS c FROM t",
    ],
)
def test_a_name_that_says_nothing_yet_is_unknown(statement: str) -> None:
    with pytest.raises(UnknownName, match="'b'"):
        defined(statement)


def test_names_that_stand_for_too_much_are_refused() -> None:
    items = ", ".join(f"c{n} + c{n} AS c{n + 1}" for n in range(40))
    catalog: Catalog = defined("SELECT id FROM t")
    with pytest.raises(NotSupported, match="parts"):
        run(f"CREATE MATERIALIZED VIEW w AS SELECT n AS c0, {items} FROM t", catalog)
