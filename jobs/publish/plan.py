"""The plan of one publication: from the version that the topic holds to the table's head, and by which way.

nothing       the topic holds the head
changes       the changes of each version in between, from the table's feed
difference    the rows of the head against the live records of the topic: where the feed does not reach back to the
              topic's version, or nothing says which that is
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from strandline.state_store.delta import log, reader
from strandline.state_store.errors import VersionGone
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.publish.position import Position
    from strandline.state_store.commits import Head
    from strandline.state_store.paths import LakePath

Way = Literal["nothing", "changes", "difference"]


@dataclass(frozen=True)
class PublishPlan:
    """What is to be published.

    Attributes:
        position: what the topic holds; None: nothing that is known.
        head: what it is to hold.
        reason: for the way, in words.
        generation: of the records to be written; None: one more than that of any record that is there.
    """

    view: str
    topic: str
    position: Position | None
    head: Head
    way: Way
    reason: str
    generation: int | None

    def __str__(self) -> str:
        return sentence("'{}' to topic '{}': {}, {}", Name(self.view), self.topic, self.way, self.reason)

    def as_json(self) -> dict[str, Any]:
        """The plan as data."""
        at = self.position.version if self.position is not None else None
        found = {"view": self.view, "topic": self.topic, "from_version": at, "to_version": self.head.version}
        return {**found, "way": self.way, "reason": self.reason}


def plan_publication(table: LakePath, view: str, topic: str, position: Position | None) -> PublishPlan:
    """The plan for a topic at that position.

    Raises:
        TableMissing: the view has no table yet.
        CorruptState, ForeignWrite: as of `reader.head`.
    """
    head = reader.head(table)
    if head is None:
        raise log.missing(table)
    if position is None:
        reason = "the topic does not say which version it holds"
        return PublishPlan(view, topic, position, head, "difference", reason, None)
    way, reason, goes_on = _way(table, head, position)
    return PublishPlan(view, topic, position, head, way, reason, position.generation + (not goes_on))


def _way(table: LakePath, head: Head, position: Position) -> tuple[Way, str, bool]:
    """The way, the reason for it, and whether the table's versions go on from the one that the topic holds."""
    version = position.version
    if version > head.version:
        why = f"the topic holds version {version}, and the table went back to {head.version}"
        return "difference", why, False
    try:
        same = reader.version_at(table, version).same(position.at)
    except VersionGone:
        why = f"the topic holds version {version}, which the table's log no longer has"
        return "difference", why, position.at.table == head.record.table
    if not same:
        why = f"version {version} of the table is another commit than the one that the topic holds"
        return "difference", why, False
    if version == head.version:
        return "nothing", f"the topic holds version {version}, the newest", True
    return "changes", f"versions {version + 1} to {head.version}", True
