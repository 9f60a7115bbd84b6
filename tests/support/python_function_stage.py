"""The functions of `tests.support.python_functions` as the catalog holds them, and a stage that aggregates by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline.jobs.functions.aggregates.registry import CustomAggregate
from strandline.jobs.functions.python import Code
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Function
from strandline.jobs.model.stage import AggregateCall, AggregateStage
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import SqlType
from tests.support import python_functions
from tests.support.rule_harness import core, output, parse

MODULE = python_functions.__name__


def function(name: str, parameters: list[SqlType], returns: SqlType, attribute: str, **options: Any) -> Function:
    columns = tuple(Column(f"p{number}", kind) for number, kind in enumerate(parameters))
    source = Code(MODULE, attribute).source()
    return Function(name, columns, returns, MODULE, attribute, source, "", **options)


def call(name: str, made: Function, *arguments: str, condition: str | None = None) -> AggregateCall:
    bound = CustomAggregate.declared(made).bind(
        tuple(parse(a) for a in arguments), tuple(column.type for column in made.parameters)
    )
    found = AggregateCall(name, made.name, bound.arguments, bound.argument_types, bound.type, bound.parameters)
    return found if condition is None else replace(found, filter=parse(condition))


LONGEST = function("LONGEST", [t.VARCHAR], t.VARCHAR, "Longest", aggregate=True)
WEIGHTED = function("WSUM", [t.INT, t.BIGINT], t.BIGINT, "WeightedSum", aggregate=True, retracts=True)
ITEMS = Relation("items", (("id", t.INT), ("k", t.INT), ("word", t.VARCHAR), ("v", t.INT)), "keyed", ("id",))
_CALLS = (
    call("__a0", LONGEST, "word"),
    call("__a1", WEIGHTED, "v", "2"),
    call("__a2", LONGEST, "word", condition="v > 0"),
    call("__a3", WEIGHTED, "v", "k", condition="v > 0"),
)
_KEY = output("k", "k", t.INT)
_NAMES = ("word", "total", "some_word", "some_total")
WORDS_STAGE = AggregateStage(
    "view",
    (core(ITEMS),),
    (_KEY,),
    _CALLS,
    (_KEY, *(output(name, c.name, c.type) for name, c in zip(_NAMES, _CALLS, strict=True))),
    ("k",),
)
"""With and without `retract`, filtered or not."""
