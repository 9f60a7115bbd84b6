"""Queries in the expressions of a pull query: what they read of the row around them, and what is refused."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, SqlError, TypeMismatch, UnknownName
from strandline.jobs.query.clauses.read_pull import read_pull
from strandline.jobs.query.logical.pull import PullQuery
from strandline.jobs.query.logical.query import Block
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import Lake
from tests.support.catalog_from_sql import catalog_of
from tests.support.query_text import NESTING_SOURCES, shown, sql


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
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
