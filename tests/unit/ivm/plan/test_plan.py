"""Plans as a whole: stages that are one, queries that insert, and the contract with the rules."""

from __future__ import annotations

import pytest
from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.stage import Input, MapStage, body_of, inputs_of
from tests.support.catalog_from_sql import run
from tests.unit.ivm.plan.planned import META, planned, texts


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
