"""The checks of a table's log: that its commits are all there and whole, and that its checkpoint says the same.

The log reaches back to version 0, or, once its beginning was cleaned up, to a checkpoint that holds what was removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.operate.verify.findings import counted, failed, passed, skipped
from state_store.delta import log, reader
from state_store.delta.checkpoint import live_actions
from state_store.delta.snapshot import Snapshot, read_snapshot
from state_store.tablespec import CHECKPOINT_INTERVAL

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.operate.verify.findings import Outcome
    from jobs.operate.verify.opened import Opened

_FILE = ("size", "stats", "tags", "deletionVector")
_TABLE = ("id", "schemaString", "configuration", "partitionColumns")


def check_log(path: Path) -> Outcome:
    """Every commit kept reads: its checksum, its record, its table; none is missing, none changes rows as another's.

    Raises:
        CorruptState: a commit is broken, or none is ours.
        ForeignWrite: another tool changed rows.
    """
    kept = log.commits(path)
    newest = log.newest_version(path)
    if newest is None:
        return _no_commit(path)
    first, last = (kept[0], max(newest, kept[-1])) if kept else (newest, newest)
    missing = sorted(set(range(first, last + 1)) - set(kept))
    if missing:
        what = "1 commit is missing" if len(missing) == 1 else f"{len(missing)} commits are missing, the first"
        return failed(f"{what}: version {missing[0]}", log.commit_file(path, missing[0]))
    if oldest_base(path, last) is None:
        return failed(f"the commits before version {first} are gone, and no checkpoint holds what they said")
    reader.record_at(path, last)
    records = [log.read_ours(path, version).record for version in kept]
    table = read_snapshot(path, last).table_id
    for version, record in zip(kept, records, strict=True):
        if record is not None and record.table not in ("", table):
            what = f"version {version} is a commit of another table: '{record.table}' instead of '{table}'"
            return failed(what, log.commit_file(path, version))
    return passed(f"versions {first} to {last}, {counted(len(kept), 'commit')}")


def check_checkpoint(table: Opened) -> Outcome:
    """The newest checkpoint reads, and says the same as the commits up to it."""
    path = table.path
    found = log.checkpoints(path, upto=table.version)
    if not found:
        due = table.version >= CHECKPOINT_INTERVAL
        return skipped("there is none, though one is due") if due else passed("none is due yet")
    newest = found[0]
    file = log.checkpoint_file(path, newest)
    actions = live_actions(file)
    before = _base_below(path, newest)
    if actions is None:
        hint = "remove the file: what it says stands in the commits too" if before is not None else None
        return failed(f"the checkpoint of version {newest} does not read back", file, hint)
    if before is None:
        return skipped(f"that of version {newest} reads; the commits below it are gone, so nothing tells the same")
    replayed = before
    for version in range(before.version + 1, newest + 1):
        replayed = replayed.after(version, log.read_actions(path, version))
    said, kept = _facts(Snapshot(-1).after(newest, actions)), _facts(replayed)
    differing = sorted(name for name in said.keys() | kept.keys() if said.get(name) != kept.get(name))
    if differing:
        what = f"the checkpoint of version {newest} says otherwise than the commits: {differing[0]}"
        return failed(what, file, "remove the file: what it should say stands in the commits")
    return passed(f"that of version {newest} says what the commits say")


def oldest_base(path: Path, upto: int) -> int | None:
    """The oldest version that can be replayed from: −1 (nothing), or that of a checkpoint; None when there is none."""
    first = next(iter(log.commits(path)), 0)
    if first == 0:
        return -1
    bases = (version for version in sorted(log.checkpoints(path, upto)) if version >= first - 1)
    return next((version for version in bases if live_actions(log.checkpoint_file(path, version)) is not None), None)


def _base_below(path: Path, version: int) -> Snapshot | None:
    """The snapshot to replay the commits from, up to a version; None when they do not reach back far enough."""
    base = oldest_base(path, version - 1)
    if base is None or base < 0:
        return None if base is None else Snapshot(-1)
    actions = live_actions(log.checkpoint_file(path, base))
    return None if actions is None else Snapshot(-1).after(base, actions)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    """What a snapshot says, fact by fact, in words that a message can use."""
    facts: dict[str, Any] = {
        f"file '{name}'": {key: body[key] for key in _FILE if body.get(key) is not None}
        for name, body in snapshot.files.items()
    }
    facts |= {f"the table's {key}": snapshot.metadata.get(key) for key in _TABLE}
    facts |= {f"transaction '{name}'": body.get("version") for name, body in snapshot.transactions.items()}
    facts["the protocol"] = {key: value for key, value in snapshot.protocol.items() if value}
    return facts


def _no_commit(path: Path) -> Outcome:
    if path.exists() and any(path.rglob("*.parquet")):
        return failed("there are files of rows, and no commit")
    return skipped("there is no table yet: its pipeline has not run")
