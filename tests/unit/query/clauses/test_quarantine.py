"""Quarantine inside every form of query: the view is its guarded query after every epoch of a random history."""

from __future__ import annotations

import pytest
from duckdb import DuckDBPyConnection

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.guarded_stage import REASON, checked, guarded
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model.definitions import View
from strandline.jobs.model.stage import MapStage
from strandline.jobs.query.clauses.read import query_of
from tests.support.checked_views import defined, wrong

_SEED = 5
_EXPECT = "EXPECT = '[{{expect_column_values_to_be_between: {{column: {}, min_value: 2}}, quarantine: true}}]'"
WINDOW = "WINDOW TUMBLING (SIZE 20 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY k"
# The column that must be at least 2, and the view; the text between is CREATE's.
VIEWS: dict[str, tuple[str, str, str]] = {
    "filter of a table": ("n", "MATERIALIZED VIEW", "SELECT id, n FROM t WHERE id > 1"),
    "computed column": ("m", "MATERIALIZED VIEW", "SELECT id, n * 2 - 1 AS m FROM t"),
    "stream": ("v", "STREAM", "SELECT k, v FROM s"),
    "stream of UNION ALL": ("v", "MATERIALIZED VIEW", "SELECT k, v FROM s UNION ALL SELECT k, n FROM c"),
    "UNION ALL of tables": ("n", "MATERIALIZED VIEW", "SELECT k, n FROM t UNION ALL SELECT k, n FROM u"),
    "UNION": ("n", "MATERIALIZED VIEW", "SELECT k, n FROM t UNION SELECT k, n FROM u"),
    "inner join": ("m", "MATERIALIZED VIEW", "SELECT t.id, u.n AS m FROM t JOIN u ON t.k = u.k"),
    "outer join": ("m", "MATERIALIZED VIEW", "SELECT t.id, u.n AS m FROM t LEFT JOIN u ON t.id = u.id"),
    "full join": ("m", "MATERIALIZED VIEW", "SELECT t.id, u.n AS m FROM t FULL JOIN u ON t.id = u.id"),
    "GROUP BY": ("c", "TABLE", "SELECT k, COUNT(*) AS c FROM t GROUP BY k"),
    "HAVING": ("c", "TABLE", "SELECT k, COUNT(*) AS c FROM t GROUP BY k HAVING SUM(n) > 2"),
    "one group": ("c", "MATERIALIZED VIEW", "SELECT COUNT(*) AS c FROM t"),
    "window": ("c", "TABLE", f"SELECT k, COUNT(*) AS c FROM s {WINDOW}"),
    "EMIT FINAL": ("c", "TABLE", f"SELECT k, COUNT(*) AS c FROM s {WINDOW} EMIT FINAL"),
    "DISTINCT": ("n", "MATERIALIZED VIEW", "SELECT DISTINCT n FROM t"),
    "OVER": ("r", "MATERIALIZED VIEW", "SELECT id, RANK() OVER (PARTITION BY k ORDER BY n, id) AS r FROM t"),
    "EXPLODE": ("tag", "STREAM", "SELECT k, EXPLODE(tags) AS tag FROM s"),
    "subquery": ("n", "MATERIALIZED VIEW", "SELECT id, n FROM t WHERE k IN (SELECT k FROM u)"),
}


def created(name: str) -> str:
    column, what, query = VIEWS[name]
    return f"CREATE {what} v WITH ({_EXPECT.format(column)}) AS {query};"


@pytest.mark.parametrize("name", VIEWS)
def test_the_view_is_its_query_without_the_rows_that_break_it(name: str, duck: DuckDBPyConnection) -> None:
    assert wrong(created(name), duck, _SEED) == ""


@pytest.mark.parametrize("name", VIEWS)
def test_the_rows_that_break_it_have_a_place_on_both_engines(name: str) -> None:
    catalog = defined(created(name))
    view = catalog.get("v")
    assert isinstance(view, View)
    last = plan(view, catalog).stages[-1]
    found = guarded(last, "v__dead_letters")
    letters = found.aside
    assert isinstance(letters, MapStage)
    for stage in (checked(last), found.sound, letters):
        assert all(maintenance(stage, dialect) for dialect in ("spark", "duckdb"))
    reasons = [each.expression.sql() for core in letters.body for each in core.columns if each.name == REASON]
    assert all(f"breaks expect_column_values_to_be_between__{VIEWS[name][0]} of v" in each for each in reasons)


def test_without_quarantine_a_query_is_what_it_was() -> None:
    text = "SELECT id, n FROM t"
    plain = defined(text)
    checked = defined(f"CREATE MATERIALIZED VIEW v WITH ({_EXPECT.format('n').replace('true', 'false')}) AS {text};")
    for catalog in (plain, checked):
        assert isinstance(catalog.get("v"), View)
    queries = [query_of(view, catalog) for catalog in (plain, checked) if isinstance(view := catalog.get("v"), View)]
    assert queries[0] == queries[1]
