"""Joins: what each becomes, what its columns are called, and what cannot be joined."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of, run
from tests.support.query_text import block, joins, shown, sql

SOURCES = """
CREATE STREAM orders (id INT KEY, customer INT, item VARCHAR);
CREATE STREAM payments (id INT KEY, amount INT);
CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR, city INT);
CREATE TABLE cities (id INT PRIMARY KEY, label VARCHAR);
"""


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)


def test_columns_are_qualified_with_their_input(catalog: Catalog) -> None:
    found = block("SELECT o.id, name FROM orders o JOIN customers c ON customer = c.id WHERE item = 'x'", catalog)
    assert joins(found) == ["inner orders o", "inner customers c ON o.customer = c.id"]
    assert shown(found.outputs) == ["id = o.id", "name = c.name"]
    assert sql(found.where) == "o.item = 'x'"


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("JOIN cities t ON c.city = t.id", ["inner customers c", "inner cities t ON c.city = t.id"]),
        ("LEFT OUTER JOIN cities t ON c.city = t.id", ["inner customers c", "left cities t ON c.city = t.id"]),
        ("RIGHT JOIN cities t ON c.city = t.id", ["inner cities t", "left customers c ON c.city = t.id"]),
        ("FULL JOIN cities t ON c.city = t.id", ["inner customers c", "full cities t ON c.city = t.id"]),
        ("JOIN cities t USING (id)", ["inner customers c", "inner cities t ON c.id = t.id"]),
        ("NATURAL JOIN cities t", ["inner customers c", "inner cities t ON c.id = t.id"]),
        (
            "JOIN cities t ON (c.city = t.id AND (t.label = 'a' OR c.id > 1))",
            ["inner customers c", "inner cities t ON c.city = t.id AND (t.label = 'a' OR c.id > 1)"],
        ),
    ],
)
def test_each_kind_of_join(catalog: Catalog, written: str, wanted: list[str]) -> None:
    found = block(f"SELECT c.name, t.label FROM customers c {written}", catalog)
    assert joins(found) == wanted
    assert [output.name for output in found.outputs] == ["name", "label"]


def test_a_comma_join_takes_its_condition_out_of_where(catalog: Catalog) -> None:
    found = block(
        "SELECT c.name FROM customers c, cities t, orders o WHERE c.city = t.id AND o.customer = c.id AND o.id > 1",
        catalog,
    )
    assert joins(found) == [
        "inner customers c",
        "inner cities t ON c.city = t.id",
        "inner orders o ON o.customer = c.id",
    ]
    assert sql(found.where) == "o.id > 1"


def test_a_relation_of_one_row_joins_without_a_condition(catalog: Catalog) -> None:
    found = block("SELECT c.id FROM customers c, (SELECT MAX(id) AS m FROM cities) x WHERE c.city < x.m", catalog)
    assert joins(found) == ["inner customers c", "inner (query) x one_row"]


# --- streams and tables ---------------------------------------------------------------------------------------------


def test_an_event_joins_the_table_as_it_was_at_its_time(catalog: Catalog) -> None:
    query = "SELECT o.id, name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    assert joins(block(f"CREATE STREAM v AS SELECT o.customer, {query[7:]}", catalog)) == [
        "inner orders o",
        "left customers__log c ON o.customer = c.id frozen as_of",
    ]
    assert joins(block(query, catalog)) == ["inner orders o", "left customers c ON o.customer = c.id"]


def test_a_view_that_is_joined_by_events_is_looked_up_as_it_is(catalog: Catalog, lake: LakeLayout) -> None:
    more = catalog_of(lake, "CREATE TABLE totals AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer;")
    found = block(
        "CREATE STREAM v AS SELECT o.customer, n FROM orders o JOIN totals t ON o.customer = t.customer", more
    )
    assert joins(found) == ["inner orders o", "inner totals t ON o.customer = t.customer frozen"]


def test_within_is_a_condition_on_both_times(catalog: Catalog) -> None:
    found = block(
        "CREATE STREAM v AS SELECT o.id, amount FROM orders o JOIN payments p WITHIN (1 SECOND, 2 MINUTES)"
        " ON o.id = p.id",
        catalog,
    )
    assert joins(found)[1] == (
        "inner payments p ON o.id = p.id AND UNIX_TIMESTAMP(p._timestamp) BETWEEN"
        " UNIX_TIMESTAMP(o._timestamp) - 1000 AND UNIX_TIMESTAMP(o._timestamp) + 120000"
    )


def test_events_are_kept_for_their_partners_for_the_window_and_the_grace(catalog: Catalog) -> None:
    found = block(
        "CREATE STREAM v AS SELECT o.id, amount FROM orders o LEFT JOIN payments p WITHIN 1 SECOND"
        " GRACE PERIOD 3 SECONDS ON o.id = p.id",
        catalog,
    )
    kept = "UNIX_TIMESTAMP({0}._stream_time) - UNIX_TIMESTAMP({1}._timestamp) < 5000"
    assert joins(found)[1].endswith(f"AND {kept.format('o', 'p')} AND {kept.format('p', 'o')}")
    assert found.where is None


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SELECT *", ["c_id", "name", "city", "t_id", "label"]),
        ("SELECT t.*, name", ["id", "label", "name"]),
        ("CREATE TABLE v AS SELECT *", ["c_id", "c_name", "c_city", "t_id", "t_label"]),
        ("CREATE TABLE v AS SELECT t.*, name", ["t_id", "t_label", "name"]),
    ],
)
def test_a_star_over_several_inputs_prefixes_what_is_there_twice_and_all_by_the_rules_of_ksql(
    statement: str, names: list[str], catalog: Catalog
) -> None:
    found = block(f"{statement} FROM customers c JOIN cities t ON c.city = t.id", catalog)
    assert [output.name for output in found.outputs] == names


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("CREATE TABLE v AS SELECT c.id, label", ["c_id", "label"]),
        ("CREATE TABLE v AS SELECT c.id AS id, label", ["id", "label"]),
        ("CREATE MATERIALIZED VIEW v AS SELECT c.id, label", ["id", "label"]),
        ("CREATE MATERIALIZED VIEW v AS SELECT c.id, t.id", ["c_id", "t_id"]),
    ],
)
def test_a_column_that_both_inputs_have_is_prefixed(catalog: Catalog, statement: str, names: list[str]) -> None:
    found = block(f"{statement} FROM customers c JOIN cities t ON c.city = t.id", catalog)
    assert [output.name for output in found.outputs] == names


def test_rowtime_of_a_join_is_the_greatest_time(catalog: Catalog) -> None:
    within = "FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id"
    found = block(f"CREATE STREAM v AS SELECT o.id, ROWTIME AS a, p.ROWTIME AS b, o.ROWOFFSET AS c {within}", catalog)
    assert shown(found.outputs)[1:] == [
        "a = UNIX_TIMESTAMP(GREATEST(o._timestamp, p._timestamp))",
        "b = UNIX_TIMESTAMP(p._timestamp)",
        "c = o._offset",
    ]


def test_a_table_has_the_time_of_its_newest_event(catalog: Catalog) -> None:
    found = block("SELECT id, ROWTIME AS t FROM customers", catalog)
    assert shown(found.outputs)[1] == "t = UNIX_TIMESTAMP(customers._timestamp)"


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            "CREATE STREAM v AS SELECT p.id, amount FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id",
            ("p_id",),
        ),
        ("CREATE STREAM v AS SELECT customer, name FROM orders o JOIN customers c ON o.customer = c.id", ("customer",)),
        ("CREATE TABLE v AS SELECT c.id, label FROM customers c JOIN cities t ON c.city = t.id", ("c_id",)),
        ("CREATE TABLE v AS SELECT ROWKEY, name FROM customers c FULL JOIN cities t ON c.id = t.id", ("rowkey",)),
        ("SELECT o.item, c.id FROM orders o JOIN customers c ON o.customer = c.id", ("id",)),
        ("SELECT c.id, t.id AS tid FROM customers c JOIN cities t ON c.name = t.label", ("id", "tid")),
    ],
)
def test_the_key_of_a_join(catalog: Catalog, text: str, key: tuple[str, ...]) -> None:
    assert block(text, catalog).key == key


def test_a_star_over_a_full_join_has_the_key_that_no_column_is(catalog: Catalog) -> None:
    found = block("CREATE TABLE v AS SELECT * FROM customers c FULL JOIN cities t ON c.id = t.id", catalog)
    assert shown(found.outputs)[0] == "rowkey = COALESCE(c.id, t.id)"
    assert found.key == ("rowkey",)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE TABLE v AS SELECT name FROM customers c JOIN cities t ON c.city > t.id", InvalidQuery, "no equality"),
        ("CREATE TABLE v AS SELECT name FROM customers c JOIN cities t ON t.id = 1", InvalidQuery, "no equality"),
        ("CREATE TABLE v AS SELECT name FROM customers c, cities t", InvalidQuery, "no equality"),
        ("SELECT name FROM customers c JOIN cities t ON c.name = t.id", TypeMismatch, "cannot compare"),
        ("SELECT id FROM customers c JOIN cities t ON c.city = t.id", InvalidQuery, "'id' is ambiguous: 'c' and 't'"),
        ("SELECT x.id FROM customers c JOIN cities t ON c.city = t.id", UnknownName, "unknown .* 'x'"),
        ("SELECT name FROM customers c JOIN cities c ON c.city = c.id", InvalidQuery, "two inputs are named 'c'"),
        ("SELECT name FROM customers c LEFT JOIN cities t", InvalidQuery, "needs ON"),
        ("SELECT name FROM customers c JOIN cities t WITHIN 1 HOUR ON c.city = t.id", InvalidQuery, "two streams"),
        (
            "CREATE STREAM v AS SELECT o.id FROM orders o JOIN payments p ON o.id = p.id",
            InvalidQuery,
            "'orders' and 'payments' needs WITHIN",
        ),
        (
            "CREATE STREAM v AS SELECT o.id FROM customers c JOIN orders o ON o.customer = c.id",
            InvalidQuery,
            "a stream joins a table",
        ),
        (
            "CREATE STREAM v AS SELECT o.id FROM orders o FULL JOIN customers c ON o.customer = c.id",
            InvalidQuery,
            "not FULL JOIN",
        ),
        (
            "CREATE STREAM v AS SELECT o.id FROM orders o JOIN customers c ON o.item = c.name",
            InvalidQuery,
            "primary key: id",
        ),
        (
            "CREATE TABLE v AS SELECT c.id FROM customers c JOIN cities t ON c.name = t.label",
            InvalidQuery,
            "primary key: id",
        ),
    ],
)
def test_joins_that_cannot_be(catalog: Catalog, text: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        block(text, catalog)
    assert type(caught.value) is error
    assert caught.value.line is not None or "no equality" in message


def test_within_needs_the_time_of_both_sides(catalog: Catalog) -> None:
    """A stream has none that reads joined streams by the places of their events, shown as columns."""
    within = "WITHIN 1 HOUR ON {0} = p.id"
    run(
        "CREATE STREAM pairs AS SELECT ROWKEY AS k, o.ROWPARTITION AS a, o.ROWOFFSET AS b, p.ROWPARTITION AS c,"
        f" p.ROWOFFSET AS d FROM orders o FULL JOIN payments p {within.format('o.id')};"
        " CREATE STREAM keys AS SELECT k, a FROM pairs;",
        catalog,
    )
    with pytest.raises(NotSupported, match="the rows of 'keys' have none") as caught:
        block(f"CREATE STREAM v AS SELECT keys.k FROM keys JOIN payments p {within.format('keys.k')}", catalog)
    assert caught.value.column is not None
    assert caught.value.hint


def test_an_ambiguous_name_is_pointed_at_with_what_it_may_be(catalog: Catalog) -> None:
    with pytest.raises(InvalidQuery) as caught:
        block("CREATE TABLE v AS SELECT\n  id FROM customers c JOIN cities t ON c.city = t.id", catalog)
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert caught.value.hint == "write c.id or t.id"


def test_the_key_of_an_outer_join_is_never_null_by_the_semantics_of_ksqldb(catalog: Catalog) -> None:
    text = "SELECT o.id, amount FROM orders o RIGHT JOIN payments p WITHIN 1 HOUR ON o.id = p.id"
    assert shown(block(f"CREATE STREAM v AS {text}", catalog).outputs)[0] == "o_id = o.id"
    found = block(f"CREATE STREAM v WITH (SEMANTICS='ksql') AS {text}", catalog)
    assert shown(found.outputs)[0] == "o_id = p.id"
    assert found.key == ("o_id",)
