"""GROUP BY and DISTINCT: what the body holds, what the top groups it by, and HAVING above."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.rows import is_stream
from strandline.jobs.ivm.rules.stored import form_of
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.stage import AggregateStage, MapStage, body_of
from strandline.jobs.model.stage_columns import relation_of, visible_columns
from strandline.jobs.sql.dialect import sql_of
from tests.support.catalog_from_sql import run
from tests.unit.ivm.plan.planned import hidden, only, planned, texts


def test_groups_and_arguments_are_columns_of_the_body(catalog: Catalog) -> None:
    stage = only(
        "CREATE TABLE v AS SELECT area, SUM(n) / COUNT(*) + SUM( n ) AS x, COUNT(*) FILTER (WHERE n > 1) AS c"
        " FROM readings WHERE n > 0 GROUP BY area",
        catalog,
    )
    assert isinstance(stage, AggregateStage)
    (core,) = body_of(stage)
    assert texts(core.columns) == ["__g0=readings.area:VARCHAR", "__x0=readings.n:INT", "__f0=readings.n > 1:BOOLEAN"]
    assert texts(stage.group) == ["area=__g0:VARCHAR"]
    assert [(c.name, c.function, [sql_of(a) for a in c.arguments]) for c in stage.aggregates] == [
        ("__a0", "SUM", ["__x0"]),
        ("__a1", "COUNT", []),
        ("__a2", "COUNT", []),
    ]
    assert [c.filter is not None for c in stage.aggregates] == [False, False, True]
    assert texts(stage.outputs)[0] == "area=area:VARCHAR"
    assert (stage.key, stage.drop_empty, stage.skip_null_keys) == (("area",), True, False)


def test_groups_may_be_expressions_and_may_be_hidden(catalog: Catalog) -> None:
    stage = only(
        "CREATE MATERIALIZED VIEW v AS SELECT UCASE(area) || '!' AS a, n + 1 AS m, COUNT(*) AS c FROM readings"
        " GROUP BY UCASE(area), n + 1, sensor",
        catalog,
    )
    assert isinstance(stage, AggregateStage)
    assert stage.key == ("__k0", "m", "__k1")
    assert hidden(stage) == ["__k0", "__k1"]
    assert texts(stage.outputs)[0] == "a=__k0 || '!':VARCHAR"


def test_a_global_aggregate_has_no_key(catalog: Catalog) -> None:
    stage = only("CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS c FROM users", catalog)
    assert isinstance(stage, AggregateStage)
    assert (stage.key, stage.group) == ((), ())


def test_ksql_semantics_keep_empty_groups_and_skip_null_keys(catalog: Catalog) -> None:
    stage = only(
        "CREATE TABLE v WITH (SEMANTICS='ksql') AS SELECT name, COUNT(*) AS c FROM users GROUP BY name", catalog
    )
    assert isinstance(stage, AggregateStage)
    assert (stage.drop_empty, stage.skip_null_keys) == (False, True)


def test_functions_of_order_get_the_place_of_each_event(catalog: Catalog) -> None:
    text = "CREATE MATERIALIZED VIEW {0} AS SELECT LATEST_BY_OFFSET({1}) AS l FROM {2}"
    for number, (column, source) in enumerate((("n", "readings"), ("age", "users"))):
        stage = only(text.format(f"v{number}", column, source), catalog)
        assert [c.name for c in body_of(stage)[0].columns][-3:] == ["_stream_time", "_partition", "_offset"]
    run("CREATE TABLE counts AS SELECT area, COUNT(*) AS c FROM readings GROUP BY area", catalog)
    with pytest.raises(SqlError, match="LATEST_BY_OFFSET needs the order of events") as refused:
        planned(text.format("w", "c", "counts"), catalog)
    assert refused.value.hint


def test_having_filters_a_stage_that_holds_all_groups(catalog: Catalog) -> None:
    made = planned(
        "CREATE MATERIALIZED VIEW v AS SELECT area AS place, COUNT(*) AS c FROM readings GROUP BY area, sensor"
        " HAVING COUNT(*) > 1 AND SUM(n) > 2",
        catalog,
    )
    inner, outer = made.stages
    assert isinstance(inner, AggregateStage)
    assert isinstance(outer, MapStage)
    assert (inner.table, inner.key) == ("v__stage_1", ("place", "__k0"))
    assert [name for name, _ in visible_columns(inner)] == ["place", "__k0", "__a0", "__a1"]
    (core,) = body_of(outer)
    assert core.where is not None
    assert sql_of(core.where) == "groups.__a0 > 1 AND groups.__a1 > 2"
    assert (outer.key, hidden(outer), outer.visible) == (("place", "__k1"), ["__k1"], ("place", "c"))
    assert made.inputs == ("readings",)
    assert made.notes


def test_distinct_is_an_aggregate_without_calls(catalog: Catalog) -> None:
    stage = only("CREATE MATERIALIZED VIEW v AS SELECT DISTINCT area, n + 1 AS m FROM readings", catalog)
    assert isinstance(stage, AggregateStage)
    assert (stage.key, stage.aggregates, stage.drop_empty) == (("area", "m"), (), True)


def test_a_subquery_of_tables_keeps_places_for_a_function_that_goes_by_them(catalog: Catalog) -> None:
    """Without the time of an event nobody takes them for events; a table of the former form has no such mark."""
    exploded = "FROM users AS a CROSS JOIN UNNEST(ARRAY[a.id, 1]) AS w (x) JOIN users AS b ON w.x = b.id"
    made = planned(f"CREATE MATERIALIZED VIEW v AS SELECT LATEST_BY_OFFSET(a.age) AS l {exploded}", catalog)
    inner, last = made.stages
    assert hidden(inner)[-3:] == ["_stream_time", "_partition", "_offset"]
    assert not is_stream(relation_of(inner))
    assert form_of((inner, last)) == 3
    inner, last = planned(f"CREATE MATERIALIZED VIEW w AS SELECT COUNT(a.age) AS l {exploded}", catalog).stages
    assert "_offset" not in hidden(inner)
    assert form_of((inner, last)) == 1
