"""The record that every commit carries in Delta's `userMetadata`.

The last commit alone says which versions of its inputs (`vector`) and which records of its topics (`offsets`) a table
reflects. Nothing else is needed to resume, so nothing else is trusted.
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
        topics: {topic: id of the topic the offsets are of}, where the id is known (event logs only).
        fingerprint: hash of the definition that produced the rows.
        writer: the process that wrote it: `pipeline/incarnation`.
        mode: the way it was made: `create`, `ingest`, `delta`, `full`, `compact`.
        reason: the reason for the mode, in words.
        inserted: rows inserted (a changed row counts here and in `deleted`).
        deleted: rows deleted.
        digest: order-free 128-bit hash of the visible rows after this commit, 32 hex digits, and `:count`.
    """

    epoch: int
    vector: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    stream_times: dict[str, dict[str, int]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    writer: str = ""
    mode: str = "create"
    reason: str = ""
    inserted: int = 0
    deleted: int = 0
    digest: str = ""

    @property
    def rows(self) -> int:
        """The number of visible rows of the table after this commit."""
        return int(self.digest.partition(":")[2] or 0)

    def to_json(self) -> str:
        """The text for `userMetadata`."""
        return json.dumps({_MARK: {"format": FORMAT, **asdict(self)}}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> CommitRecord | None:
        """The record in a commit's `userMetadata`; None when the commit is not one of ours.

        Raises:
            CorruptState: it is ours, but of a format that this version does not read.
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
    """The head of a table: its newest Delta version, and the newest record at or below it."""

    version: int
    record: CommitRecord
