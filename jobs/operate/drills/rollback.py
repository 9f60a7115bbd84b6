"""The history of a table in a copy: a version by time, and the way back to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.operate.drills.scenario import Unrehearsable
from strandline.state_store.delta import log
from strandline.state_store.files import remove_file

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.state_store.delta.log import Commit


def readable(path: Path, base: int) -> list[Commit]:
    """The commits from `base` (−1: the first) to the head that hold rows of the present definition.

    What was before a view was replaced has other columns, and is no state that the present definition goes on from. A
    log that was cleaned up may begin after its checkpoint: the commit of `base` itself is gone then.

    Raises:
        VersionGone: one is missing.
    """
    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    commits = log.read_history(path, max(base, *log.versions(path)[:1], 0) - 1, newest)
    said = [commit.record.fingerprint if commit.record is not None else "" for commit in commits]
    present = next((each for each in reversed(said) if each), "")
    # A table may be made without one: that of a stream, by a query into it.
    former = max((place for place, each in enumerate(said) if each not in ("", present)), default=-1)
    return commits[former + 1 :]


def midway(commits: list[Commit]) -> Commit:
    """The commit in the middle of a history: what stood at its time.

    Raises:
        Unrehearsable: there are fewer than two.
    """
    if len(commits) < 2:
        raise Unrehearsable("its table has too few versions: none lies between the first and the last")
    at = commits[(len(commits) - 1) // 2].timestamp
    return [commit for commit in commits[:-1] if commit.timestamp <= at][-1]


def rolled_back(path: Path, version: int) -> None:
    """Take a table of a copy back to a version: later entries and checkpoints go, their files stay behind unnamed."""
    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    remove_file(log.hint_file(path))
    for each in range(version + 1, newest + 1):
        remove_file(log.commit_file(path, each))
        remove_file(log.checkpoint_file(path, each))
