"""Functions OVER a window: the stage that computes them, and conditions on them."""

from __future__ import annotations

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, MapStage
from strandline.jobs.sql.dialect import sql_of
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.unit.ivm.plan.planned import kinds, only, planned

TOP = "SELECT name, age, ROW_NUMBER() OVER (PARTITION BY name ORDER BY age DESC) AS place FROM users"


def test_a_condition_on_a_function_over_a_window_is_kept_in_its_stage(catalog: Catalog) -> None:
    stage = only(f"CREATE MATERIALIZED VIEW v AS SELECT age AS a FROM ({TOP}) AS q WHERE place <= 2", catalog)
    assert isinstance(stage, AnalyticStage)
    assert stage.keep is not None
    assert sql_of(stage.keep) == "__w0 <= 2"
    assert [(o.name, o.type.base.value) for o in stage.partition] == [("__p0", "VARCHAR")]
    assert [o.name for o in stage.outputs] == ["a"]
    assert stage.key == ("__k0",)


def test_what_can_fail_is_computed_of_the_rows_that_the_condition_chose(catalog: Catalog) -> None:
    made = planned(f"CREATE MATERIALIZED VIEW v AS SELECT age + 1 AS a FROM ({TOP}) AS q WHERE place <= 2", catalog)
    assert kinds(made) == [AnalyticStage, MapStage]


def test_functions_over_windows_of_groups_read_the_groups(catalog: Catalog) -> None:
    made = planned(
        "CREATE MATERIALIZED VIEW v AS SELECT area, n, RANK() OVER (PARTITION BY area ORDER BY COUNT(*) DESC) AS r"
        " FROM readings GROUP BY area, n",
        catalog,
    )
    assert kinds(made) == [AggregateStage, AnalyticStage]
    assert made.stages[-1].key == ("area", "n")


def test_rows_of_hopping_windows_are_told_apart_by_the_number_of_the_window(lake: LakeLayout) -> None:
    catalog = catalog_of(lake, "CREATE STREAM visits (page VARCHAR, at TIMESTAMP);")
    made = planned(
        "CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) OVER (PARTITION BY page) AS n"
        " FROM HOP(visits, at, INTERVAL '20' SECOND, INTERVAL '60' SECOND) AS w",
        catalog,
    )
    assert kinds(made) == [MapStage, AnalyticStage]
    assert made.stages[-1].key == ("__k0", "__k1", "__k2")
