"""The settings and the log of a test that uses a real broker."""

from __future__ import annotations

import pytest

from infra.kafka.broker import KafkaBroker
from strandline.jobs.ingest.logs.kafka_log import KafkaLog
from strandline.jobs.model.settings import KafkaSettings, Settings


@pytest.fixture
def kafka(settings: Settings, kafka_broker: KafkaBroker) -> Settings:
    """The settings of this test, with the broker."""
    return settings.model_copy(update={"kafka": KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)})


@pytest.fixture
def log(kafka: Settings) -> KafkaLog:
    return KafkaLog(kafka.kafka)
