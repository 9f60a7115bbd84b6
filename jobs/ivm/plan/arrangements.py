"""Shared arrangements (STATE = 'shared'): a join has a table that all views of the pipeline over it read.

    view_1  MAX(length) … FROM visit JOIN info ON …   ┐                       ┌ view_1: aggregate
    view_2  COUNT(*)    … FROM visit JOIN info ON …   ┘ shared__… (the join) ─┤
                                                                              └ view_2: aggregate

The table holds all columns of the joined relations and no view's filter, so that views which differ in those share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from strandline.jobs.ivm.plan.key import giving
from strandline.jobs.ivm.plan.map import map_stage
from strandline.jobs.ivm.plan.rows import Rows, Selected, all_columns
from strandline.jobs.ivm.plan.trees import named
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import Input, Output, Stage
from strandline.jobs.sql.places import Place, replaced


class Adds(Protocol):
    """A builder that gives a stage its table."""

    def add(self, stage: Stage) -> Relation:
        """The stage's table."""


def arrangement(rows: Rows, stages: Adds) -> Rows:
    """The same rows, read from one relation that holds the join."""
    join = Rows(rows.inputs)
    names = dict(_names(rows))
    columns = tuple(
        Output(name, named(place[1], place[0]), dict(all_columns(_of(rows, place[0]).relation))[place[1]])
        for place, name in names.items()
    )
    stage = map_stage((Selected(join, columns),), with_events=True)
    if join.is_of_events():
        # A key of hidden places tells readers that the rows are events, see `is_stream`.
        stage = replace(stage, visible=tuple(name for name in stage.visible if name not in stage.key))
    relation = stages.add(stage)
    alias = rows.inputs[0].alias
    moved = {place: named(name, alias) for place, name in names.items()}
    return replace(
        rows,
        inputs=(Input(alias, relation),),
        where=replaced(rows.where, moved) if rows.where is not None else None,
        expand=tuple(replace(each, expression=replaced(each.expression, moved)) for each in rows.expand),
        values={place: replaced(value, moved) for place, value in rows.values.items()},
    )


def _names(rows: Rows) -> Iterator[tuple[Place, str]]:
    """Names for all columns of all inputs: by the inputs' numbers, since other views have other aliases."""
    for number, each in enumerate(giving(rows.inputs)):
        for name, _ in all_columns(each.relation):
            yield (each.alias, name), f"j{number}_{name}"


def _of(rows: Rows, alias: str) -> Input:
    return next(each for each in rows.inputs if each.alias == alias)
