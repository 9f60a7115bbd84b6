"""Commits on an object store: two writers, lost answers, kills, and tables that are being removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import QueryBuilder

from strandline.state_store import files
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS, ORPHAN_DAYS, clean, plan_cleanup
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.data_files import data_file
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.errors import (
    CommitConflict,
    CorruptState,
    StorageUnavailable,
    StoreError,
    TableMissing,
    VectorMismatch,
    VersionGone,
)
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import Location
from strandline.state_store.storage import open_storage
from strandline.state_store.tablespec import RECOVERY_HORIZON_DAYS
from tests.support.arrow_table import ArrowTable
from tests.support.keyed_table import SCHEMA, SPEC, having, made, rows
from tests.support.lakes import below, delta_rs, overwrite, s3_folder
from tests.support.s3_server import S3Server
from tests.support.waiting import PATIENCE_SECONDS

_ROOT = Path(__file__).parents[4]


@pytest.fixture
def table(s3_server: S3Server) -> ArrowTable:
    return made(s3_folder(s3_server))


def keys(table: ArrowTable, version: int | None = None) -> list[int]:
    return sorted(row["k"] for row in reader.read_rows(table.path, version).to_pylist())


def data_files(table: ArrowTable) -> list[str]:
    return [name for name in below(table.path) if name.endswith(".parquet") and not name.startswith("_delta_log")]


def test_two_racing_writers_lose_and_double_nothing(table: ArrowTable) -> None:
    """Each takes its turn as often as the other is faster; the loser leaves no file."""

    def write(writer: int) -> int:
        mine = ArrowTable(table.path, SCHEMA, SPEC)
        lost, done = 0, 0
        while done < 4:
            try:
                mine.apply(rows(range(10 * writer + done, 10 * writer + done + 1)))
                done += 1
            except (CommitConflict, VectorMismatch):
                lost += 1
        return lost

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (0, 1)))
    assert keys(table) == [0, 1, 2, 3, 10, 11, 12, 13]
    head = reader.head(table.path)
    assert head is not None
    assert (head.version, head.record.epoch, head.record.rows) == (8, 8, 8)
    assert len(data_files(table)) == 8


def test_a_lost_answer_makes_one_commit(table: ArrowTable, s3_server: S3Server) -> None:
    s3_server.lose_answers(3)  # of the data file, and of the entry
    assert table.apply(rows(range(3))).version == 1
    assert keys(table) == [0, 1, 2]


def _entry(table: ArrowTable, writer: str) -> list[dict[str, Any]]:
    head = reader.head(table.path)
    assert head is not None
    return [log.commit_info("WRITE", replace(head.record, epoch=1, writer=writer).identified(head.record.table))]


def _impatient(path: Location, server: S3Server) -> Location:
    """The same folder for a writer that soon gives up waiting for an answer."""
    root = path.url.removesuffix(f"/{path.key}")
    return Location(open_storage(root, server.options(patience_seconds=0.5)), path.key)


def test_an_entry_without_an_answer_is_known_by_its_nonce(table: ArrowTable, s3_server: S3Server) -> None:
    assert isinstance(table.path, Location)
    path = _impatient(table.path, s3_server)
    mine = _entry(table, "me")
    try:
        s3_server.lose_answers(1_000)
        assert log.write_commit(path, 1, mine)  # done, though nobody said so
        assert not log.write_commit(path, 1, _entry(table, "another"))
        s3_server.fail(1_000)
        with pytest.raises(StorageUnavailable):
            log.write_commit(path, 2, _entry(table, "me"))
    finally:
        s3_server.fail(0)
    record = log.read_commit(table.path, 1).record
    assert record is not None
    assert record.writer == "me"
    assert log.newest_version(table.path) == 1


_CHILD = """
import json, sys
from strandline.state_store.paths import Location
from strandline.state_store.storage import open_storage
from strandline.state_store.storage import StorageOptions
from tests.support.arrow_table import ArrowTable
from tests.support.keyed_table import SCHEMA, SPEC, rows
url, options = json.loads(sys.argv[1])
table = ArrowTable(Location(open_storage(url, StorageOptions(**options))), SCHEMA, SPEC)
table.apply(rows(range(5, 9)), lambda row: row["k"] == 1)
"""


@pytest.mark.parametrize(
    ("step", "stands"),
    [("after-staging", False), ("after-vectors", False), ("before-link", False), ("after-link", True)],
)
def test_a_writer_that_is_killed_has_committed_all_or_nothing(
    table: ArrowTable, s3_server: S3Server, step: str, stands: bool
) -> None:
    table.apply(rows(range(3)))
    place = json.dumps([str(table.path), asdict(s3_server.options())])
    environment = os.environ | {"STRANDLINE_FAILPOINT": step}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, place], env=environment, cwd=_ROOT, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == -signal.SIGKILL
    expected = [0, 2, 5, 6, 7, 8] if stands else [0, 1, 2]
    assert keys(table) == expected
    assert table.apply(rows(range(20, 21))).version == (3 if stands else 2)
    assert keys(table) == [*expected, 20]


def test_damage_is_found_in_every_kind_of_object(table: ArrowTable) -> None:
    table.apply(rows(range(4)))
    table.apply(rows(range(5, 9)), lambda row: row["k"] == 1)
    make_checkpoint(table.path, 2)
    names = [name for name in below(table.path) if not name.endswith(("_last_checkpoint", "0.json", "1.json"))]
    assert len(names) == 5
    for name in names:
        data = (table.path / name).read_bytes()
        half = bytearray(data)
        half[len(data) // 2] ^= 1
        overwrite(table.path / name, bytes(half))
        if name.endswith(".checkpoint.parquet"):  # passed over: the commits are there
            assert keys(table) == [0, 2, 3, 5, 6, 7, 8]
        else:
            with pytest.raises(CorruptState):
                keys(table)
        overwrite(table.path / name, data)
    files.remove_file(table.path / data_files(table)[0])
    with pytest.raises(VersionGone):
        keys(table)


def test_what_is_nobodys_and_past_the_horizon_is_removed(table: ArrowTable) -> None:
    for first in range(4):
        head = table.apply(rows(range(first, first + 1)), having([first - 1]))
    make_checkpoint(table.path, head.version)
    overwrite(table.path / "epoch-9" / "part-0.parquet", b"of an epoch that came to nothing")
    now = log.now_ms()
    assert plan_cleanup(table.path, now + (ORPHAN_DAYS - 1) * DAY_MS).files == ()
    soon = plan_cleanup(table.path, now + (ORPHAN_DAYS + 1) * DAY_MS)
    assert [each.name for each in soon.files] == ["epoch-9/part-0.parquet"]
    late = plan_cleanup(table.path, now + (RECOVERY_HORIZON_DAYS + 1) * DAY_MS)
    assert clean(late) == sum(each.size for each in late.files) > 0
    assert below(table.path) == [
        "_delta_log/00000000000000000004.checkpoint.parquet",
        "_delta_log/00000000000000000004.json",
        "_delta_log/_last_checkpoint",
        *data_files(table),
    ]
    assert keys(table) == [3]
    assert table.apply(rows(range(7, 8))).version == 5


def test_whoever_reads_a_table_that_is_being_removed_finds_an_older_version_or_none(table: ArrowTable) -> None:
    versions = {}
    for first in range(3):
        versions[table.apply(rows(range(first, first + 1))).version] = list(range(first + 1))
    make_checkpoint(table.path, 2)
    seen = []
    assert isinstance(table.path, Location)
    for name in files._from_the_log_down(table.path):
        files.remove_file(table.path / name)
        head = reader.head(table.path)
        seen.append(None if head is None else head.version)
        assert head is None or head.version == 0 or keys(table) == versions[head.version]
    assert seen[:5] == [3, 2, 1, 1, 0]
    assert set(seen[5:]) == {None}
    with pytest.raises(TableMissing):
        keys(table)


_ASIDE = """
import json, sys
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import Location
from strandline.state_store.storage import open_storage
from strandline.state_store.storage import StorageOptions
url, options = json.loads(sys.argv[1])
set_aside(LakeLayout(Location(open_storage(url, StorageOptions(**options)))), "t")
"""


def test_a_table_is_set_aside_whole_also_after_a_kill(s3_server: S3Server) -> None:
    lake = LakeLayout(s3_folder(s3_server))
    table = ArrowTable(lake.table("t"), SCHEMA, SPEC)
    table.create(CommitRecord(epoch=0))
    for first in range(3):
        table.apply(rows(range(first, first + 1)))
    place = json.dumps([str(lake.root), asdict(s3_server.options())])
    for step in ("inside-copy:2", "inside-removal:2"):
        environment = os.environ | {"STRANDLINE_FAILPOINT": step}
        done = subprocess.run(
            [sys.executable, "-c", _ASIDE, place], env=environment, cwd=_ROOT, check=False, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == -signal.SIGKILL
        assert keys(table) == ([0, 1, 2] if "copy" in step else [0, 1])
    aside = set_aside(lake, "t")
    assert aside is not None
    assert set_aside(lake, "t") is None
    with pytest.raises(TableMissing):
        keys(table)
    # The one that was killed while it removed had copied everything.
    assert isinstance(lake.aside, Location)
    assert [0, 1, 2] in [_keys_of(each) for each in lake.aside.folders()]


def _keys_of(path: Location) -> list[int] | None:
    try:
        return sorted(row["k"] for row in reader.read_rows(path).to_pylist())
    except StoreError:
        return None


def test_a_table_of_any_name_is_read_by_delta_rs(s3_server: S3Server) -> None:
    for name in ("100% größer", "a b", "~x", "a/b"):
        table = ArrowTable(LakeLayout(s3_folder(s3_server)).table(name), SCHEMA, SPEC)
        table.create(CommitRecord(epoch=0))
        table.apply(rows(range(3)))
        theirs = QueryBuilder().register("t", delta_rs(table.path)).execute("SELECT k FROM t").read_all()
        assert theirs.num_rows == 3


def test_a_file_as_spark_calls_it_is_one_of_the_table(table: ArrowTable) -> None:
    url = str(table.path).replace("s3://", "s3a://", 1)
    assert data_file(table.path, f"{url}/epoch-1/part%200.parquet") == "epoch-1/part 0.parquet"
    for wrong in (f"{url}x/part-0.parquet", url.replace("lakes", "others") + "/part-0.parquet"):
        with pytest.raises(CorruptState, match="is no file of"):
            data_file(table.path, wrong)
