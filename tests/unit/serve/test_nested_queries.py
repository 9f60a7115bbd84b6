"""Pull queries inside pull queries: their answers, and that they are those of the joins that a view makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.settings import Settings
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.query.recompute import recompute_sql
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import append, events

DEFINITIONS = """
    CREATE STREAM s (k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC = 's');
    CREATE TABLE t AS SELECT k, COUNT(*) AS c, SUM(v) AS n FROM s GROUP BY k;
    CREATE TABLE u AS SELECT v, COUNT(*) AS c, MAX(k) AS k FROM s GROUP BY v;
"""


@pytest.fixture
def session(settings: Settings, lake: LakeLayout) -> Interpreter:
    interpreter = Interpreter(settings)
    assert list(interpreter.run(DEFINITIONS))
    events(lake, "s", [{"k": k, "v": v} for k, v in (("a", 1), ("a", 2), ("b", None), ("c", 2), (None, 3))])
    append(lake, "t", [{"k": k, "c": c, "n": n} for k, c, n in (("a", 2, 3), ("b", 1, None), ("c", 1, 2))])
    append(lake, "u", [{"v": v, "c": c, "k": k} for v, c, k in ((1, 1, "a"), (2, 2, "c"), (3, 1, None))])
    return interpreter


def answer(session: Interpreter, text: str) -> list[tuple[Any, ...]]:
    (result,) = session.run(text)
    assert isinstance(result, Rows)
    return [tuple(row) for row in result.rows]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT k, (SELECT c FROM u WHERE u.k = t.k) AS c FROM t", [("a", 1), ("b", None), ("c", 2)]),
        ("SELECT k, (SELECT COUNT(*) FROM s WHERE s.k = t.k AND v > c) AS m FROM t", [("a", 0), ("b", 0), ("c", 1)]),
        ("SELECT k NOT IN (SELECT k FROM u) AS a FROM t ORDER BY t.k", [(False,), (None,), (False,)]),
        # The name `t` inside is another than outside, and `n` is that of the one outside.
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u AS t WHERE t.v = n)", [("a",), ("c",)]),
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.v <= t.n AND u.c = (SELECT COUNT(*) FROM s"
            " WHERE s.k = t.k AND s.v >= u.v))",
            [("c",)],
        ),
        (
            "SELECT t.k, l.v FROM t LEFT JOIN LATERAL (SELECT x.k, u.v FROM t AS x LEFT JOIN u ON EXISTS"
            " (SELECT 1 FROM s WHERE s.v = u.v AND s.k = x.k AND s.k = t.k) WHERE x.n = t.n) AS l ON TRUE"
            " ORDER BY 1, 2",
            [("a", 1), ("a", 2), ("b", None), ("c", 2)],
        ),
        ("SELECT k FROM t WHERE c = (SELECT q.c FROM (SELECT c, v FROM u WHERE u.k = t.k) AS q)", []),
        ("SELECT k FROM t WHERE n IN (SELECT v FROM u WHERE u.v >= t.n ORDER BY u.v LIMIT 1)", [("a",), ("c",)]),
        (
            "SELECT k, COUNT(*) AS m FROM s GROUP BY k HAVING COUNT(*) >= (SELECT c FROM t WHERE t.k = s.k) ORDER BY k",
            [("a", 2), ("b", 1), ("c", 1)],
        ),
        ("SELECT SUM((SELECT MAX(c) FROM t WHERE t.k = s.k)) AS m FROM s", [(6,)]),
        ("SELECT COUNT(*) FILTER (WHERE v IN (SELECT c FROM u)) AS m FROM s", [(3,)]),
        ("SELECT t.k FROM t JOIN u ON u.k = t.k AND u.v > (SELECT MIN(v) FROM s)", [("c",)]),
        ("SELECT k FROM t ORDER BY (SELECT MAX(v) FROM u WHERE u.k = t.k) DESC NULLS LAST", [("c",), ("a",), ("b",)]),
        (
            "SELECT k, ROW_NUMBER() OVER (ORDER BY (SELECT MAX(v) FROM u WHERE u.k = t.k) DESC) AS r FROM t"
            " WHERE n > 0 ORDER BY k",
            [("a", 2), ("c", 1)],
        ),
        ("WITH w AS (SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)) SELECT COUNT(*) FROM w", [(2,)]),
        ("SELECT (SELECT n FROM t WHERE k = 'b') AS a, EXISTS (SELECT 1 FROM t WHERE k = 'z') AS b", [(None, False)]),
    ],
)  # fmt: skip
def test_a_query_may_stand_wherever_a_value_may(session: Interpreter, query: str, rows: list[tuple[Any, ...]]) -> None:
    assert answer(session, query) == rows


def test_a_value_has_one_row(session: Interpreter) -> None:
    with pytest.raises(InvalidQuery, match="several rows"):
        answer(session, "SELECT k FROM t WHERE n > (SELECT v FROM s)")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM t WHERE k IN (SELECT k FROM u)",
        "SELECT k FROM t WHERE k NOT IN (SELECT k FROM u)",
        "SELECT k FROM t WHERE n IN (SELECT v FROM u WHERE u.k = t.k) OR c > 1",
        "SELECT k FROM s WHERE v NOT IN (SELECT n FROM t WHERE t.k = s.k)",
        "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v < t.n)",
        "SELECT k, (SELECT COUNT(*) AS m FROM s WHERE s.k = t.k) AS m FROM t",
        "SELECT k, n - (SELECT MIN(v) AS m FROM u) AS m FROM t",
        "SELECT k, COUNT(*) AS m FROM s GROUP BY k HAVING SUM(v) >= (SELECT AVG(v) AS a FROM u)",
        "SELECT k, n IN (SELECT v FROM u) AS m FROM t",
        # A column that a subquery shows twice: nobody reads it by its name.
        "SELECT k FROM t WHERE (n, c) IN (SELECT v, v FROM u)",
        "SELECT k FROM t WHERE (c, n) NOT IN (SELECT u.c, u.c FROM u JOIN t AS z ON z.k = u.k)",
        "SELECT k FROM t WHERE EXISTS (SELECT v, v FROM u WHERE u.k = t.k GROUP BY v)",
        "WITH q (k, b) AS (SELECT k, k FROM t) SELECT k, b FROM q",
    ],
)
def test_a_view_that_joins_the_same_query_has_the_same_rows(session: Interpreter, lake: LakeLayout, query: str) -> None:
    joined = recompute_sql(read_query(parse_query(query), Catalog(lake)), "duckdb", fate="error")
    tables = {name: reader.read_rows(lake.table(name), 0) for name in "stu"}
    with QueryEngine(Library((), ())) as duck:
        rows = duck.query(joined, tables).to_pylist()
    assert sorted(map(repr, answer(session, query))) == sorted(repr(tuple(row.values())) for row in rows)
