"""Files that are read once: until another file stands under the name, and never when they changed a moment ago."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from strandline.state_store.files import Unchanged

LONG_ENOUGH = 0.05


class Reads:
    """Reads of a file through what is remembered; counts those that looked into it."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.looked = 0
        self._files = Unchanged[str](most)

    def __call__(self, file: Path, part: tuple[int, int] | None = None) -> str:
        def read() -> str:
            self.looked += 1
            return file.read_text()

        return self._files.read(file, read, part)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file that did not change for a while."""
    file = tmp_path / "entry"
    file.write_text("first")
    time.sleep(LONG_ENOUGH)
    return file


def test_a_file_is_read_once_and_each_of_its_parts(old: Path) -> None:
    reads = Reads()
    assert [reads(old), reads(old), reads(old, (1, 2)), reads(old, (1, 2))] == ["first"] * 4
    assert reads.looked == 2


@pytest.mark.parametrize("in_place", [True, False])
def test_other_bytes_under_the_name_are_read_even_with_its_size_and_times(old: Path, *, in_place: bool) -> None:
    reads, about = Reads(), old.stat()
    assert reads(old) == "first"
    written = old if in_place else old.with_name("new")
    written.write_text("other")
    os.utime(written, ns=(about.st_atime_ns, about.st_mtime_ns))
    os.replace(written, old)
    assert reads(old) == "other"


def test_a_file_that_changed_a_moment_ago_is_not_trusted(tmp_path: Path) -> None:
    """A second change within one tick of the clock would leave all that it is told by."""
    reads, file = Reads(), tmp_path / "entry"
    for text in ("first", "other"):
        file.write_text(text)
        assert reads(file) == text
    assert reads.looked == 2


def test_a_file_that_is_gone_is_gone(old: Path) -> None:
    reads = Reads()
    reads(old)
    old.unlink()
    with pytest.raises(FileNotFoundError):
        reads(old)


def test_what_is_remembered_is_bounded(old: Path) -> None:
    """A file that is too large for its share is read each time; of many the one asked for longest ago goes."""
    none, few = Reads(most=4096), Reads(most=64 << 10)
    assert [none(old), none(old)] == ["first"] * 2
    assert none.looked == 2
    for begin in range(20):
        few(old, (begin, 3000))
    assert [few(old, (19, 3000)), few(old, (0, 3000))] == ["first"] * 2
    assert few.looked == 21
