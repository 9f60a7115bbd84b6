"""What every commit says of itself: the record kept in Delta's `userMetadata`.

The last commit alone says where a table stands: which versions of its inputs (`vector`) and which records of its
topics (`offsets`) it reflects. Nothing else is needed to resume, so nothing else is trusted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from state_store.errors import CorruptState

FORMAT = 1
_MARK = "strandline"


@dataclass(frozen=True)
class CommitRecord:
    """One commit of a table.

    Attributes:
        epoch: 0 for the commit that creates the table, then one more for each refresh.
        vector: {input table: Delta version} the rows reflect, after this commit.
        offsets: {topic: {partition: next offset}} the rows reflect, after this commit (event logs only).
        stream_times: {topic: {partition: microseconds}}: the largest event time seen, per partition (event logs only).
        fingerprint: hash of the definition that made the rows.
        writer: who wrote it: `pipeline/incarnation`.
        mode: how: `create`, `ingest`, `delta`, `full`, `compact`.
        reason: why that mode, in words.
        inserted: rows added (a changed row counts here and in `deleted`).
        deleted: rows taken away.
        digest: order-free 128-bit hash of the visible rows after this commit, 32 hex digits, and `:count`.
    """

    epoch: int
    vector: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    stream_times: dict[str, dict[str, int]] = field(default_factory=dict)
    fingerprint: str = ""
    writer: str = ""
    mode: str = "create"
    reason: str = ""
    inserted: int = 0
    deleted: int = 0
    digest: str = ""

    @property
    def rows(self) -> int:
        """How many visible rows the table has after this commit."""
        return int(self.digest.partition(":")[2] or 0)

    def to_json(self) -> str:
        """The text for `userMetadata`."""
        return json.dumps({_MARK: {"format": FORMAT, **asdict(self)}}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> CommitRecord | None:
        """The record in a commit's `userMetadata`; None when the commit is not one of ours.

        Raises:
            CorruptState: it is ours, of a format this version does not read.
        """
        if not text:
            return None
        try:
            body: dict[str, Any] = json.loads(text)[_MARK]
        except (ValueError, KeyError, TypeError):
            return None
        if body.pop("format", None) != FORMAT:
            raise CorruptState(
                "a commit was written by another version of Strandline",
                hint="see the 'Stored state' lines of CHANGELOG.md",
            )
        return cls(**body)


@dataclass(frozen=True)
class Head:
    """Where a table stands: its newest Delta version, and the newest record at or below it."""

    version: int
    record: CommitRecord
