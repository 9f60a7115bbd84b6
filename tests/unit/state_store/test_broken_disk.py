"""A full or broken disk at each write of a commit: a typed error, the table as it was, and the next commit works."""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from strandline.state_store.commits import Head
from strandline.state_store.delta import commit, reader
from strandline.state_store.errors import Action, DiskFailed, StorageDenied
from strandline.state_store.files import create
from tests.support.broken_disk import BrokenDisk
from tests.support.two_tables import TwoTables
from tests.support.two_tables_hold import Told, assert_hold, orphans


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
