"""Breaches of the plan: circles, imports against the floors, rooms off the plan. Sizes are reported, not judged."""

from __future__ import annotations

from collections.abc import Iterator

from infra.house.graph import Edge, against_the_floors, circles_by_scope
from infra.house.measures import File, lines_by_room
from infra.house.plan import ROOMS, room_of


def breaches(edges: list[Edge], files: list[File]) -> list[str]:
    """Find what is against the plan; empty when the house is in order."""
    return [*_imports(edges), *_rooms(files)]


def _imports(edges: list[Edge]) -> Iterator[str]:
    for scope, rings in circles_by_scope(edges).items():
        for ring in rings:
            yield f"a circle between {scope}: {' -> '.join(ring)}"
    for edge in against_the_floors(edges):
        one, other = room_of(edge.importer), room_of(edge.imported)
        yield f"{edge.importer} imports {edge.imported}: {other} does not stand below {one}"


def _rooms(files: list[File]) -> Iterator[str]:
    for room in lines_by_room(files):
        if room not in ROOMS:
            yield f"jobs/{room}: stands on no floor of the plan"
