"""Joins and subqueries: the rows of a block before its top."""

from __future__ import annotations

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.stage import body_of, inputs_of
from strandline.jobs.model.stage_columns import relation_of, storage_of
from strandline.jobs.sql.dialect import sql_of
from tests.support.catalog_from_sql import run
from tests.unit.ivm.plan.planned import EVENT, hidden, only, planned, texts


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
