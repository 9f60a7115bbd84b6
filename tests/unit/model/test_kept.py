"""What is kept with a stage: made once for each stage and each of its arguments, and gone with the stage."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from strandline.jobs.ivm.refresh.context import Heads
from strandline.jobs.ivm.refresh.guarded_stage import StageDecision, decide
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import ErrorPolicy
from strandline.jobs.model.stage import Core, Input, LatestStage, MapStage, Output, Stage, kept_with_stage
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from tests.support.parsed import parse_expression

LOG = Relation("t", (("k", t.VARCHAR),), "append")


def test_it_is_made_once_for_each_stage_and_argument() -> None:
    asked: list[tuple[str, int]] = []

    @kept_with_stage
    def made(stage: Stage, number: int) -> str:
        asked.append((stage.table, number))
        return f"{stage.table} {number}"

    one, other = can_fail("a"), can_fail("b")
    assert [made(one, 1), made(one, 1), made(one, 2), made(other, 1)] == ["a 1", "a 1", "a 2", "b 1"]
    assert asked == [("a", 1), ("a", 2), ("b", 1)]
    # Trees are equal where they differ by case.
    assert made(replace(one), 1) == "a 1"
    assert asked[3:] == [("a", 1)]


@pytest.mark.parametrize("policy", ["dead_letter", "stop", "null"])
@pytest.mark.parametrize("latest", [True, False])
def test_a_decision_is_kept_as_long_as_its_stage(policy: ErrorPolicy, latest: bool) -> None:
    stage: Stage = LatestStage("t", LOG, (), ()) if latest else can_fail("v")
    decision = decide(stage, policy, "v__dead_letters", Without())
    assert decide(stage, policy, "v__dead_letters", Without()) == decision
    assert latest or decide(stage, policy, "v__dead_letters", Without()) is decision
    watched: weakref.ref[Stage | StageDecision] = weakref.ref(decision)
    del decision
    gc.collect()
    assert (watched() is None) == latest
    del stage
    gc.collect()
    assert watched() is None


class Without(Heads):
    """The heads of a lake without dead letters."""

    def __init__(self) -> None:
        """Know of no lake."""

    def find(self, name: str) -> None:
        """None."""


def can_fail(table: str) -> MapStage:
    """A stage that casts texts to numbers."""
    number = Output("n", infer(parse_expression("CAST(k AS INT)"), Scope(LOG, ("t",))).expression, t.INT)
    return MapStage(table, (Core((Input("t", LOG),), None, (number,)),), ("n",))
