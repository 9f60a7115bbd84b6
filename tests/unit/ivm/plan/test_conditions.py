"""A plan that lost a condition of its query is no plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan import builder, inputs, plan
from strandline.jobs.ivm.plan.analytic import analytic_stage
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.conditions import conditions_of
from strandline.jobs.ivm.plan.group import grouped_stage
from strandline.jobs.ivm.plan.plan import plan_of_query
from strandline.jobs.ivm.plan.rows import PlannedRows, map_stage
from strandline.jobs.model.definitions import State
from strandline.jobs.model.errors import ConditionLost
from strandline.jobs.model.stage import AggregateStage, MapStage, Stage
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.query.logical import Query
from strandline.jobs.sql.from_text import parse_query

Patch = pytest.MonkeyPatch


def read(text: str, catalog: Catalog) -> Query:
    return read_query(parse_query(text), catalog)


def lost(text: str, catalog: Catalog, state: State = "full") -> str:
    with pytest.raises(ConditionLost) as raised:
        plan_of_query("v", read(text, catalog), state=state)
    return raised.value.message


JOIN = "SELECT u.name FROM users u LEFT JOIN areas a ON a.owner = u.id AND a.area > 'b'"


def test_conditions_are_found_in_every_clause_and_query(catalog: Catalog) -> None:
    text = """WITH q AS (SELECT id, age FROM users WHERE age > 1 AND name <> 'x')
        SELECT q.age, COUNT(*) FILTER (WHERE b.age < 9) AS c, RANK() OVER (PARTITION BY q.age ORDER BY COUNT(*)) AS r
        FROM q LEFT JOIN q AS b ON b.id = q.age WHERE q.id > 2 GROUP BY q.age HAVING COUNT(*) > 3 QUALIFY r < 4"""
    found = conditions_of(read(text, catalog)).conditions
    clauses = [each.clause for each in found]
    assert clauses.count("WHERE") == 5, "two of q, read twice, and one of the outer query"
    assert {"LEFT JOIN … ON", "HAVING", "QUALIFY", "FILTER (WHERE …)"} < set(clauses)
    assert [each.join for each in found if each.clause == "LEFT JOIN … ON"] == ["left"]


@pytest.mark.parametrize("state", ["full", "shared"])
@pytest.mark.parametrize(
    "text",
    [
        JOIN,
        "SELECT b.name FROM (SELECT name, age > 3 AS old FROM users) b WHERE b.old",
        "SELECT b.name FROM (SELECT name, age > 3 AS old FROM users) b WHERE NOT b.old AND b.old AND (b.old)",
        "SELECT b.name FROM (SELECT name, age > 3 AND id > 1 AS old FROM users) b WHERE b.old AND b.old",
        "SELECT COUNT(*) FILTER (WHERE age > 1) AS a, MAX(id) FILTER (WHERE age > 1) AS b FROM users",
        "SELECT BOOL_OR(age > 1) FILTER (WHERE age > 1) AS a FROM users",
        "SELECT area, COUNT(*) AS n FROM readings GROUP BY ROLLUP (area) HAVING COUNT(*) > 1",
        "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY name ORDER BY id) AS n FROM users) x WHERE n < 2",
        "SELECT name FROM users WHERE age > 1 AND (id < 3 OR id > 7) AND age > 1",
    ],
)
def test_what_the_planner_moves_merges_or_reads_twice_is_found(text: str, state: State, catalog: Catalog) -> None:
    assert plan_of_query("v", read(text, catalog), state=state).stages


def test_a_lost_part_of_on_is_named(catalog: Catalog, monkeypatch: Patch) -> None:
    monkeypatch.setattr(inputs, "all_of", lambda *found: found[0].this if found[0] is not None else None)
    assert lost(JOIN, catalog) == "the plan of 'v' lacks a part of its query: LEFT JOIN … ON a.area > 'b'"


def test_a_join_of_another_kind_is_another_join(catalog: Catalog, monkeypatch: Patch) -> None:
    joined = inputs._joined

    def inner(rows: PlannedRows, others: Any, made: Any) -> PlannedRows:
        found = joined(rows, others, made)
        return replace(found, inputs=tuple(replace(each, join="inner") for each in found.inputs))

    monkeypatch.setattr(inputs, "_joined", inner)
    assert "LEFT JOIN … ON" in lost(JOIN, catalog)


def test_a_lost_where_is_named(catalog: Catalog, monkeypatch: Patch) -> None:
    monkeypatch.setattr(PlannedRows, "filtered", lambda rows, condition: rows)
    assert "WHERE age > 1" in lost("SELECT name FROM users WHERE age > 1", catalog).replace("users.", "")
    assert "HAVING" in lost("SELECT name, COUNT(*) AS n FROM users GROUP BY name HAVING COUNT(*) > 1", catalog)


def test_a_condition_that_only_a_shared_join_lacks_is_named(catalog: Catalog, monkeypatch: Patch) -> None:
    def crossed(parts: Any, **options: Any) -> MapStage:
        made = map_stage(parts, **options)
        core = made.body[0]
        inner = tuple(replace(each, on=None) for each in core.inputs)
        return replace(made, body=(replace(core, inputs=inner),))

    monkeypatch.setattr(builder, "map_stage", crossed)
    assert "LEFT JOIN … ON" in lost(JOIN, catalog, "shared")


def test_a_lost_filter_is_named(catalog: Catalog, monkeypatch: Patch) -> None:
    def unfiltered(block: Any, stages: Stages) -> AggregateStage:
        made = grouped_stage(block, stages)
        return replace(made, aggregates=tuple(replace(each, filter=None) for each in made.aggregates))

    monkeypatch.setattr(plan, "grouped_stage", unfiltered)
    assert "FILTER (WHERE …)" in lost("SELECT COUNT(*) FILTER (WHERE age > 1) AS n FROM users", catalog)


def test_a_lost_qualify_is_named(catalog: Catalog, monkeypatch: Patch) -> None:
    monkeypatch.setattr(plan, "analytic_stage", lambda *given: replace(analytic_stage(*given), keep=None))
    text = "SELECT id, RANK() OVER (PARTITION BY name ORDER BY id) AS r FROM users QUALIFY r < 2"
    assert "QUALIFY" in lost(text, catalog)


def test_a_relation_that_no_stage_reads_is_named(catalog: Catalog) -> None:
    conditions = conditions_of(read("SELECT u.name FROM users u, areas a", catalog))
    stages: tuple[Stage, ...] = plan_of_query("v", read("SELECT name FROM users", catalog)).stages
    with pytest.raises(ConditionLost, match="FROM areas"):
        conditions.check("v", stages)
