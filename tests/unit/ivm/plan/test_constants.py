"""Constants in FROM are one row: what joins them, joins by its condition, wherever they stand."""

from __future__ import annotations

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.rules.stored import form_of
from tests.support.checked_views import unlike_text, wrong
from tests.unit.ivm.plan.planned import planned

ONE = "(SELECT 'a' AS a) q"
TWO = "(SELECT 2 AS lim) r"

AS_TEXT = [
    f"SELECT COUNT(*) AS n FROM {ONE} JOIN t ON q.a = t.k",
    "WITH q AS (SELECT 'a' AS a) SELECT COUNT(*) AS n FROM q JOIN t ON q.a = t.k",
    f"SELECT COUNT(*) AS n FROM {ONE}, t WHERE q.a = t.k",
    f"SELECT t.n, COUNT(*) AS c FROM {ONE} JOIN t ON q.a = t.k GROUP BY t.n",
    f"SELECT t.n, COUNT(*) AS c FROM {ONE} JOIN t ON q.a = t.k GROUP BY t.n HAVING COUNT(*) > 1",
    f"SELECT DISTINCT t.n FROM {ONE} JOIN t ON q.a = t.k",
    f"SELECT t.n FROM {ONE} JOIN t ON q.a = t.k",
    f"SELECT t.id, RANK() OVER (PARTITION BY t.n ORDER BY t.id) AS r FROM {ONE} JOIN t ON q.a = t.k QUALIFY r < 2",
    f"SELECT t.k, COUNT(*) AS c FROM {ONE} JOIN t ON q.a <> t.k GROUP BY ROLLUP (t.k)",
    f"SELECT COUNT(*) FILTER (WHERE t.n > 2) AS n FROM {ONE} JOIN t ON q.a = t.k",
    f"SELECT MAX(t.n) AS m FROM {ONE} JOIN t ON q.a = t.k",
    f"SELECT COUNT(*) AS n FROM {ONE} JOIN s ON q.a = s.k",
    f"SELECT s.v FROM {ONE} JOIN s ON q.a = s.k",
    f"SELECT COUNT(*) AS n FROM {ONE} JOIN t ON TRUE WHERE t.n > 1",
    # the other joins
    f"SELECT q.a, t.n FROM {ONE} LEFT JOIN t ON q.a = t.k",
    f"SELECT q.a, COUNT(t.n) AS c FROM {ONE} LEFT JOIN t ON q.a = t.k GROUP BY q.a",
    f"SELECT q.a, s.v FROM {ONE} LEFT JOIN s ON q.a = s.k",
    f"SELECT q.a, t.n FROM {ONE} RIGHT JOIN t ON q.a = t.k",
    f"SELECT q.a, COUNT(*) AS c FROM {ONE} RIGHT JOIN t ON q.a = t.k GROUP BY q.a",
    f"SELECT q.a, t.n FROM {ONE} FULL JOIN t ON q.a = t.k",
    f"SELECT q.a, COUNT(*) AS c FROM {ONE} FULL JOIN t ON q.a = t.k GROUP BY q.a",
    f"SELECT q.a FROM {ONE} WHERE q.a IN (SELECT k FROM t)",
    f"SELECT COUNT(*) AS c FROM {ONE} WHERE q.a IN (SELECT k FROM t)",
    f"SELECT COUNT(*) AS c FROM {ONE} WHERE q.a NOT IN (SELECT k FROM t WHERE k IS NOT NULL)",
    f"SELECT COUNT(*) AS c FROM {ONE} WHERE EXISTS (SELECT 1 FROM t WHERE t.k = q.a)",
    f"SELECT COUNT(*) AS c FROM {ONE} WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.k = q.a)",
    f"SELECT (SELECT COUNT(*) FROM t WHERE t.k = q.a) AS n FROM {ONE}",
    # several, and in the middle
    f"SELECT COUNT(*) AS n FROM {ONE} JOIN {TWO} ON r.lim > 1 JOIN t ON q.a = t.k AND t.n = r.lim",
    f"SELECT COUNT(*) AS n FROM {ONE} JOIN {TWO} ON r.lim > 5 JOIN t ON q.a = t.k",
    f"SELECT COUNT(*) AS n FROM {ONE} JOIN {TWO} ON q.a = 'b'",
    f"SELECT q.a, r.lim, t.id FROM {ONE} LEFT JOIN {TWO} ON r.lim > 5 LEFT JOIN t ON t.k = q.a",
    f"SELECT COUNT(*) AS n FROM {ONE} JOIN t ON q.a = t.k JOIN u ON u.id = t.id",
    f"SELECT COUNT(*) AS n FROM t JOIN {ONE} ON q.a = t.k JOIN u ON u.id = t.id",
    f"SELECT COUNT(*) AS n FROM t, {ONE}, u WHERE u.k = q.a AND t.id = u.id",
    "SELECT COUNT(*) AS n FROM (SELECT 'a' AS a WHERE FALSE) q JOIN t ON q.a = t.k",
    "SELECT COUNT(*) AS n FROM (SELECT p.a FROM (SELECT 'a' AS a) p) q JOIN t ON q.a = t.k",
    "SELECT COUNT(*) AS n FROM (SELECT 'a' AS k) q JOIN t USING (k)",
    "SELECT COUNT(*) AS n FROM (VALUES ('a'), ('b')) AS q (a) JOIN t ON q.a = t.k",
    "SELECT q.a, COUNT(*) AS n FROM (VALUES ('a'), ('b')) AS q (a) LEFT JOIN t ON q.a = t.k GROUP BY q.a",
    "SELECT COUNT(*) AS n FROM (SELECT 'a' AS a UNION ALL SELECT k FROM u) q JOIN t ON q.a = t.k",
    # alone, with nothing of their own that is read
    "SELECT ROW_NUMBER() OVER () AS r",
    "SELECT AVG(42) OVER () AS a",
    "SELECT 42 AS a HAVING 42 > 20",
    # inside a query
    f"SELECT x.n FROM (SELECT COUNT(*) AS n FROM {ONE} JOIN t ON q.a = t.k) x WHERE x.n > 0",
    f"SELECT u.id, x.n FROM u JOIN (SELECT t.id, t.n FROM {ONE} JOIN t ON q.a = t.k) x ON x.id = u.id",
    f"SELECT u.id, x.n FROM u LEFT JOIN (SELECT t.id, t.n FROM {ONE} JOIN t ON q.a = t.k) x ON x.id = u.id",
    f"SELECT u.id, x.n FROM (SELECT t.id, t.n FROM {ONE} JOIN t ON q.a = t.k) x RIGHT JOIN u ON x.id = u.id",
    f"SELECT u.id, x.n FROM (SELECT t.id, t.n FROM {ONE} LEFT JOIN t ON q.a = t.k) x FULL JOIN u ON x.id = u.id",
    f"SELECT x.a, u.n FROM u JOIN (SELECT q.a FROM {ONE} WHERE q.a IN (SELECT k FROM t)) x ON x.a = u.k",
]

OPTIONS = [
    "CREATE TABLE v WITH (SEMANTICS = 'ksql') AS"
    f" SELECT t.n, COUNT(*) AS c FROM {ONE} JOIN t ON q.a = t.k GROUP BY t.n;",
    f"CREATE MATERIALIZED VIEW v WITH (SEMANTICS = 'ksql') AS SELECT a, COUNT(*) AS c FROM {ONE} GROUP BY a;",
    "CREATE MATERIALIZED VIEW v WITH (STATE = 'shared') AS"
    f" SELECT COUNT(*) AS c FROM {ONE} LEFT JOIN t ON q.a = t.k LEFT JOIN u ON u.id = t.id;",
]


@pytest.mark.share(2)
@pytest.mark.parametrize("select", AS_TEXT)
def test_constants_join_by_their_conditions(select: str, duck: duckdb.DuckDBPyConnection) -> None:
    assert unlike_text(select, duck) == ""


@pytest.mark.parametrize("sql", OPTIONS)
def test_constants_join_by_their_conditions_in_other_kinds_of_views(sql: str, duck: duckdb.DuckDBPyConnection) -> None:
    assert wrong(sql, duck) == ""


def test_rows_stored_before_the_condition_was_heeded_are_in_another_form(catalog: Catalog) -> None:
    joined = planned("CREATE MATERIALIZED VIEW v AS SELECT name FROM (SELECT 1 AS a) q JOIN users ON id = a", catalog)
    crossed = planned("CREATE MATERIALIZED VIEW w AS SELECT name FROM (SELECT 1 AS a) q, users WHERE id > 1", catalog)
    assert (form_of(joined.stages), form_of(crossed.stages)) == (4, 1)
