"""WINDOW and GROUPING SETS: a row stands in one group or in several, and the key says in which."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.stage import AggregateStage, MapStage, body_of, inputs_of
from strandline.jobs.sql.dialect import sql_of
from tests.support.catalog_from_sql import run
from tests.unit.ivm.plan.planned import hidden, kinds, only, planned


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


WINDOWED = "CREATE TABLE v AS SELECT area, COUNT(*) AS c FROM readings WINDOW {} GROUP BY area"


def test_a_tumbling_window_is_part_of_the_key(catalog: Catalog) -> None:
    stage = only(WINDOWED.format("TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 2 SECONDS)"), catalog)
    assert isinstance(stage, AggregateStage)
    assert stage.key == ("area", "windowstart", "windowend")
    assert hidden(stage) == []
    assert [output.name for output in stage.outputs] == ["area", "windowstart", "windowend", "c"]
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
