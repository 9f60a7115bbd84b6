"""A lake of the format before is read as it stands, and its next commit has the new format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.state_store.commits import TableVersion
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import Rows, commit
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import digest_of_table
from strandline.state_store.paths import LakePath
from tests.support.format_1 import unpacked


@pytest.mark.parametrize(("table", "rows"), [("visits", 4), ("shops__log", 3), ("shops", 2), ("best", 1)])
def test_its_tables_are_read(tmp_path: Path, table: str, rows: int) -> None:
    path = unpacked(tmp_path).table(table)
    head = reader.head(path)
    assert head is not None
    assert (head.version, head.record.rows, head.record.nonce) == (2, rows, "")
    assert str(digest_of_table(reader.scan(path))) == head.record.digest
    assert reader.read_changes(path).num_rows == head.record.rows + 2 * _deleted(path)


def test_its_definitions_and_topics_are_read(tmp_path: Path) -> None:
    lake = unpacked(tmp_path)
    assert Catalog(lake).relations() == ("visits", "shops", "best")
    assert sum(LocalLog(lake).end_offsets("visits").values()) == 4


def test_its_next_commit_has_the_new_format(tmp_path: Path) -> None:
    path = unpacked(tmp_path).table("best")
    before = reader.head(path)
    assert before is not None
    assert before.record.vector["visits"] == TableVersion(2)
    after = commit(path, before, replace(before.record, epoch=before.record.epoch + 1), Rows())
    assert reader.head(path) == after
    assert after.record.table == read_snapshot(path, after.version).table_id != ""
    assert after.record.nonce
    assert after.record.vector == before.record.vector
    assert b'\\"crc\\":' in log.commit_file(path, after.version).read_bytes()


def _deleted(path: LakePath) -> int:
    commits = (log.read_commit(path, version).record for version in (1, 2))
    return sum(record.deleted for record in commits if record is not None)
