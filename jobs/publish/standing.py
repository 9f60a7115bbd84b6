"""Where a changelog topic stands: the version that it holds, and how far that is behind the view's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.publish.declared import topic_as_source
from strandline.jobs.publish.topic import open_topic
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import View
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.publish.position import Position
    from strandline.state_store.layout import Lake


@dataclass(frozen=True)
class TopicStanding:
    """The standing of one topic.

    Attributes:
        position: what it holds; None before the first publication, and where nothing says it any more.
        lag: versions of the table that it does not hold; 0 where those since have changed no row. None without a
            position.
    """

    topic: str
    position: Position | None
    lag: int | None


def topic_standing(view: View, settings: Settings, lake: Lake) -> TopicStanding:
    """The standing of the topic of a published view.

    Raises:
        SourceUnavailable, SourceDenied: the brokers do not answer.
        TopicsElsewhere: the lake's topics are of the other kind.
        CorruptState: what the topic or the table says of its version does not read back.
    """
    source = topic_as_source(view)
    topic = open_topic(source, settings, lake)
    try:
        position = topic.position()
    finally:
        topic.close()
    head = reader.head(lake.table(view.name))
    if position is None or head is None:
        return TopicStanding(source.topic, position, None)
    same = position.digest == head.record.digest
    return TopicStanding(source.topic, position, 0 if same else max(head.version - position.version, 1))
