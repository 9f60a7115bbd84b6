"""Ways to damage a table of a lake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.state_store.delta import log
from strandline.state_store.delta.data_files import CHECKSUM_TAG, checksum
from strandline.state_store.delta.entry import Action, decode, encode
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.paths import LakePath
from tests.support.on_disk import on_disk


def flip(file: LakePath, at: int | None = None) -> None:
    """Another byte at one place; without it in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    on_disk(file).write_bytes(data)


def head_of(path: LakePath) -> int:
    version = log.newest_version(path)
    assert version is not None
    return version


def rewritten(path: LakePath, version: int, change: Callable[[list[Action]], None]) -> None:
    """Another commit in the place of one, with a checksum of its own: what a fault in the writer would leave."""
    file = on_disk(log.commit_file(path, version))
    actions, _ = decode(file.read_bytes(), file)
    change(actions)
    file.write_bytes(encode(actions))


def said(path: LakePath, version: int | None = None, **changes: Any) -> None:
    """Another word in the record of a commit, by default of the newest."""

    def change(actions: list[Action]) -> None:
        info = actions[0]["commitInfo"]
        record = json.loads(info["userMetadata"])
        record["strandline"] |= changes
        info["userMetadata"] = json.dumps(record, separators=(",", ":"))

    rewritten(path, head_of(path) if version is None else version, change)


def record_of(path: LakePath) -> dict[str, Any]:
    """The newest record, as it stands in the log."""
    actions = log.read_actions(path, head_of(path))
    record: dict[str, Any] = json.loads(actions[0]["commitInfo"]["userMetadata"])["strandline"]
    return record


def data_file(path: LakePath, version: int | None = None) -> Path:
    """A data file of a version, by default of the newest."""
    files = read_snapshot(path, head_of(path) if version is None else version).files
    return on_disk(path / unquote(next(iter(files))))


def planted(path: LakePath, column: str, value: Any) -> None:
    """Another value in each row of a data file of the head, with a size and a checksum that fit: nothing but the digest
    of the rows tells it."""
    file = data_file(path)
    rows = pq.read_table(file)
    place = rows.schema.get_field_index(column)
    others = pa.array([value] * rows.num_rows, rows.schema.field(place).type)
    pq.write_table(rows.set_column(place, rows.schema.field(place), others), file)

    def change(actions: list[Action]) -> None:
        for action in actions:
            body = action.get("add") or action.get("remove")
            if body and path / unquote(body["path"]) == file:
                body |= {"size": file.stat().st_size, "tags": {CHECKSUM_TAG: checksum(file)}}

    for version in log.versions(path):
        rewritten(path, version, change)
