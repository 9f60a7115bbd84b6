"""The plan of the house, as data: which rooms stand on which floor.

The lint rule of each room, the page on the architecture and the checks of `make house` are all made from here.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

FLOORS: tuple[tuple[str, ...], ...] = (
    ("state_store",),
    ("model", "replicas"),
    ("sql", "engines", "ingest", "expect"),
    ("functions",),
    ("catalog",),
    ("query",),
    ("ivm", "serve", "publish"),
    ("run", "partial"),
    ("operate",),
    ("session",),
    ("server", "testing"),
    ("cli", "orchestration"),
    ("strandline",),
)
"""The lowest first. A room imports only from floors below its own; rooms side by side do not know each other."""

OUTSIDE_JOBS = ("state_store", "replicas", "orchestration", "strandline")
"""Rooms that are packages of their own, or in `state_store`; every other is a package in `jobs`."""
IN_STORE = ("replicas",)
"""Rooms in the package `state_store`. What is not in one of them is the room `state_store` itself, which is below."""
UNSEEN = ("orchestration",)
"""Rooms that nothing imports, on whatever floor it stands: Dagster starts jobs, never the other way round."""
FACADE = ("strandline",)
"""The public package for users' own code: it shows what others offer, Dagster's definitions among them."""
PRODUCT = ("state_store", "jobs", "orchestration", "strandline")
TOOLS = ("infra", "benchmarks")
"""Packages of tools: no room imports them."""


ROOMS: tuple[str, ...] = tuple(room for floor in FLOORS for room in floor)


def package_of(room: str) -> str:
    """The room's dotted name."""
    if room in IN_STORE:
        return f"state_store.{room}"
    return room if room in OUTSIDE_JOBS else f"jobs.{room}"


def folder_of(room: str) -> Path:
    """The folder of the room in the tree; it may not be there yet."""
    return ROOT.joinpath(*package_of(room).split("."))


def standing() -> tuple[str, ...]:
    """The rooms that are in the tree, the lowest first."""
    return tuple(room for room in ROOMS if (folder_of(room) / "__init__.py").exists())


def room_of(module: str) -> str | None:
    """The room a module is in; None for `jobs` itself, which is the house. A room off the plan has its name too."""
    first, *rest = module.split(".")
    if first == "state_store" and rest and rest[0] in IN_STORE:
        return rest[0]
    if first != "jobs":
        return first
    return rest[0] if rest else None


def floor_of(room: str) -> int:
    """The number of the room's floor, from 0.

    Raises:
        LookupError: the room is not in the plan.
    """
    for number, floor in enumerate(FLOORS):
        if room in floor:
            return number
    raise LookupError(room)


def below(room: str) -> tuple[str, ...]:
    """The rooms that this one may import."""
    hidden = () if room in FACADE else UNSEEN
    return tuple(each for floor in FLOORS[: floor_of(room)] for each in floor if each not in hidden)


def not_below(room: str) -> tuple[str, ...]:
    """The rooms that this one may not import."""
    return tuple(each for each in ROOMS if each != room and each not in below(room))
