"""A rule's text that lacks a condition of its stage is found out."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.ivm.plan.plan import plan_of_query
from strandline.jobs.ivm.rules.maintenance import check_written, maintenance
from strandline.jobs.model.errors import ConditionLost
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.unit.ivm.plan.planned import SOURCES

# The words of each text that a text without its condition would lack, for either engine.
TEXTS = {
    "SELECT u.name FROM users u JOIN areas a ON a.owner = u.id + 41": "41",
    "SELECT COUNT(*) AS n FROM (SELECT 41 AS c) q JOIN users u ON u.id = q.c": "41",
    "SELECT q.c, u.name FROM (SELECT 41 AS c) q LEFT JOIN users u ON u.id > q.c": "41",
    "SELECT name FROM users WHERE age > 41 OR id < 1": "41",
    "SELECT name FROM users WHERE age > 41 UNION ALL SELECT area FROM areas WHERE owner > 1": "41",
    "SELECT name, COUNT(*) AS n FROM users GROUP BY name HAVING COUNT(*) > 41": "41",
    "SELECT id, RANK() OVER (PARTITION BY name ORDER BY id) AS r FROM users QUALIFY r < 41": "41",
    "SELECT SUM(age) FILTER (WHERE id > 1) AS n FROM users": "__a0_filter",
}


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)


@pytest.mark.parametrize("dialect", get_args(Dialect))
@pytest.mark.parametrize(("text", "word"), TEXTS.items())
def test_a_text_without_a_condition_is_refused(text: str, word: str, dialect: Dialect, catalog: Catalog) -> None:
    made = plan_of_query("v", read_query(parse_query(text), catalog))
    engine, refused = engine_of(dialect), 0
    for stage in made.stages:
        for changed in ((), None):
            rule = maintenance(stage, dialect, changed)
            check_written("v", stage, rule, engine)
            sabotaged = re.sub(rf"(?<! AS )(?<! AS [\"`]){word}", "gone", rule)
            try:
                check_written("v", stage, sabotaged, engine)
            except ConditionLost:
                refused += 1
    assert refused


def test_a_branch_that_did_not_move_need_not_be_in_the_text(catalog: Catalog) -> None:
    text = "SELECT name FROM users WHERE age > 41 UNION ALL SELECT area FROM areas WHERE owner > 42"
    (stage,) = plan_of_query("v", read_query(parse_query(text), catalog)).stages
    rule = maintenance(stage, "duckdb", ["users"])
    assert "42" not in rule
    check_written("v", stage, rule, engine_of("duckdb"))
