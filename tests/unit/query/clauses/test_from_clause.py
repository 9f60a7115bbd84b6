"""FROM over what is no table, and functions OVER several partitions: the view is the query after every epoch."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from duckdb import DuckDBPyConnection

from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch
from strandline.jobs.query.logical import Block
from tests.support.checked_views import defined, wrong
from tests.support.duck_lake import DuckLake
from tests.support.query_text import block

# In the history of this seed every view has a row at some time.
_SEED = 5
_AT = datetime(2024, 5, 1, tzinfo=UTC)
QUERIES = (
    # items of arrays
    "SELECT k, u.tag FROM s, UNNEST(s.tags) AS u (tag) WHERE tag > 1",
    "SELECT tag, COUNT(*) AS c, SUM(s.v) AS n FROM s CROSS JOIN UNNEST(tags) AS u (tag) GROUP BY tag",
    "SELECT s.k, tag, place FROM s LEFT JOIN UNNEST(tags) WITH ORDINALITY AS u (tag, place) ON TRUE",
    "SELECT s.k, tag, t.n FROM s CROSS JOIN UNNEST(s.tags) AS u (tag) JOIN t ON t.id = u.tag",
    "SELECT t.id, a.x, b.y FROM t, UNNEST(ARRAY[t.n, 1]) AS a (x), UNNEST(ARRAY[2, t.id, 7]) AS b (y)",
    "SELECT t.id, x, y, EXPLODE(ARRAY[8, 9]) AS z FROM t, UNNEST(ARRAY[t.n], ARRAY[2, t.id]) AS a (x, y)",
    "SELECT a.*, u.k FROM t CROSS JOIN UNNEST(ARRAY[t.n, 1]) AS a JOIN u ON u.id = t.id",
    "SELECT tag, k, COUNT(*) AS c FROM s CROSS JOIN UNNEST(s.tags) AS u (tag) GROUP BY ROLLUP (tag, k)",
    "SELECT tag, COUNT(*) AS c FROM s CROSS JOIN UNNEST(s.tags) AS u (tag)"
    " WINDOW HOPPING (SIZE 20 SECONDS, ADVANCE BY 10 SECONDS) GROUP BY tag",
    "CREATE STREAM v AS SELECT s.k, tag FROM s CROSS JOIN UNNEST(s.tags) AS u (tag);",
    "CREATE TABLE v AS SELECT tag, COUNT(*) AS c FROM s CROSS JOIN UNNEST(s.tags) AS u (tag) GROUP BY tag;",
    # constants
    "SELECT 1 AS a, 'x' AS b",
    "SELECT x, y FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) AS v (x, y) WHERE x > 1",
    "SELECT x, n FROM UNNEST(ARRAY[5, 6]) WITH ORDINALITY AS u (x, n)",
    "SELECT COUNT(*) AS c, MAX(column2) AS m FROM (VALUES (1, 'a'), (2, 'b')) AS v",
    *(
        f"SELECT t.id, v.y FROM t {side} JOIN (VALUES (1, 'one'), (4, 'four')) AS v (x, y) ON t.n = v.x"
        for side in ("", "LEFT", "RIGHT", "FULL")
    ),
    "WITH r (x, y) AS (VALUES (1, 1.5), (2, 2.5)) SELECT s.k, s.v * r.y AS z FROM s JOIN r ON s.v = r.x",
    "SELECT id FROM t WHERE n NOT IN (SELECT x FROM (VALUES (1), (2)) AS v (x))",
    "SELECT k FROM t UNION ALL SELECT 'z' AS k",
    # the nearest row
    "SELECT s.k, s.v, t.n FROM s ASOF JOIN t ON s.k = t.k AND s.v >= t.n",
    "SELECT t.id, u.id AS j FROM t ASOF LEFT JOIN u ON t.k = u.k AND t.n < u.n",
    "SELECT t.k, COUNT(u.id) AS c FROM t ASOF LEFT JOIN u ON t.k = u.k AND u.n <= t.n GROUP BY t.k",
    "SELECT t.id, c.n AS z FROM t ASOF JOIN u ON t.k = u.k AND t.n < u.n JOIN c ON c.n = u.n",
    "SELECT * FROM t ASOF JOIN u ON t.k = u.k AND t.n < u.n",
    # sessions
    "SELECT k, v, window_start, window_end FROM SESSION(s, ts, INTERVAL '5' HOUR, k)",
    "SELECT w.window_start, COUNT(*) AS c FROM SESSION(s, ts, INTERVAL '5' HOUR) AS w GROUP BY w.window_start",
    # several partitions
    "SELECT id, RANK() OVER (PARTITION BY k ORDER BY n) AS a, SUM(n) OVER (PARTITION BY id % 2) AS b,"
    " ROW_NUMBER() OVER (ORDER BY n) AS c FROM t WHERE n > 1 QUALIFY a < 3",
    "SELECT v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS a, SUM(v) OVER (PARTITION BY x ORDER BY v ROWS"
    " BETWEEN 1 PRECEDING AND CURRENT ROW) AS b FROM s",
    "SELECT k, COUNT(*) AS c, RANK() OVER (PARTITION BY k ORDER BY COUNT(*)) AS a, SUM(COUNT(*)) OVER () AS b FROM t"
    " GROUP BY k",
    "SELECT MIN(i) AS a, MAX(i) AS b FROM (VALUES (ARRAY[1]), (ARRAY[1, 1]), (ARRAY[1, NULL])) AS v (i)",
    "SELECT a.i FROM (VALUES (ARRAY[1]), (ARRAY[2])) AS a (i) JOIN (VALUES (ARRAY[1, 1])) AS b (i) ON a.i < b.i",
    "SELECT id, ARRAY[] AS a, ROW(NULL, 1) AS b, CASE WHEN n > 1 THEN ARRAY[n] ELSE ARRAY[] END AS c FROM t",
    "SELECT COALESCE(CASE WHEN id > 2 THEN ARRAY[k] END, ARRAY[]) AS a FROM t UNION SELECT ARRAY[]",
    "SELECT NULL AS a, x FROM (VALUES (NULL)) AS v (x)",
    "SELECT id, n FROM t UNION ALL SELECT NULL, NULL UNION ALL SELECT NULL, id FROM t WHERE n = NULL OR n > 1",
    "SELECT x IS NULL AS a, COUNT(*) AS n FROM (SELECT NULL AS x FROM t UNION SELECT NULL) q GROUP BY x",
    "SELECT DISTINCT RANK() OVER (PARTITION BY k ORDER BY n) AS a, COUNT(*) OVER (PARTITION BY n) AS b FROM t",
    "SELECT t.id, RANK() OVER (PARTITION BY t.k ORDER BY u.id) AS a, LAG(u.n) OVER (PARTITION BY u.k ORDER BY t.id,"
    " u.id) AS b FROM t JOIN u ON t.n = u.n",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_view_is_its_select_after_every_epoch(duck: DuckDBPyConnection, sql: str) -> None:
    assert wrong(sql, duck, _SEED) == ""


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT x FROM t, UNNEST(t.n) AS u (x)", TypeMismatch, "takes an ARRAY"),
        ("SELECT x FROM t, UNNEST(ARRAY[1]) AS u (x, y)", InvalidQuery, "1 columns, and 2 names"),
        ("SELECT * FROM RANGE(1) WITH ORDINALITY AS u (ordinality)", InvalidQuery, "are named 'ordinality'"),
        ("SELECT x FROM t JOIN UNNEST(ARRAY[1]) AS u (x) ON u.x = t.n", NotSupported, "LEFT JOIN … ON TRUE"),
        ("SELECT x FROM t, u AS w, UNNEST(ARRAY[1]) AS u (x) JOIN c ON c.n = u.x", NotSupported, "need ON"),
        (
            "CREATE STREAM v AS SELECT s.k FROM s, UNNEST(s.tags) AS u (x) JOIN t ON t.id = u.x;",
            NotSupported,
            "no record",
        ),
        ("SELECT x FROM (VALUES (1, 2), (3)) AS v (x, y)", InvalidQuery, "a row of 2 values and one of 1"),
        ("SELECT x FROM (VALUES (1), ('a')) AS v (x)", TypeMismatch, "not a number"),
        ("SELECT *", InvalidQuery, "reads nothing"),
        ("CREATE STREAM v AS SELECT 1 AS a;", InvalidQuery, "reads nothing"),
        ("SELECT t.id FROM t ASOF JOIN u ON t.k = u.k", InvalidQuery, "one inequality"),
        ("SELECT t.id FROM t ASOF JOIN u ON t.n < u.n AND t.id > u.id", InvalidQuery, "not 2"),
        ("SELECT t.id FROM t ASOF RIGHT JOIN u ON t.k = u.k AND t.n < u.n", NotSupported, "ASOF RIGHT"),
        ("SELECT t.id FROM t, c ASOF JOIN u ON c.n < u.n", NotSupported, "need ON"),
        ("SELECT t.id FROM t ASOF JOIN u USING (k)", InvalidQuery, "one inequality"),
        (
            "SELECT q.n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k, n) AS q ASOF JOIN u ON q.n < u.n",
            NotSupported,
            "cannot be told apart",
        ),
        ("SELECT k FROM TUMBLE(s, ts, INTERVAL '5' HOUR, k)", InvalidQuery, "without months"),
        ("SELECT k FROM SESSION(s, ts)", InvalidQuery, "without months"),
        ("SELECT x.id FROM (t JOIN u ON t.id = u.id) AS x", NotSupported, "a name for joins in brackets, 'x'"),
        (
            "SELECT id FROM t WHERE EXISTS (SELECT RANK() OVER (PARTITION BY k ORDER BY n), COUNT(*) OVER () FROM u"
            " WHERE u.k = t.k)",
            NotSupported,
            "several PARTITION BY in a subquery",
        ),
    ],
)
def test_what_cannot_be_is_refused(sql: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        defined(sql)
    assert type(caught.value) is error


def test_a_nested_from_gives_only_what_is_read() -> None:
    query = block("SELECT t.n FROM s, UNNEST(s.tags) AS u (tag) JOIN t ON t.id = u.tag", defined("SELECT id FROM t"))
    inner = query.inputs[0].source
    assert isinstance(inner, Block)
    read = [output.expression.name for output in inner.outputs if output.name not in inner.key]
    assert read == ["__u0"]


@pytest.mark.parametrize(("n", "rows"), [(5, [(None, None)]), (6, [(6, 1)])])
def test_a_row_that_is_kept_without_items_has_no_number(
    duck: DuckDBPyConnection, n: int, rows: list[tuple[int | None, int | None]]
) -> None:
    array = "UNNEST(ARRAY_REMOVE(ARRAY[t.n], 5)) WITH ORDINALITY AS u (x, place)"
    catalog = defined(f"SELECT id, x, place FROM t LEFT JOIN {array} ON TRUE")
    lake = DuckLake(catalog, catalog.definitions(), duck)
    lake.feed("t__log", [{"id": 1, "n": n, "_partition": 0, "_offset": 0, "_timestamp": _AT, "_stream_time": _AT}])
    lake.refresh()
    assert [(row["x"], row["place"]) for row in lake.rows("v")] == rows
    lake.close()
