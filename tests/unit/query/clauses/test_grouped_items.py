"""An EXPLODE or UNNEST in the SELECT list by which a query groups: its items are rows before they are grouped."""

from __future__ import annotations

import duckdb
import pytest

from strandline.jobs.model.errors import NotSupported
from tests.support.checked_views import defined, unlike_text

QUERIES = [
    "SELECT UNNEST(tags) AS tag, COUNT(*) AS n FROM s GROUP BY tag",
    "SELECT k, UNNEST(tags) AS tag, SUM(v) AS n FROM s WHERE v > 0 GROUP BY 1, 2",
    "SELECT COALESCE(UNNEST(tags), -1) * 2 AS tag, COUNT(*) AS n, MAX(v) AS m FROM s GROUP BY tag HAVING COUNT(*) > 0",
    "SELECT t.k, UNNEST(s.tags) AS tag, COUNT(*) AS n FROM t JOIN s ON t.k = s.k GROUP BY t.k, tag",
    "SELECT UNNEST([1, n]) AS i, COUNT(*) AS c FROM t GROUP BY i",
]


@pytest.mark.parametrize("select", QUERIES)
def test_the_view_has_the_rows_of_its_text(select: str, duck: duckdb.DuckDBPyConnection) -> None:
    assert unlike_text(select, duck) == ""


@pytest.mark.parametrize(
    "select",
    [
        "SELECT UNNEST(tags) AS a, UNNEST(tags) + UNNEST([v]) AS b, COUNT(*) AS n FROM s GROUP BY a, b",
        "SELECT k, UNNEST([1, 2]) AS i, COUNT(*) AS n FROM s GROUP BY k",
        "SELECT UNNEST(tags), COUNT(*) AS n FROM s GROUP BY 1",
    ],
)
def test_others_are_refused(select: str) -> None:
    with pytest.raises(NotSupported, match="EXPLODE in a query that groups") as found:
        defined(select)
    assert "group by the name" in str(found.value.hint)
