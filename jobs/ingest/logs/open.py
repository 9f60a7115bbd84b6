"""The choice of the log: Kafka's brokers, or the files in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ingest.logs.remembered import check_kind, remember

if TYPE_CHECKING:
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import Lake


def open_log(settings: Settings, lake: Lake) -> Log:
    """The log of this installation: Kafka when brokers are set, else the files in the lake.

    Raises:
        TopicsElsewhere: the lake's topics are of the other kind.
    """
    check_kind(settings, lake)
    if settings.kafka.bootstrap_servers:
        from strandline.jobs.ingest.logs.kafka_log import KafkaLog

        return KafkaLog(settings.kafka)
    from strandline.jobs.ingest.logs.local_log import LocalLog

    return LocalLog(lake)


def open_with_topic(source: Source, settings: Settings, lake: Lake) -> Log:
    """The log, with the topic of a source, which is created if absent; the lake remembers what kind of log it is.

    Raises:
        TopicsElsewhere: the lake's topics are of the other kind.
        SourceUnavailable: the broker does not answer.
    """
    log = open_log(settings, lake)
    log.ensure_topic(source.topic, source.partitions, source.replicas)
    remember(settings, lake)
    return log
