"""The topics that sources are read from: in Kafka or in the lake, whether each is still the same, and what is unread.

Offsets mean nothing in another topic: one that was deleted and made again may well hold more records than were read
from the first, and its first records would be skipped in silence. So commits name the id of the topic beside its
offsets.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.ingest.logs.foreign_log import PLACES
from strandline.jobs.ingest.offsets import committed_offsets, start_offsets, topics_of
from strandline.jobs.model import tables
from strandline.jobs.model.errors import ForeignChanged, RecordsReplaced, TopicMissing, TopicReplaced, TopicsElsewhere
from strandline.state_store.delta.reader import head
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import create, make_folder
from strandline.state_store.paths import folders_in
from strandline.state_store.stored_state import of_members
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.ingest.foreign.table import Origin
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.layout import LakeLayout


# What a lake remembers of its topics: whether they are Kafka's, or the lake's own files.
#
#     <lake>/topics.json   {"format": 1, "topics": "kafka" or "local", "crc": crc32 of the other members}
#
# The settings alone decide where topics are. Without this file a shell that lacks `kafka.bootstrap_servers` would
# write events into files that no pipeline reads, and find that a topic "is not there" which the brokers have. The
# first topic that is made decides; lakes from before this file with topics of their own count as local.

TopicsKind = Literal["kafka", "local"]
_FORMAT = 1


def set_kind(settings: Settings) -> TopicsKind:
    """The kind of topics that the settings ask for."""
    return "kafka" if settings.kafka.bootstrap_servers else "local"


def remembered(lake: LakeLayout) -> TopicsKind | None:
    """The kind of the lake's topics; None while it has none. Raises CorruptState: the file is damaged."""
    return _written(lake) or ("local" if any(folders_in(lake.topic("x").parent)) else None)


def remember(settings: Settings, lake: LakeLayout) -> None:
    """Note the kind of the lake's first topic; of several processes that do, the first one's stays.

    Raises:
        TopicsElsewhere: the lake's topics are of the other kind.
    """
    check_kind(settings, lake)
    if _written(lake) is None:
        make_folder(lake.root)
        members = {"format": _FORMAT, "topics": set_kind(settings)}
        create(lake.topics_kind, json.dumps({**members, "crc": of_members(members, ascii_only=True)}).encode())
        check_kind(settings, lake)  # another process may have been faster


def check_kind(settings: Settings, lake: LakeLayout) -> None:
    """Check that the settings lead to the topics that the lake has.

    Raises:
        TopicsElsewhere: they lead to the other kind.
        CorruptState: the lake's file is damaged.
    """
    known = remembered(lake)
    if known is None or known == set_kind(settings):
        return
    if known == "kafka":
        raise TopicsElsewhere(
            "the topics of this lake are Kafka's, but no brokers are set",
            where=str(lake.root),
            hint="set STRANDLINE_KAFKA__BOOTSTRAP_SERVERS=host:9092, or in strandline.toml: [kafka] bootstrap_servers",
        )
    raise TopicsElsewhere(
        f"the topics of this lake are its own files, but brokers are set: {settings.kafka.bootstrap_servers}",
        where=str(lake.root),
        hint="unset STRANDLINE_KAFKA__BOOTSTRAP_SERVERS, or set STRANDLINE_LAKE to a lake for the topics of Kafka",
    )


def _written(lake: LakeLayout) -> TopicsKind | None:
    try:
        data = lake.topics_kind.read_bytes()
    except FileNotFoundError:
        return None
    try:
        members = json.loads(data)
        checksum = members.pop("crc")
        if members["format"] == _FORMAT and checksum == of_members(members, ascii_only=True):
            return "kafka" if members["topics"] == "kafka" else "local"
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise CorruptState(
        "the file that says where the lake's topics are does not read back as it was written",
        where=str(lake.topics_kind),
        hint="restore the file from a backup of the lake",
    )


def open_log(settings: Settings, lake: LakeLayout, *, going_on: bool = False) -> Log:
    """The log of this installation: Kafka when brokers are set, else the files in the lake; and the tables of others.

    Args:
        going_on: ranges are read that follow each other, until it is closed.

    Raises:
        TopicsElsewhere: the lake's topics are of the other kind.
    """
    from strandline.jobs.ingest.logs.foreign_log import ForeignTables, Logs

    check_kind(settings, lake)
    foreign = ForeignTables(settings.storage.options(), lake, settings.ingest.delta_seconds)
    if settings.kafka.bootstrap_servers:
        from strandline.jobs.ingest.logs.kafka_log import KafkaLog

        return Logs(KafkaLog(settings.kafka, going_on=going_on), foreign)
    from strandline.jobs.ingest.logs.local_log import LocalLog

    return Logs(LocalLog(lake), foreign)


def open_with_topic(source: Source, settings: Settings, lake: LakeLayout) -> Log:
    """The log, with the topic of a source, which is created if absent; the lake remembers what kind of log it is.

    Raises:
        TopicsElsewhere: the lake's topics are of the other kind.
        SourceUnavailable: the broker does not answer.
    """
    log = open_log(settings, lake)
    log.ensure_topic(source.topic, source.partitions, source.replicas)
    if origin_of(source.topic) is None:
        remember(settings, lake)
    return log


def open_to_write(source: Source, settings: Settings, lake: LakeLayout) -> Log:
    """The log, with the topic of a source for its INSERTs. It is created if absent, unless events were read from it:
    a new one of that name would be another one, and what is written there would wait for ever.

    Raises:
        TopicMissing: events were read from the topic, and it is gone.
        TopicReplaced: events were read from another topic of that name.
        TopicsElsewhere: the lake's topics are of the other kind.
        SourceUnavailable: the broker does not answer.
    """
    if not _read_ids(source, lake):
        return open_with_topic(source, settings, lake)
    log = open_log(settings, lake)
    try:
        current_ids([source], lake, log)
    except TopicReplaced as error:
        error.hint = sentence(
            "nothing was written; type: strandline rebuild {}, which reads the new topic from its first record and "
            "sets the events of the old one aside, then INSERT again",
            Name(source.name, shlex.quote),
        )
        raise
    return log


def _read_ids(source: Source, lake: LakeLayout) -> list[str]:
    """The ids of the topics that the source's tables come from; an unknown id is empty."""
    # Both tables: dead letters are committed first, so after a kill they may be all that there is.
    heads = (head(lake.table(each)) for each in (tables.event_log(source), tables.dead_letters(source.name)))
    return [each.record.topics.get(source.topic, "") for each in heads if each is not None]


# The check that a topic still holds the last records that were read from it.
#
#     read up to here, in term 3        unclean election, term 4       the leader goes on, in term 4
#     a b c d e f                       a b c                          a b c x y z
#
# When a broker that lags becomes the leader, the records that it never got are cut off, and others take their
# offsets: the topic's id stays, and nothing is missing. But each record keeps the term of the leader that took it in.
# So commits name the offset and the term of the last record read of each partition, and another term at that offset
# is an error. A table of others has no leaders: there commits name the last version that was read, by a mark of what it
# was read from (a commit, a snapshot, a file). A table that lost its newest versions, or was put back from a backup,
# may get others of their numbers: what these changed would be passed over.

LeaderEpochs = dict[str, dict[int, int]]
"""{topic: {partition: number of its leader's term}}."""


def check_same_records(sources: Sequence[Source], lake: LakeLayout, log: Log, now: LeaderEpochs) -> bool:
    """Check the last records that the commits of `sources` name.

    Args:
        now: the terms of the topics' present leaders.

    Returns:
        False if one of the records is not visible yet: a new leader shows its last records late. Look again.

    Raises:
        RecordsReplaced: another record stands at its offset.
        ForeignChanged: the version of a table of others that was read last is another one.
        SourceUnavailable: the brokers do not answer.
    """
    seen = True
    for source in sources:
        for table in (tables.event_log(source), tables.dead_letters(source.name)):
            found = head(lake.table(table))
            if found is not None:
                seen &= check_last_records(source, found.record, log, now.get(source.topic, {}))
    return seen


def check_last_records(source: Source, record: CommitRecord, log: Log, now: Mapping[int, int]) -> bool:
    """The same, of the last records that one commit names. Args: `now`: the terms of its topic's leaders."""
    named = record.leader_epochs.get(source.topic, {})
    if not named:
        return True
    last = {int(partition): (offset, epoch) for partition, (offset, epoch) in named.items()}
    foreign = origin_of(source.topic)
    for partition, (offset, epoch) in last.items():
        if foreign is None and now.get(partition, epoch) < epoch:
            raise _replaced(source, partition, offset, epoch, f"its leader is in term {now[partition]} now")
    begin, end = log.begin_offsets(source.topic), log.end_offsets(source.topic)
    # Records that retention removed say nothing any more; a partition that is gone is another error.
    kept = {p: offset for p, (offset, _) in last.items() if begin.get(p, offset + 1) <= offset}
    visible = {p: offset for p, offset in kept.items() if offset < end.get(p, 0)}
    for partition, epoch in log.leader_epochs(source.topic, visible).items():
        offset, expected = last[partition]
        if epoch != expected and foreign is not None:
            raise _other_version(source, foreign, offset)
        if epoch != expected:
            raise _replaced(source, partition, offset, expected, f"the one there now is of term {epoch}")
    return visible.keys() == kept.keys()


def _replaced(source: Source, partition: int, offset: int, epoch: int, seen: str) -> RecordsReplaced:
    return RecordsReplaced(
        f"topic '{source.topic}', partition {partition}: the record at offset {offset} was read in term {epoch} of the "
        f"leader, {seen}: records that were read were cut off by the election of a leader that did not have them",
        where=Text(Name(source.name)),
        hint=sentence(
            "type: strandline rebuild {}, which reads the topic as it stands now; "
            "unclean.leader.election.enable=false on the brokers keeps records instead",
            Name(source.name, shlex.quote),
        ),
    )


def _other_version(source: Source, foreign: Origin, offset: int) -> ForeignChanged:
    return ForeignChanged(
        f"version {offset // PLACES} of '{foreign.location}' is another one than was read: the table went back, and "
        "was written on",
        where=Text(Name(source.name)),
        hint=sentence(
            "put it back as it was; or type: strandline rebuild {}, which reads it as it stands now",
            Name(source.name, shlex.quote),
        ),
    )


def current_ids(sources: Sequence[Source], lake: LakeLayout, log: Log) -> dict[str, str]:
    """{topic: its id} of the topics to read; an unknown id is empty.

    Raises:
        TopicMissing: a topic is not there.
        TopicReplaced: the event log or the dead letters of a source come from another topic of that name.
        ForeignChanged: a version of a table of others that was read is another one now.
    """
    ids = {topic: _id_of(topic, sources, lake, log) for topic in topics_of(sources)}
    for source in sources:
        for wanted in _read_ids(source, lake):
            check_same(source.topic, wanted, ids[source.topic], log)
    # Of Kafka's the run itself looks, once a leader is there for each partition.
    check_same_records([each for each in sources if origin_of(each.topic) is not None], lake, log, {})
    return ids


def _id_of(topic: str, sources: Sequence[Source], lake: LakeLayout, log: Log) -> str:
    """Raises TopicMissing: a topic of which events were read needs more than to be made again."""
    try:
        return log.identity(topic).id
    except TopicMissing as error:
        read = [each for each in sources if each.topic == topic and _read_ids(each, lake)]
        if not read or origin_of(topic) is not None:
            raise
        raise TopicMissing(
            sentence("{}, and events were read from it: it was deleted", error.message),
            where=error.where,
            hint=sentence(
                "give the CREATE of '{}' once more, which makes it, and type: strandline rebuild {}, which reads the "
                "new one from its first record; the events of the old one are set aside then",
                Name(read[0].name),
                Name(read[0].name, shlex.quote),
            ),
        ) from error


def check_all_same(wanted: Mapping[str, str], log: Log) -> LeaderEpochs:
    """Check the topics of a run that goes on: {topic: id at its start}. Raises TopicMissing, TopicReplaced.

    Returns:
        the terms of the topics' leaders.
    """
    terms: LeaderEpochs = {}
    for topic, topic_id in wanted.items():
        found = log.identity(topic)
        check_same(topic, topic_id, found.id, log)
        terms[topic] = dict(found.leader_epochs)
    return terms


def check_same(topic: str, wanted: str, found: str, log: Log) -> None:
    """Raise TopicReplaced unless the ids are equal, or one of them is unknown (empty), or the topic had it earlier."""
    if not wanted or not found or wanted == found or log.continues(topic, wanted):
        return
    foreign = origin_of(topic)
    if foreign is not None:
        raise TopicReplaced(
            f"the table '{foreign.location}' is another one than was read: its id is {found}, it was {wanted}, which "
            "its log does not know",
            hint="put the old one back; or DROP the source with its views, and CREATE it again: it begins with the "
            "table as it is now",
        )
    raise TopicReplaced(
        f"topic '{topic}' was deleted and made again: events were read from the topic with id {wanted}, "
        f"now its id is {found}",
        hint="to read the new topic from its first record, DROP the source and CREATE it again; "
        "nothing keeps the events of the old one then",
    )


def lag(source: Source, lake: LakeLayout, log: Log) -> int:
    """The number of records from the event log's last commit to the topic's end; 0 while there is no topic.

    An upper bound of the events with Kafka's transactions, whose marks take offsets too.

    Raises:
        SourceUnavailable: the brokers do not answer.
    """
    if not log.exists(source.topic):
        return 0
    ends, begins = log.end_offsets(source.topic), log.begin_offsets(source.topic)
    reached = committed_offsets(source, lake)
    return sum(
        log.span(source.topic, each, reached.get(str(each), begins.get(each, 0)), end) for each, end in ends.items()
    )


MOST_PARTITIONS: Final = 16
"""Of those that are furthest behind: to read one record of Kafka takes a connection of its own."""


def waiting_since(source: Source, lake: LakeLayout, log: Log, most: int | None = None) -> int | None:
    """The time of the oldest record that is not in the event log, in milliseconds since the epoch; None when none waits
    that has a time.

    Args:
        most: partitions to look at, those with the most records that wait; None: all.

    Raises:
        SourceError: the broker does not answer, or has not what the lake has read.
    """
    if not log.exists(source.topic):
        return None
    committed = {source.name: committed_offsets(source, lake)}
    ends = log.end_offsets(source.topic)
    starts = {int(partition): each for partition, each in start_offsets([source], committed, log)[source.topic].items()}
    waiting = sorted((each for each in starts if starts[each] < ends[each]), key=lambda each: starts[each] - ends[each])
    found = (time for each in waiting[:most] for time in _time_at(log, source.topic, each, starts[each]))
    return min(found, default=None)


def _time_at(log: Log, topic: str, partition: int, offset: int) -> Iterator[int]:
    for records in log.read(topic, partition, offset, offset + 1):
        yield from (moment for moment in records.timestamps[:1] if moment >= 0)


def behind(sources: Sequence[Source], lake: LakeLayout, log: Log) -> bool:
    """True if a topic holds records that are not in the lake.

    Raises:
        StrandlineError: what a run would stop for at its start: a topic that is missing or another one, records that
            were removed unread.
    """
    current_ids(sources, lake, log)
    start = start_offsets(sources, {each.name: committed_offsets(each, lake) for each in sources}, log)
    for topic, partitions in start.items():
        ends = log.end_offsets(topic)
        if any(offset < ends[int(partition)] for partition, offset in partitions.items()):
            return True
    return False
