"""Files appear whole: one of many writers gets a name, and a replacement is seen whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from strandline.state_store.commits import Head
from strandline.state_store.delta import commit, reader
from strandline.state_store.errors import Action, DiskFailed, KeyRefused, ObjectMissing, StorageDenied, StoreError
from strandline.state_store.files import (
    Unchanged,
    create,
    disk_errors,
    make_folder,
    of_system,
    replace,
    sync_file,
    write_new,
)
from tests.support.broken_disk import BrokenDisk
from tests.support.two_tables import TwoTables
from tests.support.two_tables_hold import Told, assert_hold, orphans


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


# Files that are read once: until another file stands under the name, and never when they changed a moment ago.

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


# Errors of the operating system that nobody translated, as errors of the store.


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


def test_a_folder_above_that_another_process_makes_meanwhile_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look that finds none above and the next one, another process makes it."""
    real, above = os.mkdir, tmp_path / "subjects"

    def raced(folder: Path, *rest: int) -> None:
        try:
            real(folder, *rest)
        except FileNotFoundError:
            real(above)
            raise

    monkeypatch.setattr(os, "mkdir", raced)
    make_folder(above / "orders")
    assert (above / "orders").is_dir()


def test_where_no_folder_can_be_made_is_said_and_not_tried_for_ever() -> None:
    with pytest.raises(StorageDenied, match="no folder 'lake' can be made there"):
        make_folder(Path("/proc/lake/tables"))


# A full or broken disk at each write of a commit: a typed error, the table as it was, and the next commit works.


@pytest.mark.parametrize(("code", "first"), [(errno.ENOSPC, 1), (errno.EIO, 2)], ids=["full", "broken"])
def test_every_write_of_an_epoch_may_fail(tmp_path: Path, code: int, first: int) -> None:
    """Two new tables and two epochs on a fresh disk for every other step, until a step is not reached any more."""
    reached = []
    for at in count(first, 2):
        root = tmp_path / str(at)
        told: Told = {}
        lake = TwoTables(root, partial(_tell, told))
        disk = BrokenDisk(tmp_path, at, code)
        with suppress(DiskFailed), disk.broken():
            lake.ensure()
            lake.epoch(5)
            lake.epoch(3)
        if disk.failed is None:
            break
        reached.append(disk.failed.split()[0])
        assert_hold(lake, told)
        lake.ensure()
        left = orphans(lake.events) + orphans(lake.latest)
        assert not left, f"{disk.failed} has left {left}"
        before = max(told.get("events", {0: ""}))
        lake.epoch(4)
        assert max(told["events"]) > before
    assert {"open", "fsync"} < set(reached) <= {"mkdir", "open", "write", "fsync", "link"}
    assert len(reached) > 20


def _tell(told: Told, table: str, head: Head) -> None:
    told.setdefault(table, {}).update(_one(head))


def test_a_checkpoint_that_fails_is_no_failed_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "CHECKPOINT_INTERVAL", 2)
    lake = TwoTables(tmp_path)
    lake.ensure()
    lake.ingest(3)
    seen = 0
    for at in range(1, 40):
        before = reader.head(lake.events.path)
        disk = BrokenDisk(tmp_path, at, errno.ENOSPC)
        with suppress(DiskFailed), disk.broken():
            lake.ingest(2)
        after = reader.head(lake.events.path)
        assert before is not None
        assert after is not None
        if "checkpoint" in Path(disk.failed or "").name:
            seen += 1
            assert after.version == before.version + 1
    assert seen >= 3
    assert_hold(lake, {})


@pytest.mark.parametrize(("code", "hint"), [(errno.ENOSPC, "df -h"), (errno.EIO, "dmesg"), (errno.EROFS, "dmesg")])
def test_the_error_says_what_to_do(tmp_path: Path, code: int, hint: str) -> None:
    with BrokenDisk(tmp_path, 1, code).broken(), pytest.raises(DiskFailed, match=hint) as error:
        create(tmp_path / "a.json", b"")
    assert error.value.attrs()["code"] == "store.disk"
    assert error.value.action is Action.RETRY


def test_a_folder_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.link", denied)
    with pytest.raises(StorageDenied, match="may not be written"):
        create(tmp_path / "a.json", b"")
    assert list(tmp_path.iterdir()) == []


def _one(head: Head) -> dict[int, str]:
    return {head.version: head.record.nonce}


@pytest.mark.parametrize("later", ["first", "other"])
def test_what_was_written_is_not_read_unless_the_file_is_another_now(tmp_path: Path, later: str) -> None:
    file, kept = tmp_path / "entry", Unchanged[str](1 << 20)
    file.write_text(later)
    kept.note(file, b"first", "as written")
    for _ in range(2):
        assert kept.read(file, lambda: "as read") == ("as written" if later == "first" else "as read")
        time.sleep(LONG_ENOUGH)
