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


@pytest.mark.parametrize(("condition", "message"), REFUSED)
def test_anything_else_that_reads_what_is_around_is_refused(condition: str, message: str) -> None:
    with pytest.raises(NotSupported, match=message) as raised:
        defined(f"SELECT t.id FROM t WHERE {condition}")
    assert raised.value.line == 1
