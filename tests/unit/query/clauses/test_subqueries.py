"""Subqueries of expressions: which inputs they become, where they cannot stand. Their meaning: test_read."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.logical import Block, SetOperation, relations_of
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of, run
from tests.support.query_text import NESTING_SOURCES, block, joins, read, shown, sql


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, NESTING_SOURCES)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("id IN (SELECT t_id FROM u WHERE m > 1)", "semi u __s0 ON t.id = __s0.t_id AND __s0.m > 1"),
        ("id NOT IN (SELECT id FROM u)", "anti u __s0 ON t.id = __s0.id"),
        ("n NOT IN (SELECT id FROM u)", "anti u __s0 ON (t.n = __s0.id OR t.n IS NULL)"),
        ("id NOT IN (SELECT m FROM u)", "anti u __s0 ON (t.id = __s0.m OR __s0.m IS NULL)"),
        (
            "id NOT IN (SELECT m FROM u WHERE m IS NOT NULL)",
            "anti u __s0 ON t.id = __s0.m AND NOT __s0.m IS NULL",
        ),
        (
            "EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.m > n)",
            "semi u __s0 ON __s0.t_id = t.id AND __s0.m > t.n",
        ),
        ("NOT EXISTS (SELECT * FROM u WHERE u.t_id = t.id)", "anti u __s0 ON __s0.t_id = t.id"),
        ("k IN (SELECT k FROM s GROUP BY k)", "semi (query) __s0 ON t.k = __s0.k"),
    ],
)
def test_a_condition_with_a_subquery_is_a_join(catalog: Catalog, condition: str, wanted: str) -> None:
    found = block(f"SELECT id FROM t WHERE n > 0 AND {condition}", catalog)
    assert joins(found) == ["inner t", wanted.replace("NOT __s0.m IS NULL", "__s0.m IS NOT NULL")]
    assert sql(found.where) == "t.n > 0"
    assert found.key == ("id",)


def test_one_row_for_all_is_a_join_without_a_condition(catalog: Catalog) -> None:
    text = "SELECT id, n - (SELECT MAX(m) AS top FROM u) AS d FROM t WHERE n < (SELECT MAX(m) AS top FROM u)"
    found = block(text, catalog)
    assert joins(found) == ["inner t", "left (query) __s0 one_row"]
    assert shown(found.outputs) == ["id = t.id", "d = t.n - __s0.top"]


def test_a_value_that_depends_on_the_row_is_grouped_by_what_it_depends_on(catalog: Catalog) -> None:
    found = block("SELECT id, (SELECT COUNT(*) AS c FROM u WHERE u.t_id = t.id AND m > 0) AS c FROM t", catalog)
    assert joins(found) == ["inner t", "left (query) __s0 ON __s0.__c0 = t.id"]
    assert shown(found.outputs)[1] == "c = CASE WHEN __s0.__c0 IS NULL THEN CAST(0 AS BIGINT) ELSE __s0.c END"
    inner = found.inputs[1].source
    assert isinstance(inner, Block)
    assert inner.group is not None
    assert (shown(inner.group), sql(inner.where)) == (["__c0 = u.t_id"], "u.m > 0")


def test_values_beside_groups_are_joined_to_the_groups(catalog: Catalog) -> None:
    found = block("SELECT k, COUNT(*) AS c FROM s GROUP BY k HAVING COUNT(*) > (SELECT MAX(n) AS m FROM t)", catalog)
    assert joins(found) == ["inner (query) __g", "left (query) __s0 one_row"]
    assert (shown(found.outputs), sql(found.where)) == (["k = __g.k", "c = __g.__a0"], "__g.__a0 > __s0.m")
    assert found.key == ("k",)


def test_a_common_table_expression_is_read_once_and_used_often(catalog: Catalog) -> None:
    found = block(
        "WITH a AS (SELECT k, SUM(v) AS x FROM s GROUP BY k) SELECT l.k FROM a l JOIN a r ON l.x = r.x", catalog
    )
    left, right = found.inputs
    assert left.source is right.source


def test_a_subquery_in_from_keeps_the_time_of_its_events(catalog: Catalog) -> None:
    found = block("SELECT q.k, q.ROWTIME AS t FROM (SELECT k FROM s WHERE v > 0) q", catalog)
    assert shown(found.outputs)[1] == "t = UNIX_TIMESTAMP(q._timestamp)"
    with pytest.raises(InvalidQuery, match="ROWTIME"):
        block("SELECT q.ROWTIME AS t FROM (SELECT k FROM s GROUP BY k) q", catalog)


def test_branches_convert_to_the_common_types_and_take_the_first_names(catalog: Catalog) -> None:
    found = read("SELECT k, v FROM s UNION ALL SELECT k, CAST(n AS BIGINT) AS big FROM t", catalog)
    assert isinstance(found, SetOperation)
    assert [name for name, _ in found.outputs] == ["k", "v"]
    first, second = found.branches
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    assert shown(first.outputs) == ["k = s.k", "v = CAST(s.v AS BIGINT)"]
    assert [output.name for output in second.outputs] == ["k", "v"]


def test_a_view_reads_what_its_subqueries_read(catalog: Catalog) -> None:
    text = "CREATE MATERIALIZED VIEW v AS SELECT id, (SELECT MAX(m) FROM u) AS m FROM t WHERE k IN (SELECT k FROM s)"
    assert {each.name for each in relations_of(read(text[29:], catalog))} == {"t", "u", "s"}
    found = run(text, catalog)
    assert getattr(found, "inputs", None) is not None
    assert set(found.inputs) == {"t", "u", "s"}  # type: ignore[union-attr]


def test_an_event_log_that_is_looked_up_is_an_input_by_the_tables_name(catalog: Catalog) -> None:
    found = run("CREATE STREAM v AS SELECT s.id, n FROM s JOIN t ON s.id = t.id", catalog)
    assert found.inputs == ("s", "t")  # type: ignore[union-attr]
    query = block("CREATE STREAM w AS SELECT s.id, n FROM s JOIN t ON s.id = t.id", catalog)
    source = query.inputs[1].source
    assert isinstance(source, Relation)
    assert source.name == "t__log"


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT id, id IN (SELECT t_id, m FROM u) AS x FROM t", InvalidQuery, "one column, not 2"),
        ("SELECT id FROM t WHERE id IN (SELECT t_id, m FROM u)", InvalidQuery, "one column, not 2"),
        ("SELECT id FROM t WHERE k IN (SELECT m FROM u)", TypeMismatch, "cannot compare"),
        (
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND NOT EXISTS (SELECT 1 FROM s"
            " WHERE s.id = u.id AND s.v IN (SELECT s.v FROM s LEFT JOIN u AS w ON w.m = t.n)))",
            NotSupported,
            "cannot be read here",
        ),
        ("SELECT id FROM t WHERE id IN (SELECT nope FROM u)", UnknownName, "'nope'"),
        ("SELECT q.x FROM (SELECT k FROM s) q", UnknownName, "unknown column 'x'"),
        ("WITH a AS (SELECT k FROM s), a AS (SELECT k FROM t) SELECT k FROM a", InvalidQuery, "named 'a'"),
        ("SELECT k FROM s UNION SELECT k, n FROM t", InvalidQuery, "1 columns, the other 2"),
        ("SELECT k FROM s UNION SELECT n FROM t", TypeMismatch, "VARCHAR on one side"),
    ],
)
def test_subqueries_that_cannot_be(catalog: Catalog, query: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        read(query, catalog)
    assert type(caught.value) is error
