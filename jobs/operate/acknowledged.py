"""Acknowledgements of alerts: who takes care of one, until when.

    firing ──acknowledge──> acknowledged ──over──> resolved
      ^                          │
      └────── its time is up ────┘

    <lake>/acknowledged/<hash of the alert's identity>.json

An acknowledgement holds until its alert is over, and at most for its hours: what somebody has taken, and forgotten, is
told again. It is a file of its own, so that whoever acknowledges and whoever watches never write the same one.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from strandline.state_store.files import make_folder, remove_file, replace
from strandline.state_store.paths import files_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

HOURS: Final = 24.0
"""A working day and the night after it: the next shift hears of what the last one left."""
_FORMAT: Final = 1
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class Acknowledgement:
    """One acknowledgement. Moments are milliseconds since the epoch.

    Attributes:
        identity: of the alert.
        by: who takes care of it.
        note: what they say.
    """

    identity: str
    by: str
    at: int
    until: int
    note: str = ""

    def __str__(self) -> str:
        return f"acknowledged by {self.by}{f': {self.note}' if self.note else ''}"


def acknowledge(lake: LakeLayout, identity: str, by: str, now_ms: int, note: str = "", hours: float = HOURS) -> None:
    """Acknowledge an alert, in the place of an earlier acknowledgement of it.

    Raises:
        DiskFailed, StorageDenied, StorageUnavailable: it could not be written.
    """
    made = Acknowledgement(identity, by, now_ms, now_ms + int(hours * _HOUR_MS), note)
    make_folder(lake.acknowledged)
    replace(_path(lake, identity), json.dumps({"format": _FORMAT, **asdict(made)}).encode())


def acknowledgements(lake: LakeLayout, now_ms: int) -> dict[str, Acknowledgement]:
    """{identity of an alert: its acknowledgement}, of those whose time is not up. One that does not read is none."""
    found = {}
    for file in files_in(lake.acknowledged, ".json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(file.read_bytes())
            if content.pop("format") == _FORMAT:
                each = Acknowledgement(**content)
                if each.until > now_ms:
                    found[each.identity] = each
    return found


def forget(lake: LakeLayout, identities: Iterable[str]) -> None:
    """Forget the acknowledgements of alerts that are over: when they fire again, they are new."""
    for identity in identities:
        remove_file(_path(lake, identity))


def _path(lake: LakeLayout, identity: str) -> LakePath:
    # An identity may hold any text, and be longer than a file's name.
    return lake.acknowledged / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
