"""Whatever the parser hands over is read by somebody, or refused: a query without one of its arguments is another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlglot import exp

from strandline.jobs.model.definitions import Kind
from strandline.jobs.model.errors import NotSupported, SqlError
from strandline.jobs.query.clauses.read import read_pull, read_query
from strandline.jobs.sql.from_text import READ, parse_query
from strandline.jobs.sql.statements import parse_one
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog

SOURCES = """
CREATE STREAM s (k VARCHAR, v INT, x DOUBLE, d DECIMAL(8, 2), tags ARRAY<INT>, m MAP<VARCHAR, INT>, r STRUCT<f INT>);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);
CREATE TABLE u (id INT PRIMARY KEY, k VARCHAR, n INT);
"""

VIEWS = (
    "SELECT k, v FROM s ORDER BY k FETCH FIRST 3 ROWS WITH TIES",
    "SELECT * FROM s",
    "SELECT DISTINCT s.k, s.v + 1 AS w, -v AS a, v - 2 AS b, v * 3 AS c, v / 4 AS e, v % 5 AS f, k || 'x' AS g FROM s",
    "SELECT k FROM s WHERE v = 1 AND v <> 2 OR NOT (v < 3) AND v <= 4 AND v > 5 AND v >= 6",
    "SELECT k FROM s WHERE v IS NULL AND k IS NOT NULL AND v IS DISTINCT FROM 2 AND v IS NOT DISTINCT FROM 3",
    "SELECT k FROM s WHERE v BETWEEN 1 AND 2 AND v IN (1, 2) AND k LIKE 'a!%' ESCAPE '!' AND k NOT LIKE 'b' AND TRUE",
    "SELECT CASE v WHEN 1 THEN 'a' ELSE 'b' END AS c, CASE WHEN v > 1 THEN NULL ELSE 2 END AS e FROM s",
    "SELECT CAST(v AS VARCHAR) AS c, TRY_CAST(k AS INT) AS e, ARRAY[1, v] AS f, tags[1] AS g, r->f AS h FROM s",
    "SELECT STRUCT(a := v, b := 1) AS c, TRANSFORM(tags, x => x + 1) AS e, r->* FROM s",
    "SELECT * EXCEPT (x, r) REPLACE (v + 1 AS v) RENAME (k AS z) FROM s",
    "SELECT k, n FROM t UNION ALL CORRESPONDING BY (n) SELECT n, k FROM u",
    "SELECT k FROM t INTERSECT ALL SELECT k FROM u",
    "SELECT k FROM t EXCEPT ALL SELECT k FROM u",
    "SELECT FROM_UNIXTIME(v) + INTERVAL '2' MONTH AS a, CAST(k AS DATE) + INTERVAL '2' DAY AS b FROM s",
    "SELECT z.a FROM s AS z (a, b)",
    "SELECT v.a, u.b FROM (VALUES (1, 2)) AS v (a) CROSS JOIN UNNEST(ARRAY[1]) WITH ORDINALITY AS u (x, b)",
    "SELECT ARRAY_AGG(v ORDER BY x DESC) AS a, MODE() WITHIN GROUP (ORDER BY v) AS b FROM s",
    "SELECT ARRAY_AGG(v IGNORE NULLS ORDER BY x) AS a, FIRST_VALUE(v RESPECT NULLS) AS b FROM s",
    "SELECT DISTINCT ON (k) k FROM s",
    "SELECT t.k AS a FROM t NATURAL JOIN u",
    "SELECT s.k FROM s SEMI JOIN t ON s.k = t.k WHERE v > ANY (SELECT n FROM t) OR v > ALL (SELECT n FROM u)",
    "SELECT v & 1 AS a, v | 2 AS b, v # 3 AS c, ~v AS e, v << 4 AS f, v >> 5 AS g, v ^ 6 AS h, v // 7 AS i FROM s",
    "SELECT k FROM s WHERE v BETWEEN SYMMETRIC 3 AND 1",
    "SELECT k, COUNT(*) AS c FROM s GROUP BY ALL",
    "SELECT k FROM s ORDER BY v LIMIT 3 OFFSET 2",
    "SELECT s.k FROM s JOIN t JOIN u ON t.id = u.id ON s.k = t.k",
    "SELECT q.k FROM t JOIN ((SELECT k FROM s) AS q LEFT JOIN u ON q.k = u.k) ON q.k = t.k",
    "SELECT t.*, u.n FROM t LEFT JOIN u ON t.id = u.id",
    "SELECT t.n AS a, u.n AS b FROM t JOIN u USING (id)",
    "SELECT q.k, p.c FROM s AS q JOIN (SELECT k, COUNT(*) AS c FROM s GROUP BY k) AS p ON q.k = p.k",
    "WITH p AS (SELECT k FROM s) SELECT k FROM p WHERE k NOT IN (SELECT k FROM t) AND EXISTS (SELECT 1 FROM u"
    " WHERE u.k = p.k)",
    "WITH RECURSIVE r (a, b) MAX RECURSION LEVEL 9 AS (SELECT id, n FROM t UNION SELECT r.a, u.n FROM r JOIN u"
    " ON r.b = u.id) SELECT a, b FROM r",
    *(
        f"WITH p AS (SELECT k FROM s) SELECT k FROM p {word} SELECT k FROM t"
        for word in ("UNION ALL", "INTERSECT", "EXCEPT")
    ),
    "SELECT k, v, COUNT(DISTINCT x) AS c, SUM(v) FILTER (WHERE x > 1) AS e FROM s GROUP BY ROLLUP (k, v)"
    " HAVING COUNT(*) > 1",
    "SELECT k, v, COUNT(*) AS c FROM s GROUP BY k, CUBE (k, v)",
    "SELECT k, v, COUNT(*) AS c FROM s GROUP BY k, v WITH ROLLUP",
    "SELECT k, v, COUNT(*) AS c FROM s GROUP BY k, v WITH CUBE",
    "SELECT k, n FROM t UNION ALL BY NAME SELECT n, k FROM u",
    "SELECT k, v, COUNT(*) AS c FROM s GROUP BY GROUPING SETS ((k, v), ())",
    "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY x DESC, v NULLS LAST ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING"
    " EXCLUDE TIES) AS a FROM s QUALIFY a > 1",
    "SELECT s.k FROM s JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS b ON s.v = b.id",
    "SELECT k, COUNT(*) AS c FROM s WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES, GRACE PERIOD 5 MINUTES)"
    " GROUP BY k EMIT FINAL",
)
STREAMS = (
    "SELECT a.k AS k, b.v FROM s AS a LEFT JOIN s AS b WITHIN (1 HOUR, 2 HOURS) GRACE PERIOD 3 HOURS ON a.k = b.k",
    "SELECT a.k AS k, b.v FROM s AS a JOIN (SELECT k, v FROM s) AS b WITHIN 1 HOUR ON a.k = b.k",
    "SELECT k, v FROM s PARTITION BY k",
)
PULLED = (
    *(
        f"SELECT k FROM s {word} SELECT k FROM t ORDER BY k LIMIT 2 OFFSET 1"
        for word in ("UNION", "INTERSECT", "EXCEPT")
    ),
    "SELECT k FROM (SELECT k FROM t ORDER BY k LIMIT 3 OFFSET 2) AS q",
)

# What makes no difference, or is read by a refusal alone.
_WITHOUT_MEANING = {
    (exp.Identifier, "quoted"),  # names are folded, and quoted again where the language asks for it
    (exp.Window, "over"),
    (exp.CTE, "materialized"),
    (exp.TryCast, "safe"),
    *((kind, argument) for kind in (exp.Div, exp.DPipe) for argument in ("safe", "typed")),
}
_REFUSED = (
    "SELECT k FROM a.b.s",
    *(f"SELECT k FROM t {word} BY NAME SELECT k FROM u" for word in ("EXCEPT", "INTERSECT")),
    "SELECT SUM(v) OVER w FROM s",
    "SELECT k, COUNT(*) FROM s WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 1 MINUTE) GROUP BY k",
    "SELECT t.k FROM t OUTER JOIN u ON t.id = u.id",
)

Argument = tuple[type[exp.Expr], str]
TAKEN = {(kind, argument) for kind, arguments in READ.items() for argument in arguments}


@pytest.fixture(scope="module")
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    run(SOURCES, made)
    return made


def without(tree: exp.Query) -> Iterator[tuple[Argument, exp.Query]]:
    """The query without one argument of one node, for each that the list takes."""
    for place, node in enumerate(tree.walk()):
        for argument, value in node.args.items():
            if (type(node), argument) in TAKEN and value not in (None, []):
                made = tree.copy()
                list(made.walk())[place].set(argument, None)
                yield (type(node), argument), made


def meaning(read: Callable[[exp.Query], object], tree: exp.Query) -> object:
    """What the front end makes of a query; of one that is no query any more, nothing."""
    try:
        return read(tree)
    except Exception:
        return None


def mattering(read: Callable[[exp.Query], object], text: str) -> Iterator[Argument]:
    """The arguments without which a query means something else."""
    tree = parse_query(text)
    whole = read(tree)
    yield from (argument for argument, made in without(tree) if meaning(read, made) != whole)


def test_every_argument_that_is_taken_has_a_meaning(catalog: MemoryCatalog) -> None:
    """Each is taken away from a query that has it: what is read then is another query, or none."""

    def view(kind: Kind | None) -> Callable[[exp.Query], object]:
        return lambda tree: read_query(tree, catalog, kind=kind)

    def pulled(tree: exp.Query) -> object:
        return read_pull(tree, catalog)

    found = {argument for text in VIEWS for argument in mattering(view(None), text)}
    found |= {argument for text in STREAMS for argument in mattering(view("stream"), text)}
    found |= {argument for text in PULLED for argument in mattering(pulled, text)}
    for text in _REFUSED:
        tree = parse_query(text)
        with pytest.raises(SqlError):
            read_query(tree, catalog)
        found |= {(type(node), argument) for node in tree.walk() for argument in node.args}
    assert TAKEN - found - _WITHOUT_MEANING == set()


REFUSED = [
    ("SELECT k, COUNT(*) FROM s GROUP BY k WITH TOTALS", "WITH TOTALS"),
    ("SELECT k, COUNT(*) FROM s GROUP BY DISTINCT GROUPING SETS ((k), (k))", "DISTINCT in GROUP BY"),
    ("SELECT k FROM s LEFT UNION ALL BY NAME SELECT k FROM t", "a side of UNION"),
    ("SELECT k FROM s LEFT UNION ALL SELECT k FROM t", "a side of UNION"),
    ("SELECT k FROM s TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT k FROM s FINAL", "FINAL"),
    ("SELECT /*+ BROADCAST(s) */ k FROM s", "a hint"),
    ("SELECT k FROM s WITH (NOLOCK)", "a hint of a table"),
    ("SELECT k FROM s WHERE v IN tags", "IN without brackets"),
    ("SELECT COUNT(* EXCEPT (k)) FROM s", "EXCEPT"),
    ("SELECT AS STRUCT k FROM s", "AS STRUCT"),
    ("SELECT k FROM s ORDER BY k WITH FILL", "WITH FILL"),
]


@pytest.mark.parametrize(("query", "clause"), REFUSED)
@pytest.mark.parametrize("statement", ["CREATE MATERIALIZED VIEW v AS {};", "{};", "INSERT INTO s {};", "EXPLAIN {};"])
def test_a_clause_that_nobody_reads_is_refused_by_its_name(statement: str, query: str, clause: str) -> None:
    with pytest.raises(NotSupported) as caught:
        parse_one(statement.format(query))
    assert clause in caught.value.message
    assert caught.value.hint is not None


def test_a_word_of_a_clause_may_still_be_a_name() -> None:
    parse_one("SELECT final.k FROM s AS final JOIN t AS `tablesample` ON final.k = `tablesample`.k;")


def test_values_of_inserts_are_read_as_carefully() -> None:
    with pytest.raises(NotSupported, match="a schema before a column"):
        parse_one("INSERT INTO s (k) VALUES (a.b.c);")
