"""WINDOW, GROUP BY with sets, functions over partitions, PARTITION BY: what the clauses of one SELECT become."""

from __future__ import annotations

import pytest

from jobs.catalog.catalog import Catalog
from jobs.model.errors import InvalidQuery, NotSupported, SqlError, SqlSyntaxError, TypeMismatch, UnknownName
from jobs.query.clauses.logical import TimeWindow
from jobs.sql.dialect import sql_of
from jobs.sql.from_text import parse_query
from state_store.layout import Lake
from tests.query_text import block, joins, shown, sql
from tests.statements import catalog_of

SOURCES = """
CREATE STREAM s (id INT KEY, k VARCHAR, v INT, tags ARRAY<VARCHAR>, who STRUCT<name VARCHAR, age INT>);
CREATE STREAM r (id INT KEY, w INT);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);
"""
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return catalog_of(lake, SOURCES)


# --- WINDOW ---------------------------------------------------------------------------------------------------------


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


# --- GROUP BY -------------------------------------------------------------------------------------------------------


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
    ],
)
def test_grouping_sets_are_sets_of_group_numbers(catalog: Catalog, clause: str, sets: tuple[tuple[int, ...]]) -> None:
    found = block(f"SELECT k, v, COUNT(*) AS c FROM s GROUP BY {clause}", catalog)
    assert found.group is not None
    assert (shown(found.group), found.sets) == (["k = s.k", "v = s.v"], sets)


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


# --- OVER -----------------------------------------------------------------------------------------------------------


def test_functions_over_a_partition_become_plain_columns(catalog: Catalog) -> None:
    found = block(
        "SELECT id, RANK() OVER (PARTITION BY k ORDER BY v DESC) AS place,"
        " SUM(v) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) * 2 AS x"
        " FROM s WHERE v > 0 QUALIFY place <= 3 AND k <> 'a'",
        catalog,
    )
    assert shown(found.outputs) == ["id = s.id", "place = __w0", "x = __w1 * 2"]
    assert [sql_of(each) for each in found.partition] == ["s.k"]
    assert sql(found.qualify) == "__w0 <= 3 AND s.k <> 'a'"
    rank, total = found.analytic
    assert (rank.function, [(sql_of(n), down) for n, down, _ in rank.order], rank.frame) == (
        "RANK",
        [("s.v", True)],
        None,
    )
    assert (total.function, total.frame) == ("SUM", "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW")


def test_functions_over_groups_read_groups_and_calls(catalog: Catalog) -> None:
    found = block("SELECT k, DENSE_RANK() OVER (PARTITION BY k ORDER BY COUNT(*)) AS p FROM s GROUP BY k", catalog)
    (call,) = found.analytic
    assert [sql_of(node) for node, _, _ in call.order] == ["__a0"]
    assert [sql_of(each) for each in found.partition] == ["k"]


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT RANK() OVER (PARTITION BY k) AS p FROM s", InvalidQuery, "needs an order"),
        ("SELECT MEDIAN(v) OVER (PARTITION BY k) AS p FROM s", UnknownName, "window function 'MEDIAN'"),
        (
            "SELECT COUNT(*) OVER (PARTITION BY k) AS a, COUNT(*) OVER (PARTITION BY v) AS b FROM s",
            NotSupported,
            "share one PARTITION BY",
        ),
        ("SELECT LAG(v, v) OVER (PARTITION BY k ORDER BY v) AS p FROM s", TypeMismatch, "whole number"),
        ("SELECT RANK(v) OVER (PARTITION BY k ORDER BY v) AS p FROM s", TypeMismatch, "takes 0 arguments"),
        ("SELECT k FROM s QUALIFY k > 'a'", InvalidQuery, "needs a function OVER"),
        ("SELECT k FROM s ORDER BY k", NotSupported, "QUALIFY|ORDER BY"),
        ("SELECT k FROM s WHERE RANK() OVER (ORDER BY v) < 3", InvalidQuery, "OVER"),
    ],
)
def test_functions_over_partitions_that_cannot_be(
    catalog: Catalog, query: str, error: type[SqlError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        block(query, catalog)
    assert type(caught.value) is error


# --- the SELECT list ------------------------------------------------------------------------------------------------


def test_explode_repeats_rows_for_the_items(catalog: Catalog) -> None:
    found = block("CREATE STREAM v AS SELECT id, EXPLODE(tags) AS tag, UCASE(EXPLODE(tags)) AS t FROM s", catalog)
    (items,) = found.expand
    assert sql_of(items.expression) == "s.tags"
    assert shown(found.outputs) == ["id = s.id", f"tag = {items.name}", f"t = UCASE({items.name})"]


def test_a_struct_gives_its_fields(catalog: Catalog) -> None:
    found = block("SELECT who->*, who->name AS n FROM s", catalog)
    assert shown(found.outputs) == ["name = s.who->name", "age = s.who->age", "n = s.who->name"]


def test_expressions_without_a_name_are_numbered_past_names_that_are_there(lake: Lake) -> None:
    catalog = catalog_of(lake, "CREATE STREAM x (ksql_col_1 INT, a STRUCT<b INT>, b INT);")
    found = block("CREATE STREAM v AS SELECT b + 1, b + 2, b, a->b FROM x", catalog)
    assert [output.name for output in found.outputs] == ["ksql_col_0", "ksql_col_2", "b", "b_1"]


# --- PARTITION BY ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "key", "names"),
    [
        ("SELECT id, k FROM s PARTITION BY k", ("k",), ["id", "k"]),
        ("SELECT id, k FROM s PARTITION BY NULL", (), ["id", "k"]),
        ("SELECT * FROM r PARTITION BY w + id", ("ksql_col_0",), ["ksql_col_0", "id", "w"]),
        ("SELECT k, v + 1 AS x FROM s PARTITION BY v + 1, k", ("x", "k"), ["k", "x"]),
    ],
)
def test_partition_by_makes_the_key(catalog: Catalog, query: str, key: tuple[str, ...], names: list[str]) -> None:
    found = block(f"CREATE STREAM v AS {query}", catalog)
    assert (found.key, [output.name for output in found.outputs]) == (key, names)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id, k FROM s PARTITION BY NULL, k", "stands alone"),
        ("SELECT id, k FROM t PARTITION BY k", "for streams"),
        ("SELECT k, COUNT(*) FROM s GROUP BY k PARTITION BY k", "for streams"),
    ],
)
def test_partition_by_that_cannot_be(catalog: Catalog, query: str, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        block(f"CREATE STREAM v AS {query}", catalog)
