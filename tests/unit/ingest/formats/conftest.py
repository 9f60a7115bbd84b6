"""A schema registry in memory."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient


@pytest.fixture(scope="module")
def memory() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://formats"})
