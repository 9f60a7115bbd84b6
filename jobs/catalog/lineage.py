"""Lineage: the topics, event logs, tables and views of a lake, and what each is made of.

topic ──> event log ──> table ──> view ──> view        a query that inserts into a stream joins its inputs to it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Source, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.options import State

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
