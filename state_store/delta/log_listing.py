"""The names in a table's log, and what a listing of it tells.

_delta_log/<version, 20 digits>.json                  one commit
_delta_log/<version, 20 digits>.checkpoint.parquet    a checkpoint
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from strandline.state_store.location import Location
from strandline.state_store.paths import file_names

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath

LOG: Final = "_delta_log"
"""The folder of the log, in the table's."""

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")


def commit_name(version: int) -> str:
    """The name of a commit's file."""
    return f"{version:020d}.json"


def commits(path: LakePath) -> list[int]:
    """The versions of which the log holds the commit, in no order; none when there is no table."""
    return _numbered(path, _COMMIT)


def checkpoints(path: LakePath) -> list[int]:
    """The versions of which the log holds a checkpoint, in no order; none when there is no table."""
    return _numbered(path, _CHECKPOINT)


def last_commit_from(path: LakePath, version: int) -> int | None:
    """The last version of those that follow `version` without a gap; None when `version` itself is not there."""
    log = path / LOG
    if isinstance(log, Location):
        # All names past one cost as much as a look for one. Without its suffix a name comes before itself.
        found = {each.name for each in log.list(after=f"{version:020d}")}
        if commit_name(version) not in found:
            return None
        while commit_name(version + 1) in found:
            version += 1
        return version
    last = version
    # Checkpoints are at most some tens of commits apart: looking for each file is cheaper than listing a long log.
    while (log / commit_name(last + 1)).exists():
        last += 1
    return last if last > version or (log / commit_name(version)).exists() else None


def _numbered(path: LakePath, name: re.Pattern[str]) -> list[int]:
    try:
        return [int(found[1]) for each in file_names(path / LOG) if (found := name.fullmatch(each))]
    except FileNotFoundError:
        return []
