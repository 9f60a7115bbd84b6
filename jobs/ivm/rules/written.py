"""Proof that the text of a rule says every condition of its stage.

A stage holds its conditions as trees: where its cores join and filter, what its calls are filtered by, which rows it
keeps. Each core that a text reads must have its conditions there, in the engine's words; a core that a text leaves
out, since nothing that it reads has moved, needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.rules.aggregate import filter_name
from strandline.jobs.ivm.rules.join_sides import Side
from strandline.jobs.model.errors import ConditionLost
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, Core, LatestStage, Stage
from strandline.jobs.sql.dialect import sql_of


def check_written(view: str, stage: Stage, text: str, engine: Engine) -> None:
    """Check that a rule's text has the conditions of its stage.

    Raises:
        ConditionLost: it lacks one.
    """
    if isinstance(stage, LatestStage):
        return
    for core in stage.body:
        for condition in _conditions(core) if _is_read(core, text, engine) else ():
            if lower(condition, engine.dialect) not in text:
                raise ConditionLost.of(view, sql_of(condition))
    if isinstance(stage, AnalyticStage) and stage.keep is not None and lower(stage.keep, engine.dialect) not in text:
        raise ConditionLost.of(view, f"QUALIFY {sql_of(stage.keep)}")
    for call in stage.aggregates if isinstance(stage, AggregateStage) else ():
        name = filter_name(call, engine)
        if name is not None and call.filter is not None and text.count(name) <= text.count(f" AS {name}"):
            raise ConditionLost.of(view, f"{call.function} … FILTER (WHERE {sql_of(call.filter)})")


def _conditions(core: Core) -> Iterator[exp.Expression]:
    yield from (each.on for each in core.inputs if each.on is not None)
    if core.where is not None:
        yield core.where


def _is_read(core: Core, text: str, engine: Engine) -> bool:
    """True if the text joins the relations of a core."""
    names = (f"{side}_{each.alias}" for each in core.inputs for side in get_args(Side))
    return any(engine.name(name) in text for name in names)
