"""What a pull query may have: subqueries anywhere, an order, columns without a name; and what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.settings import load_settings
from strandline.jobs.query.clauses.read import read_pull
from strandline.jobs.query.clock import with_moment
from strandline.jobs.query.logical import Block, OrderItem, PullQuery
from strandline.jobs.query.pulled import column_name
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.support.query_text import NESTING_SOURCES, shown, sql


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, NESTING_SOURCES)


def read(text: str, catalog: Catalog) -> PullQuery:
    return read_pull(parse_query(text), catalog)


def block(pull: PullQuery, name: str = "") -> Block:
    """The query, or one inside it."""
    found = pull.nested[name] if name else pull.query
    assert isinstance(found, Block)
    return found


def test_a_query_is_a_function_of_what_it_reads_of_the_row(catalog: Catalog) -> None:
    text = "SELECT id, (SELECT MAX(m) FROM u WHERE t_id = t.id AND m > n AND id < t.id) AS top FROM t"
    pull = read(text, catalog)
    assert shown(block(pull).outputs) == ["id = t.id", "top = __q0(t.id, t.n)"]
    assert sql(block(pull, "__q0").where) == "u.t_id = __q0.0 AND u.m > __q0.1 AND u.id < __q0.0"
    assert [str(sql_type) for _, sql_type in pull.outputs] == ["INT", "INT"]
    assert [relation.name for relation in pull.relations] == ["t", "u"]


def test_a_query_two_levels_up_is_read_through_the_one_between(catalog: Catalog) -> None:
    text = """SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE m > (SELECT MIN(v) FROM s WHERE s.k = t.k
        AND s.id = u.id))"""
    pull = read(text, catalog)
    assert sql(block(pull).where) == "__q0(t.k)"
    assert sql(block(pull, "__q0").where) == "u.m > __q1(__q0.0, u.id)"
    assert sql(block(pull, "__q1").where) == "s.k = __q1.0 AND s.id = __q1.1"


def test_a_query_in_from_reads_what_is_around_the_query_that_it_is_in(catalog: Catalog) -> None:
    pull = read("SELECT id FROM t WHERE n IN (SELECT m FROM (SELECT m FROM u WHERE t_id = t.id) AS q)", catalog)
    assert sql(block(pull).where) == "__q0(t.n, t.id)"


def test_after_grouping_a_query_reads_groups(catalog: Catalog) -> None:
    pull = read("SELECT k, (SELECT MIN(n) FROM t WHERE t.k = s.k) AS n FROM s GROUP BY k", catalog)
    assert shown(block(pull).outputs) == ["k", "n = __q0(k)"]
    with pytest.raises(InvalidQuery, match="'v' is neither grouped by nor aggregated"):
        read("SELECT k, (SELECT MIN(n) FROM t WHERE t.n = s.v) AS n FROM s GROUP BY k", catalog)


@pytest.mark.parametrize(
    ("condition", "error", "column"),
    [
        ("n = (SELECT id, m FROM u)", InvalidQuery, 36),
        ("n IN (SELECT id, m FROM u)", InvalidQuery, 24),
        ("n IN (SELECT k FROM s)", TypeMismatch, 24),
        ("n IN (SELECT nope FROM u)", UnknownName, 37),
        ("EXISTS (SELECT 1 FROM u WHERE m = t.nope)", UnknownName, 58),
        ("EXISTS (SELECT 1 FROM u WHERE m = n) > 1", TypeMismatch, 39),
    ],
)
def test_what_is_wrong_inside_says_where(catalog: Catalog, condition: str, error: type[SqlError], column: int) -> None:
    with pytest.raises(error) as caught:
        read(f"SELECT id FROM t WHERE {condition}", catalog)
    assert caught.value.column == column


def test_reading_leaves_the_tree_as_it_is(catalog: Catalog) -> None:
    tree = parse_query("SELECT id FROM t WHERE n IN (SELECT m FROM u WHERE t_id = t.id) ORDER BY k OFFSET 1")
    before = sql_of(tree)
    assert read_pull(tree, catalog) == read_pull(tree, catalog)
    assert sql_of(tree) == before


# ORDER BY of a pull query: columns of the answer, and others that are computed for the order alone.

SOURCES = """
CREATE STREAM s (id INT KEY, k VARCHAR, v INT);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);
"""


@pytest.fixture
def ordered_catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)


def order(pull: PullQuery) -> list[str]:
    return [f"{each.column}{' DESC' if each.descending else ''}" for each in pull.order]


@pytest.mark.parametrize(
    ("text", "items", "beside"),
    [
        ("SELECT id, n + 1 AS m FROM t ORDER BY 2 DESC, id", ["m DESC", "id"], []),
        ("SELECT id, n + 1 AS m FROM t ORDER BY n + 1, t.id", ["m", "id"], []),
        (
            "SELECT id, n + 1 AS m FROM t ORDER BY k, m * 2, k DESC",
            ["__o0", "__o1", "__o0 DESC"],
            ["t.k", "t.n + 1 * 2"],
        ),
        ("SELECT id AS k FROM t ORDER BY k, t.k", ["k", "__o0"], ["t.k"]),
        ("SELECT k FROM s GROUP BY k ORDER BY COUNT(*) DESC", ["__o0 DESC"], ["__a0"]),
        ("SELECT * FROM t ORDER BY 3", ["n"], []),
        ("SELECT k FROM s UNION SELECT k FROM t ORDER BY k DESC", ["k DESC"], []),
        ("SELECT DISTINCT k, v FROM s ORDER BY v, 1", ["v", "k"], []),
    ],
)
def test_an_item_is_a_column_of_the_answer_or_one_beside_it(
    ordered_catalog: Catalog, text: str, items: list[str], beside: list[str]
) -> None:
    pull = read(text, ordered_catalog)
    assert order(pull) == items
    found = shown(pull.query.outputs[pull.shown :]) if isinstance(pull.query, Block) else []
    assert [each.split(" = ", 1)[1].replace("(", "").replace(")", "") for each in found] == beside


def test_nulls_and_offset_are_kept(ordered_catalog: Catalog) -> None:
    pull = read("SELECT id FROM t ORDER BY n DESC NULLS FIRST OFFSET 3", ordered_catalog)
    assert pull.order == (OrderItem("__o0", descending=True, nulls_first=True),)
    assert (pull.offset, pull.outputs[0][0], len(pull.outputs)) == (3, "id", 1)


def test_an_order_inside_another_query_says_nothing_without_limit(ordered_catalog: Catalog) -> None:
    with_order = read("SELECT id FROM (SELECT id FROM t ORDER BY n) AS q", ordered_catalog)
    assert with_order == read("SELECT id FROM (SELECT id FROM t) AS q", ordered_catalog)


@pytest.mark.parametrize(
    ("text", "error", "column"),
    [
        ("SELECT id FROM t ORDER BY 2", InvalidQuery, 27),
        ("SELECT id FROM t ORDER BY nope", UnknownName, 27),
        ("SELECT DISTINCT k FROM s ORDER BY v", UnknownName, 35),
        ("SELECT DISTINCT k FROM s ORDER BY k || 'x'", InvalidQuery, 35),
        ("SELECT k FROM s UNION SELECT k FROM t ORDER BY n", UnknownName, 48),
        ("SELECT k FROM s UNION SELECT k FROM t ORDER BY LEN(k)", InvalidQuery, 48),
        ("SELECT k, COUNT(*) FROM s GROUP BY 3", InvalidQuery, 36),
        ("SELECT k, COUNT(*) FROM s GROUP BY 2", InvalidQuery, 17),
        ("SELECT k FROM s PARTITION BY k", NotSupported, 8),
        ("SELECT k FROM (SELECT k FROM s EMIT CHANGES) AS q", NotSupported, 23),
    ],
)
def test_what_is_wrong_says_where(ordered_catalog: Catalog, text: str, error: type[SqlError], column: int) -> None:
    with pytest.raises(error) as caught:
        read(text, ordered_catalog)
    assert caught.value.column == column


# The names of columns that nobody named: those of PostgreSQL (its `FigureColname`).


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("COUNT(*)", "count"),
        ("t.a", "a"),
        ("(a)", "a"),
        ("a->b", "b"),
        ("x[1]", "x"),
        ("a::int", "a"),
        ("SUM(a)::int", "sum"),
        ("CAST(3.5 AS INT)", "int4"),
        ("'x'::text", "text"),
        ("1::decimal(5, 2)", "numeric"),
        ("(a + 1)::bigint", "int8"),
        ("DATE '2024-05-01'", "date"),
        ("TRUE", "bool"),
        ("a + 1", "?column?"),
        ("-a", "?column?"),
        ("1", "?column?"),
        ("NULL", "?column?"),
        ("a IS NULL", "?column?"),
        ("CASE WHEN a THEN 1 ELSE b END", "b"),
        ("CASE WHEN a THEN 1 ELSE 2 END", "case"),
        ("CASE WHEN a THEN 1 END", "case"),
        ("COALESCE(a, b)", "coalesce"),
        ("EXTRACT(year FROM a)", "extract"),
        ("ARRAY[1]", "array"),
        ("EXISTS (SELECT 1 FROM t)", "exists"),
        ("(SELECT MAX(x) FROM t)", "max"),
        ("(SELECT x AS y FROM t)", "y"),
        ("SUM(a) OVER (PARTITION BY b)", "sum"),
        ("COUNT(DISTINCT a) FILTER (WHERE b)", "count"),
    ],
)
def test_a_column_is_called_as_in_postgresql(item: str, name: str) -> None:
    (node,) = parse_query(f"SELECT {item} FROM t").selects
    assert column_name(node) == name


# The refusals of a pull query speak of the query: whoever asks one has no view, and maintains nothing.

REFUSED_SOURCES = "CREATE STREAM s (id INT KEY, k VARCHAR, v INT, a ARRAY<INT>);"


@pytest.fixture
def refused_catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, REFUSED_SOURCES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT EXPLODE(a), COUNT(*) FROM s GROUP BY k", "EXPLODE in a query that groups is not supported yet"),
        ("SELECT TOPK(DISTINCT v, 2) FROM s", "is not supported"),
        ("SELECT COLLECT_LIST(v ORDER BY k, k || 'x' DESC) FROM s", "VARCHAR in both directions, is not supported"),
        ("SELECT COLLECT_LIST(DISTINCT v ORDER BY k) FROM s", "is ordered by the value itself"),
        ("SELECT id FROM s WHERE GROUPING(id) = 1", "it belongs into the SELECT list, HAVING or QUALIFY"),
        ("SELECT (SELECT MAX(t.v)) FROM s AS t", "MAX in a subquery over columns of the query around it alone"),
        ("SELECT id FROM s AS t WHERE 1 IN (SELECT MAX(t.v) FROM s)", "MAX in a subquery over columns of the query"),
        ("SELECT REGEXP_EXTRACT('a(b)', k, 40) FROM s", "there is no group 40"),
        ("SELECT FIRST_VALUE(1)", "a query without FROM has none"),
        ("SELECT MODE() WITHIN GROUP (ORDER BY v DESC) FROM s", "of several values, MODE gives the smallest"),
        ("SELECT NOW() FROM s", "a query gives the same rows of the same tables each time"),
    ],
)
def test_a_refused_pull_query_is_told_of_no_view(text: str, message: str, refused_catalog: Catalog) -> None:
    with pytest.raises(SqlError, match=message) as refused:
        read_pull(parse_query(text), refused_catalog)
    assert not any(word in str(refused.value) for word in ("a view", "maintain"))


def test_the_clock_of_ksqldb_is_the_moment_of_the_query() -> None:
    """As NOW() is; with an argument the names are functions of it."""
    moment = dt.datetime(2024, 2, 29, 12, 0, 0, 5999, tzinfo=dt.UTC)
    text = "SELECT UNIX_TIMESTAMP() AS a, UNIX_DATE() AS b, UNIX_DATE(CAST('1970-01-02' AS DATE)) AS c FROM s"
    tree = with_moment(parse_query(text), (), moment, "ksql")
    values = [each.this.sql() for each in tree.selects]
    assert values[:2] == ["CAST('1709208000005' AS BIGINT)", "CAST('19782' AS INT)"]
    assert "1709208000005" not in values[2]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("TRANSFORM(ARRAY[1, 2], x => x + (SELECT 10))", [11, 12]),
        ("LENGTH(LIST_WHERE([1], (SELECT LIST(TRUE) FROM RANGE(3))))", 3),
        ("TRANSFORM(ARRAY[ARRAY[1, 2]], y => TRANSFORM(y, x => x * (SELECT 7) + y[1] + (SELECT 100)))", [[108, 115]]),
        ("REDUCE(ARRAY[1, 2], (SELECT 5), (s, x) => s + x * (SELECT 2) + (SELECT 2))", 15),
        ("TRANSFORM(ARRAY[1, 3], x => EXISTS (SELECT 1) AND x IN (1, (SELECT 2)))", [True, False]),
        ("TRANSFORM(ARRAY[1], x => x * (SELECT CAST(NULL AS INT)))", [None]),
        ("CASE WHEN FALSE THEN TRANSFORM(ARRAY[1], x => x / (SELECT 0)) END", None),
        ("(SELECT TRANSFORM(a, x => x + (SELECT m * 2)) FROM (VALUES (ARRAY[1], 4)) AS t (a, m))", [9]),
    ],
)
def test_a_query_in_a_lambda_function_is_the_same_for_each_item(select: str, expected: object, tmp_path: Path) -> None:
    (answer,) = Interpreter(load_settings(lake=tmp_path / "lake")).run(f"SELECT {select}")
    assert isinstance(answer, Rows)
    assert list(answer.rows) == [(expected,)]


@pytest.mark.parametrize("failing", ["1 / (SELECT 0)", "TRANSFORM(ARRAY[1], x => x / (SELECT 0))"])
def test_what_fails_is_said_as_it_was_written(failing: str, tmp_path: Path) -> None:
    results = Interpreter(load_settings(lake=tmp_path / "lake")).run(f"SELECT {failing}")
    with pytest.raises(InvalidQuery) as found:
        list(results)
    assert f"fails on a row: {failing} (" in str(found.value)
