"""A lake with some epochs behind it, made without a JVM: the sources' commits by hand, the views' by DuckDB."""

from __future__ import annotations

import shutil
from pathlib import Path

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.recovery.ground import refreshed
from tests.unit.operate.verify.lakes import MadeLake

EPOCHS = 4


def epoch(made: MadeLake, number: int) -> None:
    """Three visits and an owner of a page, then every view at the heads of its inputs."""
    pages = "abcde"
    visits = [(0, pages[number % 5], number * 0.1), (0, "a", 1.5), (1, pages[number % 3], 2.0)]
    made.visits(visits, {0: 2 * number + 2, 1: number + 1})
    made.pages([(pages[number % 4], f"owner {number % 3}")], number + 1)
    for view in ("owned", "spread"):
        refreshed(made.settings, view, made.catalog)


def operated(settings: Settings, epochs: int = EPOCHS) -> MadeLake:
    """The lake after so many epochs."""
    made = MadeLake(settings)
    for number in range(epochs):
        epoch(made, number)
    return made


def put_back(lake: Path, kept: Path) -> None:
    """Make a lake what it was."""
    shutil.rmtree(lake)
    shutil.copytree(kept, lake)
