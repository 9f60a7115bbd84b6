"""Log entry as bytes: one JSON action a line, and a checksum over all of them; and the hint to the last checkpoint.

    {"commitInfo": {…, "userMetadata": "{\\"strandline\\":{\\"crc\\":\\"1f2e3d4c\\", …}}", "strandline": {…}}}
    {"txn": …}  {"add": …}  {"remove": …}

The checksum stands in our record. So a flipped bit anywhere in an entry of ours is noticed, also in the name of a file.
Entries of other writers have none.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.commits import CommitRecord, stated
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import replace
from strandline.state_store.stored_state import MARK, PLACE, intact, sealed
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.state_store.paths import LakePath


Action = dict[str, Any]

ENGINE: Final = "Strandline"
"""`engineInfo` of our commits: a second mark, so that a broken record is not taken for a foreign commit."""

# The record is JSON inside JSON, so its quotes are escaped.
CHECKSUM: Final = re.compile(rb'\{\\"strandline\\":\{\\"crc\\":\\"([0-9a-f]{8})\\"')
"""Finds the checksum of an entry."""


def encode(actions: Sequence[Action]) -> bytes:
    """The entry of these actions, of which the first carries the record."""
    return sealed("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions).encode(), CHECKSUM)


def decode(data: bytes, file: LakePath) -> tuple[list[Action], CommitRecord | None]:
    """The actions of an entry, and our record; None when the entry is another writer's.

    Raises:
        CorruptState: the entry is not as it was written.
    """
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        raise _corrupt(file, "is not JSON") from error
    if not actions or not all(isinstance(action, dict) for action in actions):
        raise _corrupt(file, "is not a list of actions" if actions else "is empty")
    info: Any = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    if not isinstance(info, dict):
        raise _corrupt(file, "does not say what it is")
    record = CommitRecord.from_json(info.get("userMetadata"))
    # Two marks, so that one wrong bit does not make our commit another tool's.
    ours = str(info.get("engineInfo", "")).startswith(ENGINE) or CHECKSUM.search(data) is not None
    if record is None and ours:
        raise _corrupt(file, "has lost its record")
    if record is not None and not intact(data, CHECKSUM):
        raise _corrupt(file, "fails its checksum")
    if record is not None:
        _check_its_own(info, file)
    return actions, record


def _check_its_own(info: dict[str, Any], file: LakePath) -> None:
    """Raise CorruptState if the entry was written as that of another version."""
    try:
        found = stated(info)
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(file, "does not say what it is") from error
    version = file.name.partition(".")[0]
    if found is not None and version.isdecimal() and found.version != int(version):
        raise _corrupt(file, f"is a copy of that of version {found.version}")


def _corrupt(file: LakePath, what: str) -> CorruptState:
    table = file.parent.parent.name
    return CorruptState(sentence("a commit of '{}' {}", Name(table), what), where=str(file), hint=rebuild_hint(table))


def rebuild_hint(table: str) -> str:
    """The way out of a broken table."""
    return sentence("restore the lake's folder from a backup, or type: strandline rebuild {}", Name(table, shlex.quote))


# `_delta_log/_last_checkpoint` names the last checkpoint, so that the log need not be listed. It is replaced after each
# checkpoint, and only a hint: one that is missing, torn or another tool's is passed over.


def write_hint(file: LakePath, version: int, *, actions: int, size: int, files: int) -> None:
    """Name the checkpoint of `version`, unless a newer one is named: a clean-up checkpoints an old version.

    Args:
        actions, size, files: its rows, its bytes, and the live files in it, as Delta's protocol wants them.
    """
    if (hinted_version(file) or 0) > version:
        return
    about = {"version": version, "size": actions, "sizeInBytes": size, "numOfAddFiles": files}
    text = json.dumps({**about, "tags": {"checksum": PLACE}})
    failpoint("before-hint")
    replace(file, sealed(text.encode(), MARK))


def hinted_version(file: LakePath) -> int | None:
    """The version of the last checkpoint; None when the hint is not there, not ours, or broken."""
    try:
        data = file.read_bytes()
        return int(json.loads(data)["version"]) if intact(data, MARK) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
