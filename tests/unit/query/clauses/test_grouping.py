"""GROUP BY: sets of groups, DISTINCT and FILTER of a call, HAVING."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.query.inputs import marks_in
from tests.support.query_text import block, shown, sql


@pytest.mark.parametrize(
    ("clause", "sets"),
    [
        ("k, v", ()),
        ("(k, v)", ()),
        ("ROLLUP (k, v)", ((0, 1), (0,), ())),
        ("CUBE (k, v)", ((0, 1), (0,), (1,), ())),
        ("GROUPING SETS ((k, v), k, ())", ((0, 1), (0,), ())),
        ("k, ROLLUP (v)", ((0, 1), (0,))),
        ("GROUPING SETS (ROLLUP (k, v), (v))", ((0, 1), (0,), (), (1,))),
        ("ROLLUP ((k, v))", ((0, 1), ())),
        ("k, v WITH ROLLUP", ((0, 1), (0,), ())),
        ("k, v WITH CUBE", ((0, 1), (0,), (1,), ())),
    ],
)
def test_grouping_sets_are_sets_of_group_numbers(catalog: Catalog, clause: str, sets: tuple[tuple[int, ...]]) -> None:
    found = block(f"SELECT k, v, COUNT(*) AS c FROM s GROUP BY {clause}", catalog)
    assert found.group is not None
    assert (shown(found.group), found.sets) == (["k = s.k", "v = s.v"], sets)


@pytest.mark.parametrize("clause", ["ROLLUP (k), v WITH CUBE", "k WITH ROLLUP WITH CUBE"])
def test_with_rollup_is_about_plain_expressions(catalog: Catalog, clause: str) -> None:
    with pytest.raises(InvalidQuery, match="WITH"):
        block(f"SELECT k, v, COUNT(*) AS c FROM s GROUP BY {clause}", catalog)


def test_too_many_grouping_sets_are_refused(catalog: Catalog) -> None:
    many = ", ".join(f"v + {number}" for number in range(8))
    with pytest.raises(InvalidQuery, match="256 grouping sets"):
        block(f"SELECT COUNT(*) AS c FROM s GROUP BY CUBE ({many})", catalog)


def test_grouping_sets_have_no_meaning_in_ksqldbs_semantics(catalog: Catalog) -> None:
    """A group that falls to zero stays there, and that of a set would have to stay as well: nobody says so."""
    with pytest.raises(NotSupported, match="ksqlDB has none"):
        block(
            "CREATE MATERIALIZED VIEW w WITH (SEMANTICS = 'ksql') AS"
            " SELECT k, COUNT(*) AS c FROM s GROUP BY ROLLUP (k)",
            catalog,
        )


def test_distinct_and_filter_belong_to_the_call(catalog: Catalog) -> None:
    found = block("SELECT k, COUNT(DISTINCT v) FILTER (WHERE v > 0) AS c, COUNT(v) AS d FROM s GROUP BY k", catalog)
    first, second = found.calls
    assert (first.distinct, sql(first.filter), second.distinct, second.filter) == (True, "s.v > 0", False, None)
    assert shown(found.outputs) == ["k", f"c = {first.name}", f"d = {second.name}"]


def test_having_without_group_by_is_over_one_group(catalog: Catalog) -> None:
    found = block("SELECT COUNT(*) AS c FROM s HAVING SUM(v) > 3", catalog)
    assert (found.group, len(found.calls), sql(found.having)) == ((), 2, "__a1 > 3")


def test_grouping_is_read_from_marks_of_the_groups(catalog: Catalog) -> None:
    found = block("SELECT k, GROUPING(v, k) AS g, GROUPING_ID() AS i FROM s GROUP BY ROLLUP (k, v)", catalog)
    assert shown(found.outputs) == [
        "k",
        "g = (__grouping_1 * 2 + __grouping_0)",
        "i = (__grouping_0 * 2 + __grouping_1)",
    ]
    assert marks_in(found) == (0, 1)
    assert marks_in(block("SELECT k, GROUPING(k) AS g FROM s GROUP BY k", catalog)) == ()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k, GROUPING(v) AS g FROM s GROUP BY k", "not among the expressions of GROUP BY"),
        ("SELECT GROUPING(k) AS g FROM s", "about columns of GROUP BY"),
        ("SELECT k, GROUPING() AS g FROM s GROUP BY k", "about columns of GROUP BY"),
        ("SELECT k, SUM(GROUPING(k)) AS g FROM s GROUP BY ROLLUP (k)", "cannot stand here"),
        ("SELECT k, COUNT(*) AS g FROM s WHERE GROUPING(k) = 0 GROUP BY ROLLUP (k)", "cannot stand here"),
    ],
)
def test_grouping_is_about_the_groups(catalog: Catalog, query: str, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        block(query, catalog)
