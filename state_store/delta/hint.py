"""The hint that names the last checkpoint, so that the log need not be listed: `_delta_log/_last_checkpoint`.

It is replaced after each checkpoint, and only a hint: one that is missing, torn or another tool's is passed over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from strandline.state_store.checksum import MARK, PLACE, intact, sealed
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import replace

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath


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
