"""The invariants of the two tables, whatever was killed or cut off before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from strandline.state_store import changelog
from strandline.state_store.commits import Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.deletion_vectors import vector_file
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import digest_of_table
from strandline.state_store.paths import LakePath, files_in
from strandline.state_store.tablespec import STATE
from tests.support.arrow_table import ArrowTable, Row
from tests.support.lakes import below, delta_rs
from tests.support.two_tables import EVENTS, TOPIC, TwoTables, event, folded

Told = dict[str, dict[int, str]]
"""{table: {version: nonce}} of the commits that were reported done."""


def told_in(file: Path) -> Told:
    """The commits noted by a writer; a line that the kill cut short was not told."""
    told: Told = {}
    for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
        if line.endswith(b"\n"):
            table, version, nonce = json.loads(line)
            told.setdefault(table, {})[version] = nonce
    return told


def assert_hold(lake: TwoTables, told: Told, *, every_version: bool = False) -> dict[str, int]:
    """Raise AssertionError, or an error of the store, where something does not hold; {table: rows} otherwise.

    Args:
        every_version: check all versions of `latest` against the log, and both readers at each; else the head's.
    """
    heads: dict[str, Head] = {}
    for table in (lake.events, lake.latest):
        head = reader.head(table.path)
        if head is None:
            assert not told.get(table.spec.name), f"'{table.spec.name}' was reported, and is not there"
            continue
        heads[table.spec.name] = head
        _assert_table(table, head, told.get(table.spec.name, {}), every_version=every_version)
    if EVENTS in heads:
        _assert_log(lake, heads[EVENTS])
    if lake.latest.spec.name in heads:
        newest = heads[lake.latest.spec.name].version
        for version in range(newest + 1) if every_version else [newest]:
            _assert_fold(lake, version)
    return {name: head.record.rows for name, head in heads.items()}


def orphans(table: ArrowTable) -> list[LakePath]:
    """Files below the table that no commit names: what clean-up would remove."""
    named = {path for version in range((log.newest_version(table.path) or 0) + 1) for path in _named(table, version)}
    logs = table.path / "_delta_log"
    known = {log.hint_file(table.path), *files_in(logs, ".json"), *files_in(logs, ".checkpoint.parquet")}
    return [path for name in below(table.path) if (path := table.path / name) not in named | known]


def _assert_table(table: ArrowTable, head: Head, told: dict[int, str], *, every_version: bool) -> None:
    name = table.spec.name
    assert head.version >= max(told, default=0), f"'{name}' is at {head.version}, but {max(told)} was reported"
    assert head.record.epoch == head.version, f"'{name}' has skipped or doubled an epoch"
    listed = sorted(int(path.stem) for path in files_in(table.path / "_delta_log", ".json"))
    assert listed == list(range(head.version + 1)), f"the versions of '{name}' are not dense: {listed}"
    for version in range(head.version + 1):
        record = log.read_commit(table.path, version).record
        assert record is not None
        assert record.epoch == version
        assert told.get(version, record.nonce) == record.nonce, f"version {version} of '{name}' is another one now"
        for path in _named(table, version):
            assert path.exists(), f"version {version} of '{name}' names {path.name}, which is not there"
    rows = table.stored(head.version)
    assert str(digest_of_table(reader.scan(table.path))) == head.record.digest, (
        f"the digest of '{name}' is not its rows'"
    )
    folded_rows = changelog.fold(reader.read_changes(table.path)).to_pylist()
    assert _visible(folded_rows) == _visible(rows), f"the feed of '{name}' does not fold to its rows"
    for version in range(head.version + 1) if every_version else [head.version]:
        assert _theirs(table, version) == _visible(table.stored(version)), (
            f"delta-rs reads '{name}' {version} otherwise"
        )


def _assert_log(lake: TwoTables, head: Head) -> None:
    """Nothing lost, nothing doubled: the log is the source up to its offset."""
    end = head.record.offsets.get(TOPIC, {}).get("0", 0)
    assert _visible(lake.events.stored(head.version)) == _visible([event(number) for number in range(end)])


def _assert_fold(lake: TwoTables, version: int) -> None:
    record = log.read_commit(lake.latest.path, version).record
    assert record is not None
    at = record.vector.get(EVENTS)
    if at is None:
        assert lake.latest.stored(version) == []
        return
    found = reader.version_at(lake.events.path, at.version)
    assert found == at, f"version {version} reflects a commit of the log that is not there: {at}, but {found}"
    expected = list(folded(lake.events.stored(at.version), {}).values())
    by_key = {row["k"]: row for row in lake.latest.stored(version)}
    assert by_key == {row["k"]: row for row in expected}, (
        f"version {version} is not the fold of the log at {at.version}"
    )
    assert len(lake.latest.stored(version)) == len(by_key), "a key stands twice"


def _named(table: ArrowTable, version: int) -> set[LakePath]:
    """The files that a commit adds to the table, with their vectors."""
    added = [action["add"] for action in log.read_actions(table.path, version) if "add" in action]
    vectors = [vector_file(table.path, body["deletionVector"]) for body in added if "deletionVector" in body]
    return {log.inside(table.path, body["path"]) for body in added} | {path for path in vectors if path}


def _theirs(table: ArrowTable, version: int) -> Counter[tuple[Any, ...]]:
    names = ", ".join(table.spec.visible)
    found = QueryBuilder().register("t", delta_rs(table.path, version)).execute(f"SELECT {names} FROM t")
    rows = pa.table(found.read_all()).to_pylist()
    assert read_snapshot(table.path, version).version == version
    return _visible(rows)


def _visible(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(sorted((name, value) for name, value in row.items() if name != STATE)) for row in rows)
