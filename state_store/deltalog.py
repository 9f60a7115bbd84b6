"""Delta's log without a JVM: the newest version, the actions of one commit, and the commit that creates a table.

A commit is one file `_delta_log/<version, 20 digits>.json` of one JSON action per line. Reading it takes 0.1 ms,
opening the table several; and a head is read before and after every epoch.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from state_store.commits import CommitRecord
from state_store.errors import CorruptState, TableMissing, VersionGone
from state_store.files import create

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG = "_delta_log"
_RESTORE = "restore the table, or drop it and rebuild it from its inputs"


@dataclass(frozen=True)
class DataFile:
    """The absolute path of a data file, and the `deletionVector` of its deleted rows."""

    path: Path
    deletion_vector: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Commit:
    """One commit: the files that it adds to the table and removes from it.

    Attributes:
        timestamp: milliseconds since the epoch, by the writer's clock.
        record: our record, or None when the commit is not one of ours.
        added: data files that belong to the table after it, of commits that change rows (compaction does not).
        removed: data files that belonged to it before. A file in both has a new deletion vector.
        change_files: files that list the changes, if the commit wrote any; then `added` and `removed` are not needed.
    """

    version: int
    timestamp: int
    operation: str
    record: CommitRecord | None
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    change_files: tuple[Path, ...]

    @property
    def only_adds(self) -> bool:
        """True if the commit deletes no row."""
        return not self.removed and all(file.deletion_vector is None for file in self.added)


def newest_version(path: Path) -> int | None:
    """The newest version of the table at `path`; None when there is no table."""
    log = path / _LOG
    version = _checkpoint_hint(log)
    if version is None:
        try:
            names = [entry.name for entry in os.scandir(log)]
        except FileNotFoundError:
            return None
        versions = [int(name[:20]) for name in names if _is_commit(name)]
        return max(versions, default=None)
    # Checkpoints are at most some tens of commits apart: looking for each file is cheaper than listing a long log.
    while _commit_file(path, version + 1).exists():
        version += 1
    return version


def read_commit(path: Path, version: int) -> Commit:
    """The commit of `version`.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log no longer holds the version, or does not hold it yet.
        CorruptState: the commit is broken, or names a file outside the table.
    """
    file = _commit_file(path, version)
    try:
        actions = [json.loads(line) for line in file.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        if newest_version(path) is None:
            raise missing(path) from None
        raise VersionGone(
            f"version {version} of '{path.name}' is not in its log", where=str(path), hint="read the table anew"
        ) from None
    except ValueError as error:
        raise CorruptState(f"a commit of '{path.name}' is not JSON", where=str(file), hint=_RESTORE) from error
    if not actions:
        raise CorruptState(f"a commit of '{path.name}' is empty", where=str(file), hint=_RESTORE)
    return _commit(path, version, actions)


def create_table(path: Path, schema_json: str, properties: Mapping[str, str], record: CommitRecord) -> bool:
    """Write version 0: the schema and no rows. Atomic; False when the table exists.

    It is not left to a Delta library: Spark takes seconds for it, and delta-rs requires every reader to know the
    VARIANT type as soon as deletion vectors are on.

    Args:
        schema_json: the schema in Delta's (and Spark's) JSON form.
    """
    vectors = properties.get("delta.enableDeletionVectors") == "true"
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 4}
    if vectors:
        features = ["appendOnly", "changeDataFeed", "deletionVectors", "invariants"]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": ["deletionVectors"], "writerFeatures": features}
    now = time.time_ns() // 1_000_000
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": now,
    }
    info = {"timestamp": now, "operation": "CREATE TABLE", "operationParameters": {}, "engineInfo": "Strandline"}
    info |= {"userMetadata": record.to_json()}
    actions: list[dict[str, Any]] = [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]
    (path / _LOG).mkdir(parents=True, exist_ok=True)
    return create(_commit_file(path, 0), "".join(f"{json.dumps(action)}\n" for action in actions).encode())


def missing(path: Path) -> TableMissing:
    """The error for a table that is not there."""
    return TableMissing(
        f"there is no table '{path.name}'", where=str(path), hint="run its pipeline once, or check the lake's root"
    )


def _commit_file(path: Path, version: int) -> Path:
    return path / _LOG / f"{version:020d}.json"


def _is_commit(name: str) -> bool:
    return len(name) == 25 and name.endswith(".json") and name[:20].isdigit()


def _checkpoint_hint(log: Path) -> int | None:
    try:
        return int(json.loads((log / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):  # absent or torn: it is only a hint
        return None


def _commit(path: Path, version: int, actions: list[dict[str, Any]]) -> Commit:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    files: dict[str, list[DataFile]] = {"add": [], "remove": [], "cdc": []}
    for action in actions:
        for name, found in files.items():
            body = action.get(name)
            if body and (name == "cdc" or body.get("dataChange", True)):
                found.append(DataFile(_inside(path, body["path"]), body.get("deletionVector")))
    return Commit(
        version=version,
        timestamp=int(info.get("timestamp", 0)),
        operation=str(info.get("operation", "")),
        record=CommitRecord.from_json(info.get("userMetadata")),
        added=tuple(files["add"]),
        removed=tuple(files["remove"]),
        change_files=tuple(file.path for file in files["cdc"]),
    )


def _inside(path: Path, name: str) -> Path:
    """The file that an action names. Ours are all below the table; a path outside it is refused."""
    relative = Path(unquote(name))
    if "://" in name or relative.is_absolute() or ".." in relative.parts:
        raise CorruptState(f"the log of '{path.name}' names a file outside the table: '{name}'", where=str(path))
    return path / relative
