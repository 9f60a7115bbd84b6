"""Look-ups apart: events with the rows of tables that they found, in a table of their own.

    SESSION … FROM s JOIN t (frozen)  ──>  v__stage_1: s JOIN t (frozen), only ever added to
                                           v: SESSION … FROM v__stage_1

An event joins a frozen table once, as it is when the event is taken in. A rule that reads its inputs again (a session,
a window function, all rows of an aggregate) would find other rows of the table than the event did. So what was found is
stored, unless the stage itself only stores what it joins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Protocol

from sqlglot import exp

from strandline.jobs.ivm.plan.map import map_stage
from strandline.jobs.ivm.plan.rows import Rows, Selected, all_columns
from strandline.jobs.ivm.plan.trees import named
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import (
    AggregateStage,
    Core,
    Input,
    LatestStage,
    MapStage,
    Output,
    Stage,
    inputs_of,
    storage_of_body,
)
from strandline.jobs.sql.places import Place, columns_in, place_of, replaced


class Adds(Protocol):
    """A builder that gives a stage its table."""

    def add(self, stage: Stage) -> Relation:
        """The stage's table."""

    def note(self, text: str) -> None:
        """Keep a reason for EXPLAIN."""


def lookups_apart(stage: Stage, stages: Adds) -> Stage:
    """The same stage, over tables that hold what its events found where its rule may read them again.

    A table that is looked up after a join whose rows change stays where it is: a row of that join finds the row that is
    there in the epoch in which the join gives it.
    """
    if isinstance(stage, LatestStage) or not any(each.frozen for each in inputs_of(stage)):
        return stage
    if isinstance(stage, MapStage) and storage_of_body(stage.body) == "append":
        return stage
    late = stage.late if isinstance(stage, AggregateStage) else ()
    read = {place for core in (*stage.body, *late) for place in _read(core)}
    body = tuple(_over_table(core, read, stages) for core in stage.body)
    if isinstance(stage, AggregateStage):
        return replace(stage, body=body, late=tuple(_over_table(core, read, stages) for core in late))
    return replace(stage, body=body)


def _over_table(core: Core, read: Collection[Place], stages: Adds) -> Core:
    """The core with its first inputs, as far as rows of them are only ever added, read from a table of their join.

    Args:
        read: the columns that cores of the stage read; the table has those.
    """
    first = _first(core)
    if not any(each.frozen for each in first):
        return core
    rows = Rows(first)
    meta = {place_of(value): name for name, value in rows.meta().items()}
    columns, moved = [], {}
    for number, each in enumerate(first):
        for name, sql_type in all_columns(each.relation):
            place = (each.alias, name)
            if place in read:
                # An event's own time and place are stored beside the columns in any case.
                stored = meta.get(place, f"j{number}_{name}")
                moved[place] = named(stored, first[0].alias)
                if place not in meta:
                    columns.append(Output(stored, named(name, each.alias), sql_type))
    stages.note("events look up tables once: an inner stage keeps what each of them found")
    joined = Input(first[0].alias, stages.add(map_stage((Selected(rows, tuple(columns)),))))
    others = tuple(
        replace(each, on=replaced(each.on, moved) if each.on is not None else None)
        for each in core.inputs[len(first) :]
    )
    return replace(
        core,
        inputs=(joined, *others),
        where=replaced(core.where, moved) if core.where is not None else None,
        columns=tuple(_moved(each, moved) for each in core.columns),
        expand=tuple(_moved(each, moved) for each in core.expand),
    )


def _first(core: Core) -> tuple[Input, ...]:
    """The inputs up to the first one whose rows, or whose matches, change and go."""
    return tuple(
        takewhile(lambda each: each.frozen or (each.relation.storage == "append" and each.join == "inner"), core.inputs)
    )


def _read(core: Core) -> Iterator[Place]:
    """The places of the columns that a core reads of its inputs, once the first of them are joined."""
    trees = [each.expression for each in (*core.columns, *core.expand)]
    trees += [each.on for each in core.inputs[len(_first(core)) :] if each.on is not None]
    trees += [core.where] if core.where is not None else []
    return ((column.table, column.name) for tree in trees for column in columns_in(tree))


def _moved(output: Output, values: Mapping[Place, exp.Expression]) -> Output:
    return replace(output, expression=replaced(output.expression, values))
