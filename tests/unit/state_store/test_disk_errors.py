"""Errors of the operating system that nobody translated, as errors of the store."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from strandline.state_store.errors import DiskFailed, KeyRefused, ObjectMissing, StorageDenied, StoreError
from strandline.state_store.files import create, disk_errors, make_folder, of_system, replace, sync_file, write_new


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, StorageDenied),
        (errno.ENOTDIR, StorageDenied),
        (errno.EISDIR, StorageDenied),
        (errno.EEXIST, StorageDenied),
        (errno.ENOENT, ObjectMissing),
        (errno.ENAMETOOLONG, KeyRefused),
        (errno.EROFS, DiskFailed),
        (errno.ENOSPC, DiskFailed),
        (errno.EIO, DiskFailed),
    ],
)
def test_each_has_a_type_and_a_hint(number: int, kind: type[StoreError]) -> None:
    made = of_system(OSError(number, os.strerror(number), "/lake/catalog/x"))
    assert type(made) is kind
    assert made.hint
    assert "x" in made.message
    assert len(str(made)) < 400


def test_standard_output_has_no_name() -> None:
    """As of `strandline sql -e … > /a/full/disk`."""
    full = of_system(OSError(errno.ENOSPC, "No space left on device"))
    assert (full.message, full.where) == ("the disk is full", None)
    assert of_system(OSError(errno.EIO, "Input/output error")).message == "the system failed: Input/output error"


def test_a_temporary_file_has_the_name_that_it_was_to_get() -> None:
    temporary = Path("/lake/topics/.7.log.81e5daf41f6e427184638128902f7d2b.tmp")
    with pytest.raises(StorageDenied, match=r"'7\.log' may not be written") as refused, disk_errors(temporary):
        raise PermissionError
    assert refused.value.where == "/lake/topics/7.log"
    full = of_system(OSError(errno.ENOSPC, "full", str(temporary)))
    assert full.where == "/lake/topics/7.log"


def test_a_name_that_is_too_long_is_cut() -> None:
    assert len(str(of_system(OSError(errno.ENAMETOOLONG, "too long", "/lake/" + "n" * 3000)))) < 300


def test_a_name_that_is_too_long_for_the_disk_is_no_broken_disk(tmp_path: Path) -> None:
    for write in (create, replace, write_new, sync_file):
        with pytest.raises(KeyRefused, match="too long"):
            write(tmp_path / ("ü" * 130), *(() if write is sync_file else (b"x",)))


def test_where_no_folder_can_be_made_is_said_and_not_tried_for_ever() -> None:
    with pytest.raises(StorageDenied, match="no folder 'lake' can be made there"):
        make_folder(Path("/proc/lake/tables"))
