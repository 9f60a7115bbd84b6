"""A lake with a retention of ten minutes and some rounds of events behind it, and what is verified of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.settings import load_settings
from strandline.jobs.operate.verify.verify import verify
from strandline.state_store.delta import log
from strandline.state_store.delta.snapshot import read_snapshot
from tests.support.retained_lake import RetainedLake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from strandline.jobs.operate.verify.findings import Check

ROUNDS = 4


def lake(folder: Path, *statements: str, rounds: int = ROUNDS) -> RetainedLake:
    """Some rounds of ten events of `s` and one of `t`; the retention is ten minutes."""
    made = RetainedLake(load_settings(lake=folder / "lake"), statements)
    for number in range(rounds):
        made.feed("s", [("abc"[each % 3], (number * 3 + each) % 7) for each in range(10)])
        made.feed("t", [("abc"[number % 3], number)])
        made.refreshed()
    return made


def checks(made: RetainedLake, *names: str, deep: bool = True) -> dict[tuple[str, str], Check]:
    return {(each.table, each.check): each for each in verify(made.settings, names, deep=deep)}


def wrong(made: RetainedLake) -> list[Check]:
    return [each for each in verify(made.settings, deep=True) if each.ok is False]


def files(made: RetainedLake) -> list[Mapping[str, Any]]:
    """The live files of the log of `s`, in the order of the log."""
    path = made.lake.table("s")
    newest = log.newest_version(path)
    assert newest is not None
    return list(read_snapshot(path, newest).files.values())
