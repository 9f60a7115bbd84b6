"""CREATE … AS SELECT: the kind, the columns, the key and the fingerprint of a view."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.stored_definition import from_json, to_json
from strandline.jobs.model.definitions import View
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import outputs_of
from strandline.jobs.session.define.view import view_of
from strandline.jobs.sql.statements import CreateView, parse
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of, run
from tests.unit.session.define.defined import shape, view


def test_a_filter_of_a_stream_is_a_stream_and_keeps_its_key(catalog: Catalog) -> None:
    found = view("CREATE STREAM s AS SELECT sensor AS who, n * 2 AS m FROM readings WHERE n > 1 EMIT CHANGES", catalog)
    assert (found.kind, found.inputs, found.materialized) == ("stream", ("readings",), False)
    assert shape(found) == [("who", "VARCHAR", True), ("m", "INT", False)]
    assert found.query == "SELECT sensor AS who, n * 2 AS m FROM readings WHERE n > 1"


def test_a_star_is_the_visible_columns(catalog: Catalog) -> None:
    found = view("CREATE STREAM s AS SELECT r.*, ROWTIME AS t FROM readings r", catalog)
    assert [c.name for c in found.columns] == ["sensor", "reading", "area", "n", "at", "tags", "t"]
    assert found.query == "SELECT r.*, rowtime AS t FROM readings AS r"


def test_a_group_by_is_a_table_keyed_by_its_groups(catalog: Catalog) -> None:
    found = view(
        "CREATE TABLE v AS SELECT UCASE(area) AS place, COUNT(*), AVG(reading) FROM readings r GROUP BY UCASE(r.area)",
        catalog,
    )
    assert found.kind == "table"
    assert shape(found) == [
        ("place", "VARCHAR", True),
        ("ksql_col_0", "BIGINT", False),
        ("ksql_col_1", "DOUBLE", False),
    ]


def test_a_group_that_is_not_selected_leaves_no_visible_key(catalog: Catalog) -> None:
    found = view(
        "CREATE MATERIALIZED VIEW v AS SELECT area, COUNT(*) AS c FROM readings GROUP BY area, sensor", catalog
    )
    assert found.key == ()
    assert set(found.row_key) == {"area", *(column.name for column in found.hidden)}


def test_partition_by_changes_the_key_of_a_stream(catalog: Catalog) -> None:
    found = view("CREATE STREAM p AS SELECT sensor, area FROM readings PARTITION BY area", catalog)
    assert found.key == ("area",)


def test_a_star_also_stands_for_the_time_or_place_that_becomes_the_key(catalog: Catalog) -> None:
    """ROWTIME itself is no name for a column: every row has one."""
    for clause, kind in (("ROWTIME", "BIGINT"), ("ROWPARTITION", "INT"), ("ROWTIME / 1000", "BIGINT")):
        run("CREATE STREAM few (sensor VARCHAR KEY, n INT)", catalog)
        found = view(f"CREATE STREAM p_{kind}_{len(clause)} AS SELECT * FROM few PARTITION BY {clause}", catalog)
        assert shape(found) == [("ksql_col_0", kind, True), ("sensor", "VARCHAR", False), ("n", "INT", False)]


def test_a_projection_of_a_table_is_a_table_with_its_key(catalog: Catalog) -> None:
    found = view("CREATE TABLE v AS SELECT age, id AS the_id FROM users WHERE age > 17", catalog)
    assert (found.kind, found.key) == ("table", ("the_id",))


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT * FROM readings", "stream"),
        ("SELECT * FROM users", "table"),
        ("SELECT COUNT(*) AS c FROM readings", "table"),
        ("SELECT area FROM readings GROUP BY area", "table"),
    ],
)
def test_a_materialized_view_is_what_its_query_makes_it(catalog: Catalog, query: str, kind: str) -> None:
    found = view(f"CREATE MATERIALIZED VIEW v AS {query}", catalog)
    assert (found.kind, found.materialized) == (kind, True)


def test_a_field_gives_its_column_the_name(lake: LakeLayout) -> None:
    catalog = catalog_of(lake, "CREATE STREAM s (who STRUCT<name VARCHAR, `Age` INT>)")
    found = view("CREATE STREAM v AS SELECT who->name, who->`Age` FROM s", catalog)
    assert [c.name for c in found.columns] == ["name", "Age"]


def test_a_view_knows_how_its_rows_are_stored(catalog: Catalog) -> None:
    events = view("CREATE STREAM e AS SELECT sensor, n FROM readings", catalog)
    assert (events.storage, events.row_key, events.hidden) == ("append", (), ())
    rows = view("CREATE MATERIALIZED VIEW r AS SELECT name FROM users", catalog)
    assert (rows.storage, rows.key) == ("keyed", ())
    assert rows.row_key
    assert set(rows.row_key) <= {column.name for column in rows.hidden}


def test_the_same_statement_gives_the_same_definition(catalog: Catalog) -> None:
    """Running a file again changes nothing, however it is laid out."""
    first = view("CREATE TABLE v AS SELECT area, COUNT(*) AS c FROM readings GROUP BY area EMIT CHANGES", catalog)
    again = run(
        "create or replace table V as\n select AREA, count(*) as C from readings group by area", catalog, "other"
    )
    assert again == first


def test_the_fingerprint_follows_the_query_and_the_input(
    lake: LakeLayout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def fingerprint(source: str, query: str) -> str:
        catalog = catalog_of(LakeLayout(tmp_path_factory.mktemp("lake")), source)
        return view(f"CREATE MATERIALIZED VIEW v AS {query}", catalog).fingerprint

    source = "CREATE STREAM s (a INT, b INT)"
    base = fingerprint(source, "SELECT a FROM s")
    assert base == fingerprint("create stream S (A INT, B INT) with (partitions=4)", "SELECT x.a FROM s AS x")
    assert len(base) == 16
    others = {
        base,
        fingerprint(source, "SELECT b FROM s"),
        fingerprint(source, "SELECT a FROM s WHERE b > 1"),
        fingerprint("CREATE STREAM s (a BIGINT, b INT)", "SELECT a FROM s"),
        fingerprint("CREATE STREAM s (a INT KEY, b INT)", "SELECT a FROM s"),
    }
    assert len(others) == 5


def test_a_view_without_a_visible_key_can_be_filtered_and_aggregated(catalog: Catalog) -> None:
    run("CREATE MATERIALIZED VIEW ages AS SELECT age FROM users", catalog)
    assert view("CREATE MATERIALIZED VIEW v AS SELECT age FROM ages WHERE age > 3", catalog).key == ()
    assert view("CREATE MATERIALIZED VIEW w AS SELECT age, COUNT(*) AS c FROM ages GROUP BY age", catalog).key == (
        "age",
    )


STARS = {
    "star": "SELECT * FROM users u JOIN readings r ON u.name = r.area",
    "of a side": "SELECT r.*, u.age FROM users u JOIN readings r ON u.name = r.area",
    "inside": "SELECT q.u_id, q.r_n FROM (SELECT * FROM users u JOIN readings r ON u.name = r.area) AS q",
}


@pytest.mark.parametrize("form", STARS)
def test_a_view_made_before_goes_on_with_its_names_for_a_star_over_joins(form: str, catalog: Catalog) -> None:
    text = f"CREATE MATERIALIZED VIEW v AS {STARS[form]}"
    (statement,) = parse(text)
    assert isinstance(statement, CreateView)
    former = view_of(statement, catalog, "tests", prefixed=True)
    assert "plain_stars" not in to_json(1, former), "as it was stored"
    catalog.add(former)
    assert [name for name, _ in outputs_of(query_of(former, catalog))] == [each.name for each in former.columns]
    assert run(text, catalog) == former
    assert run(text.replace("CREATE", "CREATE OR REPLACE"), catalog) == former


def test_a_new_view_has_the_columns_own_names_for_a_star_over_joins(catalog: Catalog) -> None:
    made = run(f"CREATE MATERIALIZED VIEW v AS {STARS['star']}", catalog)
    assert isinstance(made, View)
    assert {"age", "n"} <= {each.name for each in made.columns}
    stored = from_json(to_json(1, made).encode(), "v").definition
    assert isinstance(stored, View)
    assert [name for name, _ in outputs_of(query_of(stored, catalog))] == [each.name for each in made.columns]
