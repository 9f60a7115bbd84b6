"""Lineage: the topics, event logs, tables and views of a lake, and what each is made of.

topic ──> event log ──> table ──> view ──> view        a query that inserts into a stream joins its inputs to it

Column lineage: the input columns that each output column of a view is made of, read from its plan.

    SELECT s.area, AVG(r.value) AS mean FROM readings r JOIN sensors s ON …

        area  <- sensors.area
        mean  <- readings.value

Only columns that make up the value count: those that merely filter, join or group a row are not among its origins.
The origins of a function over a window are those of its arguments; without arguments (ROW_NUMBER), of its ORDER BY.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Source, View
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
from strandline.jobs.model.tables import ITSELF, WINDOW_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.definitions import Definition, State
    from strandline.jobs.model.stage import Plan


Role = Literal["topic", "event log", "table", "view"]


@dataclass(frozen=True)
class Node:
    """One place that rows lie in.

    Attributes:
        id: unique: `topic/NAME` for a topic, else the name of the table.
        definition: the name of the stream, table or view that it belongs to.
        state: `partial` for a view of which no rows lie anywhere.
    """

    id: str
    name: str
    role: Role
    definition: str
    pipeline: str
    state: State = "full"


@dataclass(frozen=True)
class Lineage:
    """The graph.

    Attributes:
        nodes: in the order of their definitions.
        edges: (from, to): ids of nodes; rows go from the one to the other.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]

    def localized(self, name_map: NameMap) -> Lineage:
        """The same graph, with the names that people see in the place of the stored ones."""
        ids = {node.id: node.id if node.role == "topic" else name_map.of(node.id) for node in self.nodes}
        nodes = (
            replace(
                node,
                id=ids[node.id],
                name=node.name if node.role == "topic" else ids[node.id],
                definition=name_map.of(node.definition),
            )
            for node in self.nodes
        )
        return Lineage(tuple(nodes), tuple((ids[one], ids[other]) for one, other in self.edges))


def lineage(definitions: Iterable[Definition], shown: Callable[[str], bool]) -> Lineage:
    """The lineage of these definitions.

    Args:
        shown: of the name of a definition, whether it is in the graph; an edge needs both its ends.
    """
    listed = list(definitions)
    nodes: dict[str, Node] = {}
    for definition in listed:
        if not isinstance(definition, InsertQuery) and shown(definition.name):
            # Two streams may read one topic, which is one node.
            nodes |= {node.id: node for node in _nodes(definition) if node.id not in nodes}
    edges = (edge for definition in listed for edge in _edges(definition))
    return Lineage(
        tuple(nodes.values()),
        tuple(dict.fromkeys(edge for edge in edges if edge[0] in nodes and edge[1] in nodes)),
    )


def _nodes(definition: Definition) -> Iterator[Node]:
    name, pipeline = definition.name, definition.pipeline
    if not isinstance(definition, Source):
        state = definition.maintenance.state if isinstance(definition, View) else "full"
        yield Node(name, name, "view", name, pipeline, state)
        return
    yield Node(_topic(definition), definition.upstream, "topic", name, pipeline)
    event_log = tables.event_log(definition)
    yield Node(event_log, event_log, "event log", name, pipeline)
    if event_log != name:
        yield Node(name, name, "table", name, pipeline)


def _edges(definition: Definition) -> Iterator[tuple[str, str]]:
    if isinstance(definition, Source):
        event_log = tables.event_log(definition)
        yield (_topic(definition), event_log)
        if event_log != definition.name:
            yield (event_log, definition.name)
        return
    made = definition.target if isinstance(definition, InsertQuery) else definition.name
    for name in definition.inputs:
        yield (name, made)


def _topic(source: Source) -> str:
    return f"topic/{source.upstream}"


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
