"""The interface of a changelog topic: its position, which is what it holds, and writing on from there, exactly once.

ChangelogTopic ── KafkaTopic    one transaction of Kafka for each write (strandline.jobs.publish.kafka_topic)
               └─ LocalTopic    one segment of the lake's own log for each write (strandline.jobs.publish.local_topic)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol, Self

from strandline.state_store.commits import TableVersion
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.ingest.logs.log import Log, Record
    from strandline.jobs.model.definitions import Source
    from strandline.state_store.commits import Head


_FORMAT = 1


@dataclass(frozen=True)
class Position:
    """The version of a view's table that a reader of all committed records of its changelog topic has.

    Attributes:
        view: whose topic it is.
        at: the commit of the view's table.
        digest: of the table's rows at that commit: 32 hex digits, a colon, their count.
        generation: of the topic's records: 1, and one more each time the table's versions began anew; 0 of those that
            were published before records said it.
    """

    view: str
    at: TableVersion
    digest: str
    generation: int = 0

    @classmethod
    def of(cls, view: str, head: Head, generation: int) -> Self:
        """The position of a topic that holds what the table has at `head`."""
        return cls(view, head.at, head.record.digest, generation)

    @property
    def version(self) -> int:
        """Delta's number of the commit."""
        return self.at.version

    @property
    def rows(self) -> int:
        """The number of keys that are not deleted."""
        return Digest.parse(self.digest).count

    def to_json(self) -> str:
        """The form in which it is stored."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Self:
        """The position in that form.

        Args:
            where: it was read, for the error.

        Raises:
            CorruptState: it does not read back.
        """
        try:
            body = json.loads(text)
            if body["format"] != _FORMAT:
                raise ValueError
            at, generation = TableVersion(**body["at"]), int(body.get("generation", 0))
            return cls(str(body["view"]), at, str(body["digest"]), generation)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(
                "what a changelog topic says of its version does not read back",
                where=where,
                hint="delete the topic; it is published anew",
            ) from error


class ChangelogTopic(Protocol):
    """One changelog topic. Any call may raise SourceUnavailable or SourceDenied; close it then, and open another."""

    @property
    def log(self) -> Log:
        """Where the topic is."""
        ...

    @property
    def source(self) -> Source:
        """The topic, as a source could read it."""
        ...

    def position(self) -> Position | None:
        """What the topic holds; None before the first write, and where that is not known any more.

        Raises:
            CorruptState: what it says does not read back.
        """
        ...

    def begin(self) -> None:
        """Become the topic's one publisher, before the first write; the topic is made if it is not there.

        Raises:
            TopicUnfit: it would not keep the newest record of each key.
            TopicsElsewhere: the lake's topics are of the other kind.
        """
        ...

    def write(self, records: Iterable[Record], position: Position) -> int:
        """Write records and the position that they lead to, all of it or nothing; the number of records.

        What iterating over the records raises is raised, and nothing is written.

        Raises:
            PublisherFenced: another publisher has begun since. Nothing is written.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
