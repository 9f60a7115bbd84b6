"""The plan of the house, as data: which rooms stand on which floor, and who may import which library."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "strandline"
"""The only name in site-packages. Its parts stand at the top of the repository; `strandline/` has links to them."""

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

ROOMS: tuple[str, ...] = tuple(room for floor in FLOORS for room in floor)

TOPS = ("state_store", "jobs", "orchestration")
"""The product's folders at the top of the repository, beside `strandline` itself."""
IN_STORE = ("replicas",)
"""Rooms in the package `state_store`. What is not in one of them is the room `state_store` itself, which is below."""
UNSEEN = ("orchestration",)
"""Rooms that nothing imports, on whatever floor it stands: Dagster starts jobs, never the other way round."""
FACADE = ("strandline",)
"""The public package for users' own code: it shows what others offer, Dagster's definitions among them."""
TOOLS: dict[str, tuple[str, ...]] = {
    "infra": (),
    "benchmarks": (PACKAGE, "infra"),
    "tests": (PACKAGE, "infra", "benchmarks"),
}
"""Packages beside the product, which no room imports, and what each of them may import of the others."""

LIBRARIES: dict[str, tuple[str, ...]] = {
    "ibis": ("sql",),
    "dagster": ("orchestration", "strandline"),
    "sqlglot": tuple(room for room in ROOMS if room not in ("state_store", "replicas")),
}
"""Libraries that only these rooms may import: the store knows nothing of SQL, and jobs nothing of Dagster."""


def room_of(module: str) -> str | None:
    """The room of a module; None for `strandline.jobs` itself. A room off the plan has a name too."""
    package, *parts = module.split(".")
    if package != PACKAGE:
        raise ValueError(f"{module} is not of {PACKAGE}")
    if not parts or parts[0] not in TOPS:
        return PACKAGE
    if parts[0] == "state_store" and len(parts) > 1 and parts[1] in IN_STORE:
        return parts[1]
    if parts[0] != "jobs":
        return parts[0]
    return parts[1] if len(parts) > 1 else None


def folder_of(room: str) -> Path:
    """Return the room's folder in the tree; it may not be there yet."""
    if room in IN_STORE:
        return ROOT / "state_store" / room
    return ROOT / room if room in (*TOPS, *FACADE) else ROOT / "jobs" / room


def standing() -> tuple[str, ...]:
    """The rooms that are in the tree, the lowest first."""
    return tuple(room for room in ROOMS if (folder_of(room) / "__init__.py").exists())


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
