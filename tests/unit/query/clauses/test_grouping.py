"""GROUP BY: sets of groups, DISTINCT and FILTER of a call, HAVING; and WINDOW."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, SqlSyntaxError, UnknownName
from strandline.jobs.query.inputs import marks_in
from strandline.jobs.query.logical import TimeWindow
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query
from tests.support.query_text import block, joins, shown, sql


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


# WINDOW: its parts, its bounds, its time, and windows that cannot be.

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("clause", "wanted"),
    [
        ("TUMBLING (SIZE 1 HOUR)", TimeWindow("tumbling", HOUR, HOUR, None)),
        ("TUMBLING (SIZE 90 SECONDS, GRACE PERIOD 0 SECONDS)", TimeWindow("tumbling", 90_000, 90_000, 0)),
        ("HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES)", TimeWindow("hopping", HOUR, 10 * MINUTE, None)),
        (
            "HOPPING (GRACE PERIOD 1 DAY, RETENTION 1 YEAR, ADVANCE BY 1 MILLISECOND, SIZE 2 DAYS)",
            TimeWindow("hopping", 2 * DAY, 1, DAY, 365 * DAY),
        ),
        ("SESSION (5 MINUTES, GRACE PERIOD 1 HOUR)", TimeWindow("session", 5 * MINUTE, 5 * MINUTE, HOUR)),
    ],
)
def test_the_parts_of_a_window(catalog: Catalog, clause: str, wanted: TimeWindow) -> None:
    found = block(f"SELECT k, COUNT(*) AS c FROM s WINDOW {clause} WHERE v > 0 GROUP BY k", catalog)
    assert found.window == wanted
    assert sql(found.time) == "s._timestamp"
    assert sql(found.where) == "s.v > 0"


@pytest.mark.parametrize(
    ("statement", "end", "grace", "final"),
    [
        ("CREATE MATERIALIZED VIEW v", "", None, False),
        ("CREATE TABLE v", "EMIT CHANGES", DAY, False),
        ("CREATE TABLE v", "EMIT FINAL", 0, True),
    ],
)
def test_how_long_a_window_waits_when_it_is_not_said(
    catalog: Catalog, statement: str, end: str, grace: int | None, final: bool
) -> None:
    found = block(f"{statement} AS SELECT k, COUNT(*) FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k {end}", catalog)
    assert found.window == TimeWindow("tumbling", HOUR, HOUR, grace, final=final)


def test_the_bounds_of_a_window_can_be_selected(catalog: Catalog) -> None:
    found = block(
        "SELECT k, WINDOWSTART, WINDOWEND - WINDOWSTART AS size FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k",
        catalog,
    )
    assert shown(found.outputs) == ["k", "windowstart", "size = windowend - windowstart"]
    assert found.key == ("k",)


def test_a_window_over_a_join_goes_by_the_greatest_time(catalog: Catalog) -> None:
    found = block(
        "SELECT s.k, COUNT(*) AS c FROM s JOIN r ON s.id = r.id WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY s.k", catalog
    )
    assert sql(found.time) == "GREATEST(s._timestamp, r._timestamp)"
    assert joins(found) == ["inner s", "inner r ON s.id = r.id"]


def test_what_is_stored_of_a_query_reads_back_as_the_same(catalog: Catalog) -> None:
    text = (
        "SELECT s.k, COUNT(*) AS c FROM s JOIN r WITHIN (1 SECOND, 1 HOUR) GRACE PERIOD 1 DAY ON s.id = r.id WINDOW"
        " HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE, RETENTION 2 DAYS, GRACE PERIOD 1 HOUR) WHERE s.v > 0 GROUP BY s.k"
        " HAVING COUNT(*) > 1 EMIT FINAL"
    )
    stored = sql_of(parse_query(text))
    assert sql_of(parse_query(stored)) == stored
    assert block(stored, catalog) == block(text, catalog)


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 1 HOUR)", InvalidQuery, "needs GROUP BY"),
        ("SELECT k, COUNT(*) AS c FROM s GROUP BY k EMIT FINAL", InvalidQuery, "EMIT FINAL"),
        ("SELECT k FROM s WINDOW HOPPING (SIZE 1 SECOND, ADVANCE BY 1 HOUR) GROUP BY k", InvalidQuery, "ADVANCE BY"),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 1 DAY, RETENTION 1 HOUR) GROUP BY k", InvalidQuery, "RETENTION"),
        ("SELECT k, v AS windowend FROM s", InvalidQuery, "reserved"),
        ("SELECT k, WINDOWSTART AS w FROM s", UnknownName, "windowstart"),
        (
            "SELECT k, COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k, WINDOWSTART",
            InvalidQuery,
            "grouped by their window already",
        ),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 1 FORTNIGHT) GROUP BY k", SqlSyntaxError, "unit of time"),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 0 HOURS) GROUP BY k", SqlSyntaxError, "more than 0"),
        ("SELECT k FROM s WINDOW TUMBLING (ADVANCE BY 1 HOUR) GROUP BY k", SqlSyntaxError, "expected SIZE"),
        ("SELECT k FROM s WINDOW HOPPING (SIZE 1 HOUR) GROUP BY k", SqlSyntaxError, "needs ADVANCE BY"),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 1 HOUR, SIZE 1 HOUR) GROUP BY k", SqlSyntaxError, "given twice"),
        ("SELECT k FROM s WITHIN 1 HOUR", InvalidQuery, "belongs to a JOIN"),
    ],
)
def test_windows_that_cannot_be(catalog: Catalog, query: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        block(query, catalog)
    assert type(caught.value) is error
