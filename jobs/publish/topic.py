"""The interface of a changelog topic: what it holds, and writing on from there, exactly once.

ChangelogTopic ── KafkaTopic    one transaction of Kafka for each write (strandline.jobs.publish.kafka_topic)
               └─ LocalTopic    one segment of the lake's own log for each write (strandline.jobs.publish.local_topic)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from strandline.jobs.ingest.logs.remembered import check_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.ingest.logs.log import Log, Record
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.publish.position import Position
    from strandline.state_store.layout import Lake


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


def open_topic(source: Source, settings: Settings, lake: Lake) -> ChangelogTopic:
    """The topic, to be read; to write, `begin`.

    Raises:
        TopicsElsewhere: the lake's topics are of the other kind.
    """
    check_kind(settings, lake)
    if settings.kafka.bootstrap_servers:
        from strandline.jobs.publish.kafka_topic import KafkaTopic

        return KafkaTopic(source, settings, lake)
    from strandline.jobs.publish.local_topic import LocalTopic

    return LocalTopic(source, settings, lake)
