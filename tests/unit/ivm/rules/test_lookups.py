"""Of which rows a rule can make use by key, and what it must scan."""

from __future__ import annotations

import pytest

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.rules.lookups import Plan, plan_lookups
from strandline.jobs.model.stage import inputs_of
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog

SOURCES = (
    "CREATE TABLE t (k VARCHAR PRIMARY KEY, g VARCHAR, v INT)",
    "CREATE TABLE u (g VARCHAR PRIMARY KEY, h VARCHAR, w BIGINT)",
    "CREATE TABLE x (h VARCHAR PRIMARY KEY, z INT)",
)


def of_view(query: str, *changed: str) -> Plan:
    """The look-ups of a view's last stage when these inputs change; all of them by default."""
    catalog = MemoryCatalog()
    for statement in (*SOURCES, f"CREATE MATERIALIZED VIEW view AS {query}"):
        run(statement, catalog)
    stage = plan(catalog.get("view"), catalog).stages[-1]
    every = {each.alias for each in inputs_of(stage)}
    return plan_lookups(stage, engine_of("duckdb"), set(changed) or every)


def asked(made: Plan) -> set[tuple[str, ...]]:
    return {(each.relation, *each.columns) for each in made.lookups if each.relation not in made.scanned}


@pytest.mark.parametrize(
    ("query", "changed", "wanted"),
    [
        ("SELECT g, COUNT(*) AS n FROM t GROUP BY g", ("t",), {("self_old", "g")}),
        ("SELECT COUNT(*) AS n, g AS h FROM t GROUP BY g, v", ("t",), {("self_old", "h", "__state.__k0")}),
        ("SELECT g, MAX(v) AS m FROM t GROUP BY g", ("t",), {("self_old", "g"), ("new_t", "g")}),
        (
            "SELECT t.k, u.h FROM t LEFT JOIN u ON t.g = u.g",
            ("u",),
            {("new_t", "g"), ("old_u", "g"), ("new_u", "g"), ("self_old", "k")},
        ),
        ("SELECT t.k, u.h FROM t LEFT JOIN u ON t.g = u.g", ("t",), {("old_u", "g"), ("self_old", "k")}),
        (
            "SELECT t.k, x.z FROM t JOIN u ON t.g = u.g JOIN x ON u.h = x.h",
            ("x",),
            {("new_u", "h"), ("new_t", "g"), ("self_old", "k")},
        ),
        (
            "SELECT u.h, MAX(t.v) AS m FROM t JOIN u ON t.g = u.g GROUP BY u.h",
            ("t",),
            {("old_u", "g"), ("new_u", "h"), ("new_t", "g"), ("self_old", "h")},
        ),
        (
            "SELECT t.k, u.g FROM t FULL JOIN u ON t.g = u.g",
            ("t",),
            {("old_t", "g"), ("new_t", "g"), ("old_u", "g"), ("self_old", "k", "g")},
        ),
        (
            "SELECT t.k, u.g FROM t FULL JOIN u ON t.g = u.g",
            ("u",),
            {("new_t", "g"), ("old_u", "g"), ("new_u", "g"), ("self_old", "k", "g")},
        ),
        # With its sides the other way round it is a LEFT JOIN.
        (
            "SELECT t.k, u.g FROM t RIGHT JOIN u ON t.g = u.g",
            ("t",),
            {("new_u", "g"), ("old_t", "g"), ("new_t", "g"), ("self_old", "g", "k")},
        ),
        ("SELECT t.k, u.g FROM t RIGHT JOIN u ON t.g = u.g", ("u",), {("old_t", "g"), ("self_old", "g", "k")}),
        (
            "SELECT t.k, u.g, x.z FROM t FULL JOIN u ON t.g = u.g LEFT JOIN x ON u.h = x.h",
            ("t",),
            {("old_t", "g"), ("new_t", "g"), ("old_u", "g"), ("old_x", "h"), ("self_old", "k", "g")},
        ),
        (
            "SELECT k FROM t WHERE g IN (SELECT g FROM u)",
            ("__s0",),
            {("new_t", "g"), ("old___s0", "g"), ("new___s0", "g"), ("self_old", "k")},
        ),
        (
            "SELECT k, RANK() OVER (PARTITION BY g ORDER BY v) AS r FROM t",
            ("t",),
            {("new_t", "g"), ("self_old", "__state.__p0")},
        ),
    ],
)
def test_rows_are_asked_for_by_key(query: str, changed: tuple[str, ...], wanted: set[tuple[str, ...]]) -> None:
    made = of_view(query, *changed)
    assert asked(made) == wanted
    assert made.scanned == {}


@pytest.mark.parametrize(
    ("query", "scanned"),
    [
        ("SELECT MAX(v) AS m FROM t", {"self_old", "new_t"}),
        ("SELECT COUNT(*) AS n FROM t", {"self_old"}),
        ("SELECT t.k, u.h FROM t JOIN u ON t.v < u.w", {"new_t", "old_u"}),
        (
            "SELECT t.k, u.g, x.z FROM t JOIN x ON t.v = x.z FULL JOIN u ON t.g = u.g",
            {"old_t", "new_t", "old_x", "new_x", "old_u", "new_u"},
        ),
        ("SELECT t.k, u.g FROM t FULL JOIN u ON t.v < u.w", {"old_t", "new_t", "old_u", "new_u"}),
        # Of a row of `t` that meets no `u` it may be the key of one of `x`.
        (
            "SELECT t.k, x.z FROM t LEFT JOIN u ON t.g = u.g JOIN x ON COALESCE(u.h, 'a') = x.h",
            {"new_t", "new_u", "old_x"},
        ),
        ("SELECT UPPER(g) AS g, MAX(v) AS m FROM t GROUP BY UPPER(g)", {"new_t"}),
        ("SELECT u.h, MAX(t.v) AS m FROM t LEFT JOIN u ON t.g = u.g GROUP BY u.h", {"new_t", "new_u"}),
    ],
)
def test_what_no_key_finds_is_scanned_and_why_is_said(query: str, scanned: set[str]) -> None:
    made = of_view(query)
    assert set(made.scanned) == scanned
    assert all(made.scanned.values())


def test_only_the_keys_that_large_relations_need_are_computed() -> None:
    made = of_view("SELECT u.h, MAX(t.v) AS m FROM t JOIN u ON t.g = u.g GROUP BY u.h", "t")
    assert made.needed([]) == []
    assert [each.relation for _, each in made.needed(["self_old"])] == ["self_old"]
    chain = [each.relation for _, each in made.needed(["new_t"])]
    assert chain == ["new_u", "new_t"], "rows of the groups' categories, then of their products"
