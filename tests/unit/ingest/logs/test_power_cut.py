"""Offsets that a reader was told survive a power cut, also those of a producer killed before its flush."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.state_store import files
from strandline.state_store.layout import LakeLayout
from tests.support.power import Recorder, disks, lay_out
from tests.support.power_cuts import Killed, killer


@pytest.mark.parametrize("killed_at", [None, 2, 3])
def test_offsets_that_were_seen_are_there(tmp_path: Path, killed_at: int | None) -> None:
    """The first name is the topic's, the next ones those of two segments."""
    root, work = tmp_path / "history", tmp_path / "disk"
    root.mkdir()
    recorder = Recorder(root)
    with pytest.MonkeyPatch.context() as patch, recorder.recording():
        if killed_at is not None:
            patch.setattr(files, "failpoint", killer(killed_at))
        _produce(root)
        # Another process reads on; what it is told goes into the record of a commit.
        log = LocalLog(LakeLayout(root / "lake"))
        recorder.told.append(log.end_offsets("t")[0])
    for number, disk in enumerate(dict.fromkeys(disks(recorder.moments[-1], random.Random(1), 8))):
        shutil.rmtree(work, ignore_errors=True)
        lay_out(disk, work)
        assert LocalLog(LakeLayout(work / "lake")).end_offsets("t")[0] == recorder.told[-1] > 0, number


def _produce(root: Path) -> None:
    log = LocalLog(LakeLayout(root / "lake"))
    try:
        log.ensure_topic("t")
        for _ in range(2):
            log.produce("t", [Record(None, b"x", 0)] * 3)
    except Killed:
        return
