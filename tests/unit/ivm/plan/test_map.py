"""Sources, filters and projections: the stages that keep or append rows as they are."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.stage import LatestStage, MapStage, body_of
from strandline.jobs.model.stage_columns import relation_of, storage_of
from strandline.jobs.sql.dialect import sql_of
from tests.support.catalog_from_sql import run
from tests.unit.ivm.plan.planned import META, hidden, only, texts


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
