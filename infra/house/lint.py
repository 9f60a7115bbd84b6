"""The lint rule of each room: a `ruff.toml` that bans every room that does not stand below it.

A table of banned imports replaces that of the file it extends, so each one is complete.
"""

from __future__ import annotations

from pathlib import Path

from infra.house.plan import (
    FACADE,
    IN_STORE,
    OUTSIDE_JOBS,
    ROOMS,
    ROOT,
    TOOLS,
    UNSEEN,
    floor_of,
    folder_of,
    not_below,
    package_of,
    standing,
)

_DAGSTER = "only orchestration knows Dagster; a job may use dagster_pipes"
_ALWAYS = {
    "tests": "nothing imports the tests",
    **{tool: f"the product stands without {tool}" for tool in TOOLS},
}


def lint_files() -> dict[Path, str]:
    """The text of every `ruff.toml` that the plan asks for, by its path."""
    rooms = {folder_of(room) / "ruff.toml": _text(folder_of(room), banned(room)) for room in standing()}
    jobs = ROOT / "jobs"
    return {jobs / "ruff.toml": _text(jobs, _IN_JOBS), **rooms}


def banned(room: str) -> dict[str, str]:
    """The packages that a room may not import, with the reason."""
    if room in ("state_store", *IN_STORE):
        neither = "state_store imports neither jobs nor orchestration"
        inner = [each for each in IN_STORE if each in not_below(room)]
        return {
            **{package_of(each): _reason(room, each) for each in inner},
            "jobs": neither,
            "orchestration": neither,
            **{each: neither for each in FACADE},
            "sqlglot": "state_store knows nothing of SQL views",
            "dagster": "only orchestration knows Dagster",
            **_ALWAYS,
        }
    if room in FACADE:
        return _ALWAYS
    above = {package_of(each): _reason(room, each) for each in not_below(room) if each not in UNSEEN}
    return {**above, **(_ALWAYS if room in OUTSIDE_JOBS else _IN_JOBS)}


_IN_JOBS = {**{room: f"nothing imports {room}" for room in (*UNSEEN, *FACADE)}, "dagster": _DAGSTER, **_ALWAYS}


def _reason(room: str, other: str) -> str:
    assert other in ROOMS
    where = "beside" if floor_of(other) == floor_of(room) else "above"
    return f"{other} stands {where} {room}; a room imports only what stands below it"


def _text(folder: Path, bans: dict[str, str]) -> str:
    up = "/".join(".." for _ in folder.relative_to(ROOT).parts)
    lines = [f'"{name}".msg = "{reason}"' for name, reason in bans.items()]
    return "\n".join(
        [
            "# Written by `make house-write` from infra/house/plan.py, where the floors stand.",
            f'extend = "{up}/pyproject.toml"',
            "",
            "[lint.flake8-tidy-imports.banned-api]",
            *lines,
            "",
        ]
    )
