"""The refusals of a pull query speak of the query: whoever asks one has no view, and maintains nothing."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import SqlError
from strandline.jobs.query.clauses.read_pull import read_pull
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import Lake
from tests.support.catalog_from_sql import catalog_of

SOURCES = "CREATE STREAM s (id INT KEY, k VARCHAR, v INT, a ARRAY<INT>);"


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return catalog_of(lake, SOURCES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT EXPLODE(a), COUNT(*) FROM s GROUP BY k", "EXPLODE in a query that groups is not supported yet"),
        ("SELECT TOPK(DISTINCT v, 2) FROM s", "is not supported"),
        ("SELECT COLLECT_LIST(v ORDER BY id, k DESC) FROM s", "in several directions .* is not supported yet"),
        ("SELECT COLLECT_LIST(DISTINCT v ORDER BY k) FROM s", "is ordered by the value itself"),
        ("SELECT id FROM s WHERE GROUPING(id) = 1", "it belongs into the SELECT list, HAVING or QUALIFY"),
        ("SELECT (SELECT MAX(t.v)) FROM s AS t", "MAX in a subquery over columns of the query around it alone"),
        ("SELECT id FROM s AS t WHERE 1 IN (SELECT MAX(t.v) FROM s)", "MAX in a subquery over columns of the query"),
        ("SELECT NOW() FROM s", "a query gives the same rows of the same tables each time"),
    ],
)
def test_a_refused_pull_query_is_told_of_no_view(text: str, message: str, catalog: Catalog) -> None:
    with pytest.raises(SqlError, match=message) as refused:
        read_pull(parse_query(text), catalog)
    assert not any(word in str(refused.value) for word in ("a view", "maintain"))
