"""What was reported done survives a power cut at any moment, and nothing that is half there is taken for a table."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from strandline.state_store.files import make_folder
from tests.support.power import Recorder, disks
from tests.support.power_cuts import assert_survives, recorded


@pytest.mark.parametrize("killed_at", [3, 6])
def test_a_commit_that_was_reported_survives(tmp_path: Path, killed_at: int | None) -> None:
    """3: the writer was killed before it flushed the log's version 1, 6: the keyed table's version 2."""
    root, work = tmp_path / "history", tmp_path / "disks"
    root.mkdir()
    work.mkdir()
    cuts = assert_survives(recorded(root, [4, 3], killed_at), work, random.Random(1), most=8)
    assert cuts.disks > 40


def test_what_was_not_flushed_is_there_in_any_part(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.recording():
        (tmp_path / "a").write_bytes(b"1234")
        os.mkdir(tmp_path / "f")
        (tmp_path / "f" / "b").write_bytes(b"x")
    found = set(disks(recorder.moments[-1], random.Random(1), 8))
    assert () in found
    assert {content for disk in found for name, content in disk if name == "a"} == {b"", b"12", b"1234"}
    assert (("f", None),) in found
    assert (("f", None), ("f/b", b"")) in found


def test_what_was_flushed_is_there(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.recording():
        make_folder(tmp_path / "a" / "b")
    assert set(disks(recorder.moments[-1], random.Random(1), 8)) == {(("a", None), ("a/b", None))}


def test_a_folder_whose_maker_was_killed_is_flushed_by_the_next(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.recording():
        os.mkdir(tmp_path / "a")
        make_folder(tmp_path / "a")
    assert set(disks(recorder.moments[-1], random.Random(1), 8)) == {(("a", None),)}
