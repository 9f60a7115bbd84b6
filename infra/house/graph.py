"""Who imports whom: between files, folders and rooms; circles in that, and imports against the plan.

Imports inside functions and those for types alone count like all others: they tie files together just the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import grimp

from infra.house.plan import LIBRARIES, PACKAGE, ROOMS, ROOT, TOOLS, TOPS, below, room_of

Graph = Mapping[str, Iterable[str]]
"""The imports of each module."""


@dataclass(frozen=True)
class Edge:
    """One module that imports another; of a library only its first name is told."""

    importer: str
    imported: str


def all_imports() -> list[Edge]:
    """Every import that a module of the product or of its tools makes, of each other and of libraries, sorted."""
    graph = grimp.build_graph(PACKAGE, *TOOLS, include_external_packages=True, cache_dir=None)
    return [
        Edge(module, imported)
        for module in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(module))
    ]


def is_product(module: str) -> bool:
    """True for a module of the product, False for a library's."""
    return module.split(".")[0] == PACKAGE


def inner(edges: Iterable[Edge]) -> list[Edge]:
    """The imports of the product's modules among themselves."""
    return [edge for edge in edges if is_product(edge.importer) and is_product(edge.imported)]


def folder(module: str) -> str:
    """The folder that a module's file lies in, dotted."""
    is_package = ROOT.joinpath(*module.split("."), "__init__.py").exists()
    return module if is_package else module.rpartition(".")[0]


def between_rooms(edges: Iterable[Edge]) -> Counter[tuple[str, str]]:
    """How many imports each room makes of each other one."""
    pairs = ((room_of(edge.importer), room_of(edge.imported)) for edge in inner(edges))
    return Counter((one, other) for one, other in pairs if one is not None and other is not None and one != other)


def importers(edges: Iterable[Edge]) -> Counter[str]:
    """How many modules import each module of the product."""
    return Counter(edge.imported for edge in inner(edges))


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


def circles_by_scope(edges: Iterable[Edge]) -> dict[str, list[list[str]]]:
    """The circles between files, folders and rooms."""
    own = inner(edges)
    graphs = {
        "files": _graph((edge.importer, edge.imported) for edge in own),
        "folders": _graph((folder(edge.importer), folder(edge.imported)) for edge in own),
        "rooms": _graph(between_rooms(own)),
    }
    return {scope: circles(graph) for scope, graph in graphs.items()}


def breaches(edges: list[Edge], files: Iterable[str]) -> list[str]:
    """Find what is against the plan, a line each; empty when the house is in order.

    Args:
        edges: the imports of the product and of its tools.
        files: the product's modules, dotted.
    """
    return [*_circles(edges), *_against_the_floors(edges), *_libraries(edges), *_rooms(files)]


def _circles(edges: list[Edge]) -> Iterator[str]:
    for scope, rings in circles_by_scope(edges).items():
        for ring in rings:
            yield f"a circle between {scope}: {' -> '.join(ring)}"


def _against_the_floors(edges: Iterable[Edge]) -> Iterator[str]:
    for edge in inner(edges):
        importer, imported = room_of(edge.importer), room_of(edge.imported)
        if importer == imported or imported is None:
            continue
        allowed = below(importer) if importer in ROOMS else ()
        if imported not in allowed:
            yield f"{edge.importer} imports {edge.imported}: {imported} does not stand below {importer}"


def _libraries(edges: Iterable[Edge]) -> Iterator[str]:
    for edge in edges:
        name, importer = edge.imported.split(".")[0], edge.importer.split(".")[0]
        if importer in TOOLS:
            if name != importer and name in (PACKAGE, *TOOLS, *TOPS) and name not in TOOLS[importer]:
                yield f"{edge.importer} imports {edge.imported}: {importer} stands without {name}"
        elif name in TOOLS:
            yield f"{edge.importer} imports {edge.imported}: the product stands without {name}"
        elif name in TOPS:
            yield f"{edge.importer} imports {edge.imported}: its name is {PACKAGE}.{edge.imported}"
        elif name in LIBRARIES and room_of(edge.importer) not in LIBRARIES[name]:
            yield f"{edge.importer} imports {name}: only {', '.join(LIBRARIES[name])} may"


def _rooms(files: Iterable[str]) -> Iterator[str]:
    found = {room_of(module) for module in files} - {None}
    for room in sorted(str(each) for each in found if each not in ROOMS):
        yield f"jobs/{room}: stands on no floor of the plan"


def _graph(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    made: dict[str, set[str]] = {}
    for one, other in pairs:
        if one != other:
            made.setdefault(one, set()).add(other)
    return made
