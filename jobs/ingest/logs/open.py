"""The choice of the log: Kafka's brokers, or the files in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.ingest.logs.log import Log
    from jobs.model.settings import Settings
    from state_store.layout import Lake


def open_log(settings: Settings, lake: Lake) -> Log:
    """The log of this installation: Kafka when brokers are set, else the files in the lake."""
    if settings.kafka.bootstrap_servers:
        from jobs.ingest.logs.kafka_log import KafkaLog

        return KafkaLog(settings.kafka)
    from jobs.ingest.logs.local_log import LocalLog

    return LocalLog(lake)
