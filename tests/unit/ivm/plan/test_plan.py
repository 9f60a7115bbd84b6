"""Plans: which stages a definition becomes, and what each of them holds."""

from __future__ import annotations

import pytest
from sqlglot import exp

from jobs.catalog.catalog import Catalog
from jobs.ivm.plan.plan import plan
from jobs.ivm.rules.maintenance import maintenance
from jobs.model.definitions import META_COLUMNS
from jobs.model.errors import InvalidQuery, SqlError
from jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    Input,
    LatestStage,
    MapStage,
    Output,
    Plan,
    Stage,
    body_of,
    inputs_of,
)
from jobs.model.stage_columns import hidden_columns, relation_of, storage_of, visible_columns
from jobs.sql.dialect import sql_of
from state_store.layout import Lake
from tests.support.catalog_from_sql import catalog_of, run

SOURCES = """
CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT);
CREATE STREAM clicks (sensor VARCHAR KEY, c INT);
CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR, age INT);
CREATE TABLE areas (area VARCHAR PRIMARY KEY, owner BIGINT);
"""
META = [name for name, _ in META_COLUMNS]
EVENT = ["_timestamp", "_stream_time", "_partition", "_offset"]


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return catalog_of(lake, SOURCES)


def planned(text: str, catalog: Catalog) -> Plan:
    """The plan; every stage of it can be written for both engines."""
    definition = run(text, catalog)
    made = plan(definition, catalog)
    for stage in made.stages:
        for engine in ("spark", "duckdb"):
            assert maintenance(stage, engine)
            assert maintenance(stage, engine, None)
    return made


def only(text: str, catalog: Catalog) -> Stage:
    (stage,) = planned(text, catalog).stages
    return stage


def texts(outputs: tuple[Output, ...]) -> list[str]:
    return [f"{o.name}={sql_of(o.expression)}:{o.type}" for o in outputs]


def hidden(stage: Stage) -> list[str]:
    return [name for name, _ in hidden_columns(stage)]


def kinds(made: Plan) -> list[type[Stage]]:
    return [type(stage) for stage in made.stages]


# --- sources, filters, projections --------------------------------------------------------------------------------


def test_a_keyed_source_is_the_newest_of_its_event_log(catalog: Catalog) -> None:
    (stage,) = plan(catalog.get("users"), catalog).stages
    assert isinstance(stage, LatestStage)
    assert (stage.table, stage.key, stage.input.name, stage.input.storage) == ("users", ("id",), "users__log", "append")
    assert [name for name, _ in stage.input.columns] == ["id", "name", "age", *META, "_tombstone"]
    assert texts(stage.outputs) == ["id=id:BIGINT", "name=name:VARCHAR", "age=age:INT"]


def test_a_source_stream_has_no_plan(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="written by ingest"):
        plan(catalog.get("readings"), catalog)


def test_a_filter_of_a_stream_appends_and_carries_the_meta_columns(catalog: Catalog) -> None:
    stage = only("CREATE STREAM s AS SELECT sensor, n / 2 AS h FROM readings WHERE n > 1", catalog)
    assert isinstance(stage, MapStage)
    assert (stage.table, stage.key, storage_of(stage)) == ("s", (), "append")
    (core,) = body_of(stage)
    assert core.where is not None
    assert sql_of(core.where) == "readings.n > 1"
    assert texts(core.columns)[0] == "sensor=readings.sensor:VARCHAR"
    assert texts(core.columns)[2] == "_partition=readings._partition:INT"
    assert list(stage.visible) == ["sensor", "h", *META]


def test_a_projection_of_a_table_keeps_the_key_under_its_new_name(catalog: Catalog) -> None:
    stage = only("CREATE TABLE v AS SELECT name, id AS i, AS_VALUE(id) AS j FROM users", catalog)
    assert isinstance(stage, MapStage)
    assert (stage.key, stage.visible, hidden(stage)) == (("i",), ("name", "i", "j"), [])


def test_a_key_that_is_not_selected_is_hidden(catalog: Catalog) -> None:
    stage = only("CREATE MATERIALIZED VIEW v AS SELECT name FROM users WHERE age > 17", catalog)
    assert isinstance(stage, MapStage)
    assert (stage.key, hidden(stage)) == (("__k0",), ["__k0"])
    assert texts(body_of(stage)[0].columns)[1] == "__k0=users.id:BIGINT"


def test_a_view_over_a_view_whose_key_is_hidden_reads_it(catalog: Catalog) -> None:
    run("CREATE MATERIALIZED VIEW v AS SELECT name FROM users", catalog)
    stage = only("CREATE MATERIALIZED VIEW w AS SELECT name FROM v WHERE name <> 'x'", catalog)
    assert texts(body_of(stage)[0].columns)[1] == "__k0=v.__k0:BIGINT"


def test_an_exploded_stream_is_appended_and_its_rows_cannot_be_told_apart(catalog: Catalog) -> None:
    stage = only("CREATE STREAM s AS SELECT sensor, EXPLODE(ARRAY[n, 1]) AS x FROM readings", catalog)
    assert [each.type for each in body_of(stage)[0].expand]
    assert (relation_of(stage).storage, relation_of(stage).identity) == ("append", ())


def test_an_exploded_table_is_kept_by_key_and_item(catalog: Catalog) -> None:
    stage = only("CREATE MATERIALIZED VIEW v AS SELECT id, EXPLODE(ARRAY[age, 1]) AS x FROM users", catalog)
    assert stage.key == ("id", "__k1")
    assert texts(body_of(stage)[0].columns)[2] == "__k1=__item:INT"


# --- joins --------------------------------------------------------------------------------------------------------


def test_a_stream_joined_with_a_table_is_appended_as_of_its_events_times(catalog: Catalog) -> None:
    stage = only("CREATE STREAM s AS SELECT a.area, n, owner FROM readings r JOIN areas a ON r.area = a.area", catalog)
    stream, table = body_of(stage)[0].inputs
    assert (table.frozen, table.as_of, table.relation.name) == (True, True, "areas__log")
    assert (storage_of(stage), relation_of(stage).identity) == ("append", ("_partition", "_offset"))
    assert stream.relation.name == "readings"


def test_a_join_of_streams_is_kept_by_both_events_unless_rows_are_only_added(catalog: Catalog) -> None:
    text = (
        "CREATE STREAM {0} AS SELECT r.sensor, c FROM readings r {1} JOIN clicks c WITHIN 1 MINUTE"
        " ON r.sensor = c.sensor"
    )
    outer = only(text.format("o", "LEFT"), catalog)
    assert outer.key == ("__k0", "__k1", "__k2", "__k3")
    assert hidden(outer) == [*outer.key, *EVENT]
    times = {column.name: sql_of(column.expression) for column in body_of(outer)[0].columns}
    assert times["_timestamp"] == "GREATEST(r._timestamp, c._timestamp)"
    assert times["_offset"] == "r._offset"
    inner = only(text.format("i", "INNER"), catalog)
    assert (relation_of(inner).storage, relation_of(inner).identity) == ("append", ())


def test_a_filter_of_such_a_stream_keeps_the_event_too(catalog: Catalog) -> None:
    run(
        "CREATE STREAM o AS SELECT r.sensor AS k, c FROM readings r LEFT JOIN clicks c WITHIN 1 MINUTE"
        " ON r.sensor = c.sensor",
        catalog,
    )
    stage = only("CREATE STREAM f AS SELECT k, ROWTIME AS t FROM o WHERE c > 1", catalog)
    assert hidden(stage) == ["__k0", "__k1", "__k2", "__k3", *EVENT]


def test_a_join_on_a_primary_key_is_kept_by_the_other_side_s_key(catalog: Catalog) -> None:
    stage = only(
        "CREATE MATERIALIZED VIEW v AS SELECT a.area, name FROM areas a LEFT JOIN users u ON a.owner = u.id", catalog
    )
    assert (stage.key, hidden(stage)) == (("area",), [])


def test_semi_joins_are_inputs_that_give_no_columns(catalog: Catalog) -> None:
    stage = only("CREATE MATERIALIZED VIEW v AS SELECT id FROM users WHERE id IN (SELECT owner FROM areas)", catalog)
    first, second = inputs_of(stage)
    assert (first.join, second.join, second.relation.name) == ("inner", "semi", "areas")
    assert stage.key == ("id",)


def test_subqueries_that_only_filter_and_project_are_no_stages(catalog: Catalog) -> None:
    stage = only(
        "CREATE MATERIALIZED VIEW v AS SELECT q.m + 1 AS x FROM (SELECT n * 2 AS m, area FROM readings WHERE n > 0) q"
        " JOIN (SELECT area AS a, owner FROM areas WHERE owner > 3) b ON q.area = b.a WHERE q.m < 9",
        catalog,
    )
    (core,) = body_of(stage)
    assert [(i.alias, i.relation.name) for i in core.inputs] == [("q", "readings"), ("b", "areas")]
    assert core.where is not None
    assert sql_of(core.where) == "q.n > 0 AND (q.n * 2) < 9"
    assert core.inputs[1].on is not None
    assert sql_of(core.inputs[1].on) == "q.area = b.area AND b.owner > 3"
    assert texts(core.columns)[0] == "x=(q.n * 2) + 1:INT"


def test_a_computed_column_of_a_padded_subquery_makes_it_a_stage(catalog: Catalog) -> None:
    made = planned(
        "CREATE MATERIALIZED VIEW v AS SELECT n, b.one FROM readings r"
        " LEFT JOIN (SELECT area, 1 AS one FROM areas) b ON r.area = b.area",
        catalog,
    )
    assert [stage.table for stage in made.stages] == ["v__stage_1", "v"]


# --- groups -------------------------------------------------------------------------------------------------------


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


def test_grouping_sets_repeat_the_rows_and_tell_the_sets_apart(catalog: Catalog) -> None:
    stage = only(
        "CREATE MATERIALIZED VIEW v AS SELECT area, n, COUNT(*) AS c FROM readings"
        " GROUP BY GROUPING SETS ((area, n), (area))",
        catalog,
    )
    assert isinstance(stage, AggregateStage)
    assert [sql_of(each.expression) for each in body_of(stage)[0].expand] == ["ARRAY[1, 2]"]
    assert stage.key == ("area", "n", "__set")
    assert hidden(stage) == ["__set"]


# --- windows ------------------------------------------------------------------------------------------------------

WINDOWED = "CREATE TABLE v AS SELECT area, COUNT(*) AS c FROM readings WINDOW {} GROUP BY area"


def test_a_tumbling_window_is_part_of_the_key(catalog: Catalog) -> None:
    stage = only(WINDOWED.format("TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 2 SECONDS)"), catalog)
    assert isinstance(stage, AggregateStage)
    assert stage.key == ("area", "windowstart", "windowend")
    assert hidden(stage) == ["windowstart", "windowend"]
    where = body_of(stage)[0].where
    assert where is not None
    assert "12000" in sql_of(where)
    assert "_stream_time" in sql_of(where)


def test_a_hopping_window_repeats_the_row_for_each_window_that_holds_it(catalog: Catalog) -> None:
    stage = only(WINDOWED.format("HOPPING (SIZE 10 SECONDS, ADVANCE BY 4 SECONDS)"), catalog)
    (starts,) = body_of(stage)[0].expand
    assert isinstance(starts.expression, exp.Array)
    assert len(starts.expression.expressions) == 3


def test_a_session_window_is_cut_by_the_stage(catalog: Catalog) -> None:
    stage = only(WINDOWED.format("SESSION (10 SECONDS, GRACE PERIOD 2 SECONDS)"), catalog)
    assert isinstance(stage, AggregateStage)
    assert stage.session is not None
    assert (stage.session.gap, stage.session.grace) == (10_000, 2_000)
    columns = [c.name for c in body_of(stage)[0].columns]
    assert stage.session.time in columns
    assert stage.session.clock in columns


def test_a_final_window_waits_for_the_stream_s_time(catalog: Catalog) -> None:
    made = planned(WINDOWED.format("TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 2 SECONDS)") + " EMIT FINAL", catalog)
    assert kinds(made) == [AggregateStage, AggregateStage, MapStage]
    groups, clock, last = made.stages
    assert [each.relation.name for each in inputs_of(last)] == [groups.table, clock.table]
    on = inputs_of(last)[1].on
    assert on is not None
    assert sql_of(on) == "(groups.windowend + 2000) <= UNIX_TIMESTAMP(clock.clock)"
    assert last.key == ("area", "windowstart", "windowend")


def test_a_window_s_bounds_can_be_read_where_they_are_hidden(catalog: Catalog) -> None:
    run(WINDOWED.format("TUMBLING (SIZE 10 SECONDS)"), catalog)
    stage = only("CREATE MATERIALIZED VIEW w AS SELECT area, WINDOWSTART AS ws FROM v", catalog)
    assert stage.key == ("area", "windowstart", "windowend")
    assert hidden(stage) == ["windowstart", "windowend"]


# --- set operations, analytic functions ---------------------------------------------------------------------------


def test_a_union_all_of_streams_is_appended_each_branch_with_partitions_of_its_own(catalog: Catalog) -> None:
    stage = only("CREATE STREAM v AS SELECT sensor, n FROM readings UNION ALL SELECT sensor, c FROM clicks", catalog)
    assert storage_of(stage) == "append"
    partitions = [
        sql_of(column.expression) for core in body_of(stage) for column in core.columns if column.name == "_partition"
    ]
    assert partitions == ["65536 + (readings._partition)", "131072 + (clicks._partition)"]


def test_a_union_all_of_tables_is_kept_by_branch_and_key(catalog: Catalog) -> None:
    stage = only(
        "CREATE MATERIALIZED VIEW v AS SELECT name FROM users UNION ALL SELECT area FROM areas"
        " UNION ALL SELECT name FROM users WHERE age > 3",
        catalog,
    )
    assert stage.key == ("__branch", "__k0", "__k1")
    assert hidden(stage) == ["__branch", "__k0", "__k1"]
    aliases = [each.alias for each in inputs_of(stage)]
    assert len(set(aliases)) == 3
    assert [[sql_of(c.expression) for c in core.columns[1:]] for core in body_of(stage)] == [
        ["1", "users.id", "NULL"],
        ["2", "NULL", "areas.area"],
        ["3", "users_2.id", "NULL"],
    ]


@pytest.mark.parametrize(
    ("operation", "stages"),
    [("UNION", [AggregateStage]), ("INTERSECT", [AggregateStage, MapStage]), ("EXCEPT", [AggregateStage, MapStage])],
)
def test_set_operations_group_by_all_columns(operation: str, stages: list[type[Stage]], catalog: Catalog) -> None:
    made = planned(f"CREATE MATERIALIZED VIEW v AS SELECT name FROM users {operation} SELECT area FROM areas", catalog)
    assert kinds(made) == stages
    assert made.stages[-1].key == ("name",)


TOP = "SELECT name, age, ROW_NUMBER() OVER (PARTITION BY name ORDER BY age DESC) AS place FROM users"


def test_a_condition_on_a_function_over_a_window_is_kept_in_its_stage(catalog: Catalog) -> None:
    stage = only(f"CREATE MATERIALIZED VIEW v AS SELECT age + 1 AS a FROM ({TOP}) AS q WHERE place <= 2", catalog)
    assert isinstance(stage, AnalyticStage)
    assert stage.keep is not None
    assert sql_of(stage.keep) == "__w0 <= 2"
    assert [(o.name, o.type.base.value) for o in stage.partition] == [("__p0", "VARCHAR")]
    assert [o.name for o in stage.outputs] == ["a"]
    assert stage.key == ("__k0",)


def test_functions_over_windows_of_groups_read_the_groups(catalog: Catalog) -> None:
    made = planned(
        "CREATE MATERIALIZED VIEW v AS SELECT area, n, RANK() OVER (PARTITION BY area ORDER BY COUNT(*) DESC) AS r"
        " FROM readings GROUP BY area, n",
        catalog,
    )
    assert kinds(made) == [AggregateStage, AnalyticStage]
    assert made.stages[-1].key == ("area", "n")


# --- the plan as a whole ------------------------------------------------------------------------------------------


def test_equal_subqueries_are_one_stage(catalog: Catalog) -> None:
    made = planned(
        "CREATE MATERIALIZED VIEW v AS SELECT a.area, b.c FROM"
        " (SELECT area, COUNT(*) AS c FROM readings GROUP BY area) a"
        " JOIN (SELECT x.area, COUNT(*) AS c FROM readings AS x GROUP BY x.area) b ON a.c = b.c",
        catalog,
    )
    assert [stage.table for stage in made.stages] == ["v__stage_1", "v"]
    assert [each.relation.name for each in inputs_of(made.stages[1])] == ["v__stage_1", "v__stage_1"]


def test_an_insert_query_gives_its_rows_partitions_of_their_own(catalog: Catalog) -> None:
    run("CREATE STREAM target (sensor VARCHAR KEY, reading DOUBLE)", catalog)
    run("INSERT INTO target SELECT sensor, reading FROM readings", catalog)
    made = planned("INSERT INTO target SELECT sensor, n AS reading FROM readings", catalog)
    (stage,) = made.stages
    assert isinstance(stage, MapStage)
    assert (stage.table, made.view) == ("target", "target__insert_2")
    assert texts(body_of(stage)[0].columns)[:3] == [
        "sensor=readings.sensor:VARCHAR",
        "reading=readings.n:DOUBLE",
        "_partition=131072 + (readings._partition):INT",
    ]
    assert list(stage.visible) == ["sensor", "reading", *META]


def test_incremental_is_refused_where_every_change_reads_all_rows(catalog: Catalog) -> None:
    text = (
        "CREATE MATERIALIZED VIEW {} WITH (REFRESH='incremental')"
        " AS SELECT id, ROW_NUMBER() OVER ({}ORDER BY age) AS n FROM users"
    )
    planned(text.format("v", "PARTITION BY name "), catalog)
    with pytest.raises(InvalidQuery, match="OVER without PARTITION BY") as refused:
        planned(text.format("w", ""), catalog)
    assert refused.value.hint


@pytest.mark.parametrize(
    "select",
    [
        "SELECT r.sensor, ROWTIME AS t, r.n IN (1, 2) AS b FROM readings r WHERE r.area LIKE 'x%'",
        "SELECT r.n, u.age FROM readings r LEFT JOIN users u ON r.n = u.id AND u.age > 1 WHERE r.n > 0",
        "SELECT area, MAX(n) AS m FROM readings GROUP BY area HAVING MIN(n) > 0",
        "SELECT name FROM users UNION SELECT area FROM areas WHERE owner IN (SELECT id FROM users)",
    ],
)
def test_every_column_in_a_core_is_one_of_its_inputs(select: str, catalog: Catalog) -> None:
    """The contract with the rules: qualified names inside of cores, plain ones on top, nothing left to resolve."""
    for stage in planned(f"CREATE MATERIALIZED VIEW v AS {select}", catalog).stages:
        for core in body_of(stage):
            known = {(i.alias, name) for i in core.inputs for name, _ in (*i.relation.columns, *i.relation.hidden)}
            trees = [*(column.expression for column in core.columns), *_conditions(core.inputs, core.where)]
            for column in (found for tree in trees for found in tree.find_all(exp.Column)):
                assert (column.table, column.name) in known


def _conditions(inputs: tuple[Input, ...], where: exp.Expression | None) -> list[exp.Expression]:
    return [each for each in (*(i.on for i in inputs), where) if each is not None]
