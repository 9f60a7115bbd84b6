"""The dead letters of a stage know their rows apart by what tells the inputs' rows apart."""

from __future__ import annotations

from strandline.jobs.ivm.refresh.guarded_stage import guarded
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import Core, Input, MapStage, Output
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from tests.support.parsed import parse_expression

T = Relation("t", (("id", t.INT), ("k", t.VARCHAR)), "keyed", ("id",))
TOTAL = Relation("total", (("n", t.BIGINT),), "keyed")
"""The one row of a global aggregate: it has no key, and no place in a topic either."""


def test_an_input_of_one_row_adds_nothing_to_the_identity() -> None:
    number = Output("q", infer(parse_expression("CAST(k AS INT)"), Scope(T, ("t",))).expression, t.INT)
    core = Core((Input("t", T), Input("total", TOTAL, "left", parse_expression("TRUE"))), None, (number,), ())
    letters = guarded(MapStage("view", (core,), ("q",), ()), "view__dead_letters").aside
    assert letters is not None
    assert letters.key == ("__i0_0_id",)
