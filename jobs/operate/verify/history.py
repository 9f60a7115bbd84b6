"""The checks of a table's log: that its commits are all there and whole, and that its checkpoint says the same.

The log reaches back to version 0, or, once its beginning was cleaned up, to a checkpoint that holds what was removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.operate.verify.findings import counted, failed, passed, skipped
from strandline.state_store.delta import heads, log, reader
from strandline.state_store.delta.checkpoint import live_actions
from strandline.state_store.delta.snapshot import unproven_snapshot
from strandline.state_store.paths import any_file
from strandline.state_store.tablespec import CHECKPOINT_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.operate.verify.opened import Opened
    from strandline.state_store.delta.entry import Action
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

_FILE = ("size", "stats", "tags", "deletionVector")
_TABLE = ("id", "schemaString", "configuration", "partitionColumns")


def check_log(lake: LakeLayout, table: str) -> Outcome:
    """Every commit kept reads: its checksum, its record, its table; none is missing, none is another tool's that
    changed rows, unless the table was rebuilt since.

    Raises:
        CorruptState: a commit is broken, or none is ours.
        ForeignWrite: another tool changed rows.
        TableLost: it had commits, and has none any more.
        CommitsLost: another table was computed from a later version than its newest.
    """
    path = lake.table(table)
    kept = log.versions(path)
    newest = log.newest_version(path)
    if newest is None:
        heads.check_not_lost(lake, table)
        return _no_commit(path)
    first, last = (kept[0], max(newest, kept[-1])) if kept else (newest, newest)
    heads.check_whole(lake, table, last)
    missing = sorted(set(range(first, last + 1)) - set(kept))
    if missing:
        what = "1 commit is missing" if len(missing) == 1 else f"{len(missing)} commits are missing, the first"
        return failed(f"{what}: version {missing[0]}", log.commit_file(path, missing[0]))
    if oldest_base(path, last) is None:
        return failed(f"the commits before version {first} are gone, and no checkpoint holds what they said")
    reader.record_at(path, last)
    records = [commit.record for commit in log.read_history(path, first - 1, last)]
    table_id = unproven_snapshot(path, last).table_id
    for version, record in zip(kept, records, strict=True):
        if record is not None and record.table not in ("", table_id):
            what = f"version {version} is a commit of another table: '{record.table}' instead of '{table_id}'"
            return failed(what, log.commit_file(path, version))
    noted = heads.identity(lake, table)
    if noted not in (None, table_id):
        return failed(f"it is another table than the one that was made here: '{table_id}' instead of '{noted}'")
    return passed(f"versions {first} to {last}, {counted(len(kept), 'commit')}")


def check_sums(table: Opened) -> Outcome:
    """The rows that the log says the files have are those of the record: without a look at any file."""
    snapshot = table.snapshot
    if snapshot.record is None:
        return skipped("no record states what rows there are since another tool's last commit")
    if snapshot.difference:
        return failed(snapshot.difference)
    if not snapshot.vouched:
        return failed("the statistics of its files are others by the log than were committed: it is read without them")
    return passed(snapshot.sums.proof(snapshot.schema_json))


def check_checkpoint(table: Opened) -> Outcome:
    """The newest checkpoint reads, and says the same as the commits up to it."""
    path = table.path
    found = log.checkpoints(path, upto=table.version)
    if not found:
        due = table.version >= CHECKPOINT_INTERVAL
        return skipped("there is none, though one is due") if due else passed("none is due yet")
    newest = found[-1]
    file = log.checkpoint_file(path, newest)
    actions = live_actions(file)
    base = oldest_base(path, newest - 1)
    if actions is None:
        hint = "remove the file: what it says stands in the commits too" if base is not None else None
        return failed(f"the checkpoint of version {newest} does not read back", file, hint)
    if base is None:
        return skipped(f"that of version {newest} reads; the commits below it are gone, so nothing tells the same")
    before = [live_actions(log.checkpoint_file(path, base)) or []] if base >= 0 else []
    since = [log.read_actions(path, version) for version in range(base + 1, newest + 1)]
    said, kept = _facts([actions]), _facts([*before, *since])
    differing = sorted(name for name in said.keys() | kept.keys() if said.get(name) != kept.get(name))
    if differing:
        what = f"the checkpoint of version {newest} says otherwise than the commits: {differing[0]}"
        return failed(what, file, "remove the file: what it should say stands in the commits")
    return passed(f"that of version {newest} says what the commits say")


def oldest_base(path: LakePath, upto: int) -> int | None:
    """The oldest version that can be replayed from: −1 (nothing), or that of a checkpoint; None when there is none."""
    first = next(iter(log.versions(path)), 0)
    if first == 0:
        return -1
    bases = (version for version in log.checkpoints(path, upto) if version >= first - 1)
    return next((version for version in bases if live_actions(log.checkpoint_file(path, version)) is not None), None)


def _facts(steps: Iterable[Sequence[Action]]) -> dict[str, Any]:
    """What the log says after these lists of actions, fact by fact, in words that a message can use."""
    facts: dict[str, Any] = {}
    for actions in steps:
        for action in actions:
            if "remove" in action:
                facts.pop(f"file '{action['remove']['path']}'", None)
        for action in actions:
            match action:
                case {"add": body}:
                    known = {key: body[key] for key in _FILE if body.get(key) is not None}
                    facts[f"file '{body['path']}'"] = known
                case {"metaData": body}:
                    facts |= {f"the table's {key}": body.get(key) for key in _TABLE}
                case {"protocol": body}:
                    facts["the protocol"] = {key: value for key, value in body.items() if value}
                case {"txn": body}:
                    facts[f"transaction '{body['appId']}'"] = body.get("version")
    return facts


def _no_commit(path: LakePath) -> Outcome:
    if any_file(path, ".parquet"):
        return failed("there are files of rows, and no commit")
    return skipped("there is no table yet: its pipeline has not run")
