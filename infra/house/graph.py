"""Who imports whom: between files, folders and rooms; circles in that, and imports against the floors.

Imports inside functions and those for types alone count like all others: they tie files together just the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import grimp

from infra.house.plan import PRODUCT, ROOMS, ROOT, below, room_of

Graph = Mapping[str, Iterable[str]]
"""The imports of each module."""


@dataclass(frozen=True)
class Edge:
    """One module that imports another."""

    importer: str
    imported: str


def product_imports() -> list[Edge]:
    """Every import of the product's modules among themselves, sorted."""
    graph = grimp.build_graph(*PRODUCT, cache_dir=None)
    return [
        Edge(module, imported)
        for module in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(module))
    ]


def folder(module: str) -> str:
    """The folder that a module's file lies in, dotted."""
    is_package = ROOT.joinpath(*module.split("."), "__init__.py").exists()
    return module if is_package else module.rpartition(".")[0]


def between_files(edges: Iterable[Edge]) -> dict[str, set[str]]:
    """The imports as a graph of modules."""
    return _graph((edge.importer, edge.imported) for edge in edges)


def between_folders(edges: Iterable[Edge]) -> dict[str, set[str]]:
    """The imports as a graph of folders."""
    return _graph((folder(edge.importer), folder(edge.imported)) for edge in edges)


def between_rooms(edges: Iterable[Edge]) -> Counter[tuple[str, str]]:
    """How many imports each room makes of each other one."""
    pairs = ((room_of(edge.importer), room_of(edge.imported)) for edge in edges)
    return Counter((one, other) for one, other in pairs if one is not None and other is not None and one != other)


def circles(graph: Graph) -> list[list[str]]:
    """Rings of imports, each as `a, b, …, a`: enough of them that breaking these leaves none."""
    left = {one: set(others) for one, others in graph.items()}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            # Every node in it is imported by the next one.
            ring: list[str] = error.args[1]
            left[ring[1]].discard(ring[0])
            found.append(ring[::-1])
        else:
            return found


def circles_by_scope(edges: list[Edge]) -> dict[str, list[list[str]]]:
    """The circles between files, folders and rooms."""
    graphs = {
        "files": between_files(edges),
        "folders": between_folders(edges),
        "rooms": _graph(between_rooms(edges)),
    }
    return {scope: circles(graph) for scope, graph in graphs.items()}


def against_the_floors(edges: Iterable[Edge]) -> list[Edge]:
    """Imports of a room that does not stand below the importing one; a room off the plan stands nowhere."""
    found = []
    for edge in edges:
        importer, imported = room_of(edge.importer), room_of(edge.imported)
        if importer == imported or imported is None:
            continue
        allowed = below(importer) if importer in ROOMS else ()
        if imported not in allowed:
            found.append(edge)
    return found


def _graph(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    made: dict[str, set[str]] = {}
    for one, other in pairs:
        if one != other:
            made.setdefault(one, set()).add(other)
    return made
