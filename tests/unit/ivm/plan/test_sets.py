"""UNION, INTERSECT and EXCEPT: rows of all branches, appended, kept by branch or grouped."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.stage import AggregateStage, MapStage, Stage, body_of, inputs_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.jobs.sql.dialect import sql_of
from tests.unit.ivm.plan.planned import hidden, kinds, only, planned


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


def test_aliases_of_branches_differ_in_more_than_case(catalog: Catalog) -> None:
    """Engines take names for one that differ in case alone."""
    stage = only(
        "CREATE MATERIALIZED VIEW v AS SELECT t.name FROM users t UNION ALL SELECT `T`.area FROM areas `T`"
        " UNION ALL SELECT T_2.name FROM users T_2",
        catalog,
    )
    assert [each.alias for each in inputs_of(stage)] == ["t", "T_2", "t_2_2"]


@pytest.mark.parametrize(
    ("operation", "stages"),
    [("UNION", [AggregateStage]), ("INTERSECT", [AggregateStage, MapStage]), ("EXCEPT", [AggregateStage, MapStage])],
)
def test_set_operations_group_by_all_columns(operation: str, stages: list[type[Stage]], catalog: Catalog) -> None:
    made = planned(f"CREATE MATERIALIZED VIEW v AS SELECT name FROM users {operation} SELECT area FROM areas", catalog)
    assert kinds(made) == stages
    assert made.stages[-1].key == ("name",)
