"""The check that a topic is still the one that a source's events were read from.

Offsets mean nothing in another topic: one that was deleted and made again may well hold more records than were read
from the first, and its first records would be skipped in silence. So commits name the id of the topic beside its
offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ingest.offsets import topics_of
from strandline.jobs.model import tables
from strandline.jobs.model.errors import TopicReplaced
from strandline.state_store.delta.reader import head

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.ingest.same_records import LeaderEpochs
    from strandline.jobs.model.definitions import Source
    from strandline.state_store.layout import Lake


def current_ids(sources: Sequence[Source], lake: Lake, log: Log) -> dict[str, str]:
    """{topic: its id} of the topics to read; an unknown id is empty.

    Raises:
        TopicMissing: a topic is not there.
        TopicReplaced: the event log or the dead letters of a source come from another topic of that name.
    """
    ids = {topic: log.identity(topic).id for topic in topics_of(sources)}
    for source in sources:
        # Both tables: dead letters are committed first, so after a kill they may be all that there is.
        for table in (tables.event_log(source), tables.dead_letters(source.name)):
            found = head(lake.table(table))
            if found is not None:
                check_same(source.topic, found.record.topics.get(source.topic, ""), ids[source.topic])
    return ids


def check_all_same(wanted: Mapping[str, str], log: Log) -> LeaderEpochs:
    """Check the topics of a run that goes on: {topic: id at its start}. Raises TopicMissing, TopicReplaced.

    Returns:
        the terms of the topics' leaders.
    """
    terms: LeaderEpochs = {}
    for topic, topic_id in wanted.items():
        found = log.identity(topic)
        check_same(topic, topic_id, found.id)
        terms[topic] = dict(found.leader_epochs)
    return terms


def check_same(topic: str, wanted: str, found: str) -> None:
    """Raise TopicReplaced unless the ids are equal, or one of them is unknown (empty)."""
    if wanted and found and wanted != found:
        raise TopicReplaced(
            f"topic '{topic}' was deleted and made again: events were read from the topic with id {wanted}, "
            f"now its id is {found}",
            hint="to read the new topic from its first record, DROP the source and CREATE it again; "
            "nothing keeps the events of the old one then",
        )
