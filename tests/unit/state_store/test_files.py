"""Files appear whole: one of many writers gets a name, and a replacement is seen whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline.state_store.errors import DiskFailed
from strandline.state_store.files import create, replace


def test_one_of_many_writers_gets_the_name(tmp_path: Path) -> None:
    path = tmp_path / "7.json"
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda n: create(path, b"%d" % n), range(64)))
    assert sum(got) == 1
    assert path.read_bytes() == b"%d" % got.index(True)
    assert [each.name for each in path.parent.iterdir()] == ["7.json"]


@pytest.mark.parametrize("write", [create, replace])
def test_a_folder_that_was_removed_is_not_made_again(tmp_path: Path, write: Callable[[Path, bytes], object]) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "removed" / "7.json", b"")
    assert not (tmp_path / "removed").exists()


def test_a_replacement_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in (b"first", b"second"):
        replace(path, text)
        assert path.read_bytes() == text
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("write", "step"), [(create, "fsync"), (create, "link"), (replace, "fsync"), (replace, "replace")]
)
def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], object], step: str
) -> None:
    """A full disk shows at the flush, if not before: the part that was written must not take the last of it."""
    (tmp_path / "a.json").write_bytes(b"first")
    path = tmp_path / ("b.json" if write is create else "a.json")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(DiskFailed, match="the disk is full"):
        write(path, b"second")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.json", b"first")]
