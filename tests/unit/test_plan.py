"""Plans: which stages a definition becomes, and what each of them holds."""

from __future__ import annotations

import pytest
from sqlglot import exp

from jobs.ivm.rules import maintenance
from jobs.ivm.stage import AggregateStage, LatestStage, MapStage, Output, Plan, Relation
from jobs.sql import types as t
from jobs.sql.catalog import Catalog
from jobs.sql.dialect import sql_of
from jobs.sql.model import META_COLUMNS
from jobs.sql.plan import plan, relation
from state_store.layout import Lake
from tests.statements import catalog_of, run

SOURCES = """
CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT);
CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR, age INT);
"""
META = [name for name, _ in META_COLUMNS]


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return catalog_of(lake, SOURCES)


def planned(text: str, catalog: Catalog) -> Plan:
    definition = run(text, catalog)
    made = plan(definition, catalog)
    for stage in made.stages:
        for engine in ("spark", "duckdb"):
            assert maintenance(stage, engine)  # type: ignore[arg-type]
    return made


def texts(outputs: tuple[Output, ...]) -> list[str]:
    return [f"{o.name}={sql_of(o.expression)}:{o.type}" for o in outputs]


def test_relations_of_streams_have_the_meta_columns_and_tables_have_a_key(catalog: Catalog) -> None:
    assert relation("readings", catalog) == Relation(
        "readings",
        (("sensor", t.VARCHAR), ("reading", t.DOUBLE), ("area", t.VARCHAR), ("n", t.INT), *META_COLUMNS),
        "append",
    )
    assert relation("users", catalog) == Relation(
        "users", (("id", t.BIGINT), ("name", t.VARCHAR), ("age", t.INT)), "keyed", ("id",)
    )


def test_a_keyed_source_is_the_newest_of_its_event_log(catalog: Catalog) -> None:
    (stage,) = plan(catalog.get("users"), catalog).stages
    assert isinstance(stage, LatestStage)
    assert (stage.table, stage.key, stage.input.name, stage.input.kind) == ("users", ("id",), "users__log", "append")
    assert [name for name, _ in stage.input.columns] == ["id", "name", "age", *META, "_tombstone"]
    assert texts(stage.outputs) == ["id=id:BIGINT", "name=name:VARCHAR", "age=age:INT"]


def test_a_source_stream_has_no_plan(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="written by ingest"):
        plan(catalog.get("readings"), catalog)


def test_a_filter_of_a_stream_appends_and_carries_the_meta_columns(catalog: Catalog) -> None:
    made = planned("CREATE STREAM s AS SELECT sensor, n / 2 AS h FROM readings WHERE n > 1", catalog)
    (stage,) = made.stages
    assert isinstance(stage, MapStage)
    assert (stage.table, stage.key, stage.hidden_key) == ("s", (), ())
    assert stage.where is not None
    assert sql_of(stage.where) == "n > 1"
    assert texts(stage.outputs)[:2] == ["sensor=sensor:VARCHAR", "h=CAST(DIV(n, 2) AS INT):INT"]
    assert [o.name for o in stage.outputs[2:]] == META
    assert made.inputs == ("readings",)


def test_a_projection_of_a_table_keeps_the_key_under_its_new_name(catalog: Catalog) -> None:
    (stage,) = planned("CREATE TABLE v AS SELECT name, id AS i, id AS j FROM users", catalog).stages
    assert isinstance(stage, MapStage)
    assert (stage.key, stage.hidden_key) == (("i",), ())
    assert [o.name for o in stage.outputs] == ["name", "i", "j"]


def test_a_key_that_is_not_selected_is_hidden(catalog: Catalog) -> None:
    (stage,) = planned("CREATE MATERIALIZED VIEW v AS SELECT name FROM users WHERE age > 17", catalog).stages
    assert isinstance(stage, MapStage)
    assert stage.key == ()
    assert texts(stage.hidden_key) == ["__k0=id:BIGINT"]


def test_aggregates_inside_expressions_are_called_once_each(catalog: Catalog) -> None:
    (stage,) = planned(
        "CREATE TABLE v AS SELECT area, SUM(n) / COUNT(*) + SUM( n ) AS x, COUNT(*) AS c FROM readings"
        " WHERE n > 0 GROUP BY area",
        catalog,
    ).stages
    assert isinstance(stage, AggregateStage)
    assert [(c.name, c.function, [sql_of(a) for a in c.arguments]) for c in stage.aggregates] == [
        ("__a0", "SUM", ["n"]),
        ("__a1", "COUNT", []),
    ]
    assert texts(stage.outputs) == [
        "area=area:VARCHAR",
        "x=CAST(DIV(__a0, __a1) AS BIGINT) + __a0:BIGINT",
        "c=__a1:BIGINT",
    ]
    assert (stage.key, texts(stage.group)) == (("area",), ["area=area:VARCHAR"])
    assert stage.where is not None


def test_the_same_call_with_another_filter_is_another_call(catalog: Catalog) -> None:
    (stage,) = planned(
        "CREATE TABLE v AS SELECT area, COUNT(*) AS a, COUNT(*) FILTER (WHERE n > 1) AS b FROM readings GROUP BY area",
        catalog,
    ).stages
    assert isinstance(stage, AggregateStage)
    assert [sql_of(c.filter) if c.filter is not None else None for c in stage.aggregates] == [None, "n > 1"]


def test_parameters_of_an_aggregate_are_not_its_arguments(catalog: Catalog) -> None:
    (stage,) = planned(
        "CREATE TABLE v AS SELECT area, LATEST_BY_OFFSET(n, 3, false) AS l FROM readings GROUP BY area", catalog
    ).stages
    assert isinstance(stage, AggregateStage)
    (call,) = stage.aggregates
    assert [sql_of(a) for a in call.arguments] == ["n"]
    assert set(call.parameters) == {3, False}
    assert call.type == t.array(t.INT)


def test_groups_may_be_expressions_and_may_be_hidden(catalog: Catalog) -> None:
    (stage,) = planned(
        "CREATE TABLE v AS SELECT UCASE(area) || '!' AS a, n + 1 AS m, COUNT(*) AS c FROM readings"
        " GROUP BY UCASE(area), n + 1, sensor",
        catalog,
    ).stages
    assert isinstance(stage, AggregateStage)
    assert texts(stage.group) == ["__k0=UCASE(area):VARCHAR", "m=n + 1:INT", "__k1=sensor:VARCHAR"]
    assert stage.key == ("__k0", "m", "__k1")
    assert texts(stage.outputs) == ["a=__k0 || '!':VARCHAR", "m=m:INT", "c=__a0:BIGINT"]


def test_a_global_aggregate_has_no_key(catalog: Catalog) -> None:
    (stage,) = planned("CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS c FROM users", catalog).stages
    assert isinstance(stage, AggregateStage)
    assert (stage.key, stage.group) == ((), ())


def test_having_filters_a_stage_that_holds_all_groups(catalog: Catalog) -> None:
    made = planned(
        "CREATE TABLE v AS SELECT area AS place, COUNT(*) AS c FROM readings GROUP BY area, sensor"
        " HAVING COUNT(*) > 1 AND SUM(n) > 2",
        catalog,
    )
    inner, outer = made.stages
    assert isinstance(inner, AggregateStage)
    assert isinstance(outer, MapStage)
    assert (inner.table, inner.key) == ("v__stage_1", ("place", "__k0"))
    assert texts(inner.outputs) == [
        "place=place:VARCHAR",
        "c=__a0:BIGINT",
        "__k0=__k0:VARCHAR",
        "__having=__a0 > 1 AND __a1 > 2:BOOLEAN",
    ]
    assert (outer.input.name, outer.input.kind, outer.input.key) == ("v__stage_1", "keyed", ("place", "__k0"))
    assert outer.where is not None
    assert sql_of(outer.where) == "__having"
    assert (outer.key, texts(outer.hidden_key)) == (("place",), ["__k1=__k0:VARCHAR"])
    assert [o.name for o in outer.outputs] == ["place", "c"]
    assert made.inputs == ("readings",)
    assert made.notes


def test_views_over_views_read_their_tables(catalog: Catalog) -> None:
    run("CREATE TABLE by_area AS SELECT area, COUNT(*) AS c FROM readings GROUP BY area", catalog)
    (stage,) = planned("CREATE TABLE big AS SELECT area, c FROM by_area WHERE c > 10", catalog).stages
    assert isinstance(stage, MapStage)
    assert (stage.input.name, stage.input.kind, stage.key) == ("by_area", "keyed", ("area",))
    (counts,) = planned("CREATE TABLE counts AS SELECT c, COUNT(*) AS n FROM by_area GROUP BY c", catalog).stages
    assert isinstance(counts, AggregateStage)
    assert counts.input.kind == "keyed"


def test_an_insert_query_gives_its_rows_partitions_of_their_own(catalog: Catalog) -> None:
    run("CREATE STREAM target (sensor VARCHAR KEY, reading DOUBLE)", catalog)
    run("INSERT INTO target SELECT sensor, reading FROM readings", catalog)
    made = planned("INSERT INTO target SELECT sensor, n AS reading FROM readings", catalog)
    (stage,) = made.stages
    assert isinstance(stage, MapStage)
    assert (stage.table, made.view) == ("target", "target__insert_2")
    assert texts(stage.outputs)[:3] == [
        "sensor=sensor:VARCHAR",
        "reading=n:DOUBLE",
        "_partition=131072 + _partition:INT",
    ]
    assert [o.name for o in stage.outputs[2:]] == META


def test_every_column_of_a_stage_is_one_of_its_input(catalog: Catalog) -> None:
    """The contract with the rules: plain names, known functions, nothing left to resolve."""
    made = planned(
        "CREATE STREAM s AS SELECT r.sensor, ROWTIME AS t, rowpartition AS p, r.n IN (1, 2) AS b FROM readings r"
        " WHERE r.area LIKE 'x%'",
        catalog,
    )
    for stage in made.stages:
        assert isinstance(stage, MapStage)
        known = {name for name, _ in stage.input.columns}
        for output in stage.outputs:
            for column in output.expression.find_all(exp.Column):
                assert not column.table
                assert column.name in known
