"""Column lineage: the input columns that each output column of a view is made of, read from its plan.

    SELECT s.area, AVG(r.value) AS mean FROM readings r JOIN sensors s ON …

        area  <- sensors.area
        mean  <- readings.value

Only columns that make up the value count: those that merely filter, join or group a row are not among its origins.
The origins of a function over a window are those of its arguments; without arguments (ROW_NUMBER), of its ORDER BY.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.model.relation import ITSELF, WINDOW_BOUNDS
from strandline.jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    Core,
    LatestStage,
    MapStage,
    RecursiveStage,
    Stage,
    body_of,
)

if TYPE_CHECKING:
    from strandline.jobs.model.stage import Plan


@dataclass(frozen=True, order=True)
class InputColumn:
    """A column of an input."""

    input: str
    column: str


def column_origins(plan: Plan) -> dict[str, tuple[InputColumn, ...]]:
    """{output column: its origins, sorted}, in the order of the view's columns.

    Inner stages are followed down to the plan's inputs. A constant has no origins, and neither has COUNT(*).
    """
    stages = {stage.table: stage for stage in plan.stages[:-1]}
    last = plan.stages[-1]
    return {name: tuple(sorted(set(_of_column(last, name, stages)))) for name in _visible(last)}


def _visible(stage: Stage) -> Sequence[str]:
    if not isinstance(stage, MapStage):
        return [output.name for output in stage.outputs]
    meta = {"_partition", "_offset", "_timestamp", "_stream_time", "_headers"}
    return [name for name in stage.visible if name not in meta]


def _of_column(stage: Stage, name: str, stages: Mapping[str, Stage]) -> Iterator[InputColumn]:
    """The origins of a column of a stage's table, visible or hidden."""
    match stage:
        case MapStage():
            yield from _of_body(stage, name, stages)
        case LatestStage():
            yield InputColumn(stage.input.name, name)
        case RecursiveStage():
            yield from _of_recursion(stage, name, stages)
        case AggregateStage() | AnalyticStage():
            output = next((each.expression for each in stage.outputs if each.name == name), None)
            for read in _names(output) if output is not None else [name]:
                for column in _below(stage, read):
                    yield from _of_body(stage, column, stages)


def _below(stage: AggregateStage | AnalyticStage, name: str) -> Iterator[str]:
    """The body's columns that a name above it is made of."""
    if isinstance(stage, AggregateStage):
        for group in stage.group:
            if group.name == name:
                yield from _names(group.expression)
        for call in stage.aggregates:
            if call.name == name:
                yield from (column for each in call.arguments for column in _names(each))
        if stage.session is not None and name in WINDOW_BOUNDS:
            yield stage.session.time
        return
    over = next((each for each in stage.calls if each.name == name), None)
    if over is None:
        yield name
        return
    values = over.arguments or tuple(each for each, _, _ in over.order)
    yield from (column for each in values for column in _names(each))


def _of_body(stage: Stage, name: str, stages: Mapping[str, Stage]) -> Iterator[InputColumn]:
    for core in body_of(stage):
        column = next((each for each in core.columns if each.name == name), None)
        if column is not None:
            yield from _of_expression(core, column.expression, stages)


def _of_recursion(stage: RecursiveStage, name: str, stages: Mapping[str, Stage]) -> Iterator[InputColumn]:
    """The origins of a column of a recursion, and of those of its columns that it follows from."""
    names = [name]
    for each in names:
        yield from _of_body(stage, each, stages)
        for core in stage.steps:
            itself = next(part.alias for part in core.inputs if part.relation.name == ITSELF)
            value = next(output.expression for output in core.columns if output.name == each)
            read = dict.fromkeys(column.name for column in value.find_all(exp.Column) if column.table == itself)
            names += [column for column in read if column not in names]


def _of_expression(core: Core, node: exp.Expr, stages: Mapping[str, Stage]) -> Iterator[InputColumn]:
    for column in node.find_all(exp.Column):
        source = next((each.relation for each in core.inputs if each.alias == column.table), None)
        item = next((each.expression for each in core.expand if each.name == column.name), None)
        if source is not None and source.name in stages:
            yield from _of_column(stages[source.name], column.name, stages)
        elif source is not None and source.name != ITSELF:
            yield InputColumn(source.name, column.name)
        elif item is not None:
            yield from _of_expression(core, item, stages)


def _names(node: exp.Expr) -> list[str]:
    return [column.name for column in node.find_all(exp.Column)]
