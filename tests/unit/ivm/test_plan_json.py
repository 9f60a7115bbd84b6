"""A plan reads back from JSON as it was, in every class, field and node; what has no place there is refused."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from typing import get_args

import pytest
from sqlglot import exp

from strandline.jobs.engines.engine import Dialect
from strandline.jobs.ivm import compiled
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Definition
from strandline.jobs.model.stage import Core, Input, MapStage, Output, Plan
from strandline.jobs.model.tables import Relation
from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.support.compiled_plans import corpus, of_docs, planned, unlike


def read_back(plan: Plan) -> Plan:
    return compiled.plan_from_json(json.loads(json.dumps(compiled.plan_to_json(plan))))


def plan_of(expression: exp.Expression, sql_type: t.SqlType = t.INT) -> Plan:
    """A plan with one column."""
    rows = Relation("s", (("n", sql_type),), "append")
    core = Core((Input("s", rows),), None, (Output("n", expression, sql_type),))
    return Plan("v", (MapStage("v", (core,), ("n",)),))


def classes(value: object) -> set[str]:
    """The classes of all that a plan consists of, but for its trees."""
    found: set[str] = set()
    if is_dataclass(value):
        found = {type(value).__name__}.union(*(classes(getattr(value, each.name)) for each in fields(value)))
    if isinstance(value, tuple):
        found = set[str]().union(*map(classes, value))
    return found


def test_every_plan_of_the_corpus_reads_back_as_it_was() -> None:
    found: set[str] = set()
    count = 0
    for text, definition, catalog in corpus():
        plan = planned(definition, catalog)
        if plan is not None:
            assert unlike(plan, read_back(plan)) is None, text
            found |= classes(plan)
            count += 1
    assert count > 120
    known = set(compiled.CLASSES)
    assert known <= found, "a class that the corpus lacks"


def test_every_plan_in_the_docs_reads_back_as_it_was() -> None:
    found: list[Definition] = []
    for definition, catalog in of_docs():
        plan = planned(definition, catalog)
        if plan is not None:
            assert unlike(plan, read_back(plan)) is None, definition.sql
            found.append(definition)
    assert len(found) > 7


@pytest.mark.parametrize("seed", range(8))
def test_random_plans_read_back_as_they_were(seed: int) -> None:
    catalog = scenario(Picker.seeded(seed), 8, Tally()).defined()
    for definition in catalog.definitions():
        plan = planned(definition, catalog)
        if plan is not None:
            assert unlike(plan, read_back(plan)) is None, definition.sql


@pytest.mark.parametrize("seed", range(100, 103))
def test_rules_of_a_plan_that_was_read_back_are_the_same_texts(seed: int) -> None:
    catalog = scenario(Picker.seeded(seed), 8, Tally()).defined()
    for definition in catalog.definitions():
        plan = planned(definition, catalog)
        for stage, again in zip(plan.stages, read_back(plan).stages, strict=True) if plan is not None else ():
            assert spec_of(stage) == spec_of(again)
            for dialect in get_args(Dialect):
                for changed in ((), None):
                    assert maintenance(stage, dialect, changed) == maintenance(again, dialect, changed)


def test_a_type_whose_text_does_not_read_back_is_refused() -> None:
    of_two = t.struct(("a`b", t.INT))
    with pytest.raises(TypeError, match="no text that reads back"):
        compiled.plan_to_json(plan_of(exp.column("n"), of_two))


def test_what_has_no_place_in_a_stored_plan_is_refused() -> None:
    class Strange(exp.Expression):
        pass

    noted, commented = exp.column("n"), exp.column("n")
    noted.meta["what"] = object()
    commented.add_comments(["why"])
    for wrong in (Strange(), noted, exp.Literal(this=1.5), commented):
        with pytest.raises(TypeError, match="no place"):
            compiled.plan_to_json(plan_of(wrong))


def test_relations_stand_once_and_are_shared_by_all_plans_that_read_them() -> None:
    plan = plan_of(exp.column("n"))
    (stage,) = plan.stages
    assert isinstance(stage, MapStage)
    twice = replace(plan, stages=(replace(stage, body=(*stage.body, *stage.body)),))
    document = compiled.plan_to_json(twice)
    assert len(document["relations"]) == 1
    one, other = (compiled.plan_from_json(document).stages[0] for _ in range(2))
    assert isinstance(one, MapStage)
    assert isinstance(other, MapStage)
    assert one.body[0].inputs[0].relation is other.body[1].inputs[0].relation


def test_another_document_is_no_plan() -> None:
    document = compiled.plan_to_json(plan_of(exp.column("n")))
    with pytest.raises(ValueError, match="a plan was expected, not int"):
        compiled.plan_from_json({**document, "plan": 1})
    with pytest.raises(ValueError, match="Plan has too many fields"):
        compiled.plan_from_json({**document, "plan": [*document["plan"], ["", "a"], 1, 2]})
    with pytest.raises(KeyError):
        compiled.plan_from_json({**document, "plan": ["SqlType", "x"]})
    with pytest.raises(TypeError, match="DType has no place"):
        compiled.plan_from_json({**document, "plan": ["Plan", "v", ["", ["E", ["DType", {}]]]]})
