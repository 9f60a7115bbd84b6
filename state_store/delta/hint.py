"""The hint that names the last checkpoint, so that the log need not be listed: `_delta_log/_last_checkpoint`.

It is replaced after each checkpoint, and only a hint: one that is missing, torn or another tool's is passed over.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from state_store.checksum import EMPTY, intact, sealed
from state_store.failpoints import failpoint
from state_store.files import replace

if TYPE_CHECKING:
    from pathlib import Path

_CHECKSUM: Final = re.compile(rb"strandline-crc32:([0-9a-f]{8})")


def write_hint(file: Path, version: int, *, actions: int, size: int, files: int) -> None:
    """Name the checkpoint of `version`.

    Args:
        actions, size, files: its rows, its bytes, and the live files in it, as Delta's protocol wants them.
    """
    about = {"version": version, "size": actions, "sizeInBytes": size, "numOfAddFiles": files}
    text = json.dumps({**about, "tags": {"checksum": f"strandline-crc32:{EMPTY}"}})
    failpoint("before-hint")
    replace(file, sealed(text.encode(), _CHECKSUM))


def hinted_version(file: Path) -> int | None:
    """The version of the last checkpoint; None when the hint is not there, not ours, or broken."""
    try:
        data = file.read_bytes()
        return int(json.loads(data)["version"]) if intact(data, _CHECKSUM) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
