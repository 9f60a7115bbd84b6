"""Changes of two inputs that cancel each other out in an inner stage: the rows of the view are those of its vector."""

from __future__ import annotations

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.altered_lake import rows
from tests.support.invariants import assert_correct

SOURCES = """
CREATE TABLE a (id INT PRIMARY KEY, n INT);
CREATE TABLE b (id INT PRIMARY KEY, v INT);
"""
COUNTED = """
CREATE MATERIALIZED VIEW counted{} AS
    SELECT a.id, x.c, x.m FROM a, LATERAL (SELECT COUNT(*) AS c, MAX(b.v) AS m FROM b WHERE b.id = a.n) AS x;
"""


@pytest.mark.parametrize("options", ["", " WITH (STATE = 'shared')"])
def test_a_partner_that_goes_as_its_row_comes(settings: Settings, lake: LakeLayout, options: str) -> None:
    """Found by the property over paths (seed 60007): `verify --deep` and drills called the view broken."""
    session = Interpreter(settings, "shop")
    for statements in (
        SOURCES + COUNTED.format(options) + "INSERT INTO b VALUES (2, 7);",
        "INSERT INTO a VALUES (1, 2); DELETE FROM b WHERE id = 2;",
    ):
        list(session.run(statements))
        drain(settings, "shop")
        assert_correct(lake, "shop")
        assert [check for check in verify(settings, deep=True) if check.ok is False] == []
    assert rows(lake, "counted") == [(1, 0, None)]


def test_a_stage_with_one_input_that_moved_makes_no_commit(settings: Settings, lake: LakeLayout) -> None:
    session = Interpreter(settings, "shop")
    list(session.run(SOURCES + COUNTED.format("") + "INSERT INTO a VALUES (1, 2); INSERT INTO b VALUES (2, 7);"))
    drain(settings, "shop")
    before = {each: reader.head(lake.table(each)) for each in ("counted__stage_1", "counted__stage_2", "counted")}
    list(session.run("INSERT INTO b VALUES (9, 7)"))
    drain(settings, "shop")
    assert {each: reader.head(lake.table(each)) for each in before} == before
