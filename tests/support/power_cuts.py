"""Two tables cut off from power at every moment of their history, also after a writer was killed before a flush."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from strandline.state_store import files
from strandline.state_store.commits import Head
from tests.support.power import Disk, Recorder, disks, lay_out
from tests.support.two_tables import TwoTables
from tests.support.two_tables_hold import Told, assert_hold


class Killed(BaseException):
    """The end of a writer, at a place where the recorder sees what it has not flushed."""


@dataclass(frozen=True)
class Cuts:
    """What was tried: moments of the history, and different disks that they may leave."""

    moments: int
    disks: int


def recorded(root: Path, epochs: list[int], killed_at: int | None = None) -> Recorder:
    """The history of these epochs.

    Args:
        epochs: events of each.
        killed_at: the writer is killed after it has given its n-th name, before the flush; another one goes on.
    """
    recorder = Recorder(root)

    def report(table: str, head: Head) -> None:
        recorder.told.append((table, head.version, head.record.nonce))

    with pytest.MonkeyPatch.context() as patch, recorder.recording():
        if killed_at is not None:
            patch.setattr(files, "failpoint", killer(killed_at))
        left = list(epochs)
        while left:
            try:
                lake = TwoTables(root / "lake", report)
                lake.ensure()
                lake.refresh()  # what was ingested by one that was killed is built on at once
                while left:
                    lake.epoch(left[0])
                    left.pop(0)
            except Killed:
                continue
    return recorder


def assert_survives(recorder: Recorder, work: Path, seed: random.Random, most: int = 24) -> Cuts:
    """Lay out every disk that the history may leave, check what it holds, write on there, and check again."""
    seen: set[tuple[int, Disk]] = set()
    for number, moment in enumerate(recorder.moments):
        for disk in disks(moment, seed, most):
            if (moment.told, disk) in seen:
                continue
            seen.add((moment.told, disk))
            root = work / "disk"
            shutil.rmtree(root, ignore_errors=True)
            lay_out(disk, root)
            try:
                with pytest.MonkeyPatch.context() as patch:
                    # The power stays on here: flushing would only take time.
                    patch.setattr(os, "fsync", lambda _handle: None)
                    _assert_goes_on(root / "lake", _told(recorder, moment.told))
            except Exception as error:
                raise AssertionError(f"moment {number} of {len(recorder.moments)}, kept in {root}: {error}") from error
    return Cuts(len(recorder.moments), len(seen))


def _assert_goes_on(root: Path, told: Told) -> None:
    lake = TwoTables(root)
    assert_hold(lake, told)
    again = TwoTables(root, lambda table, head: told.setdefault(table, {}).update({head.version: head.record.nonce}))
    again.ensure()
    again.epoch(2)
    assert_hold(lake, told)


def _told(recorder: Recorder, count: int) -> Told:
    told: Told = {}
    for table, version, nonce in recorder.told[:count]:
        told.setdefault(table, {})[version] = nonce
    return told


def killer(at: int) -> Callable[[str], None]:
    """A `failpoint` that ends the writer after it has given its n-th name."""
    passes = 0

    def failpoint(name: str) -> None:
        nonlocal passes
        passes += name == "after-link"
        if name == "after-link" and passes == at:
            raise Killed

    return failpoint
