"""The commits and checkpoints that a table's log holds, by looking: a hint may be wrong, and a gap has no name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state_store.delta import log

if TYPE_CHECKING:
    from pathlib import Path

_DIGITS = "[0-9]" * 20


def commits(path: Path) -> list[int]:
    """The versions whose commits are there, the oldest first."""
    return _versions(log.commit_file(path, 0).parent, f"{_DIGITS}.json")


def checkpoints(path: Path, upto: int) -> list[int]:
    """The versions up to and with `upto` that have a checkpoint, the oldest first."""
    found = _versions(log.checkpoint_file(path, 0).parent, f"{_DIGITS}.checkpoint.parquet")
    return [version for version in found if version <= upto]


def _versions(folder: Path, pattern: str) -> list[int]:
    return sorted(int(file.name[:20]) for file in folder.glob(pattern))
