"""The choice of the log: Kafka's brokers, or the files in the lake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.model.errors import TopicsElsewhere
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import create, make_folder
from strandline.state_store.paths import folders_in
from strandline.state_store.stored_state import of_members

if TYPE_CHECKING:
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
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
