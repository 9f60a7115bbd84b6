"""The terms of given records, with a consumer that gives prepared messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from strandline.jobs.ingest.logs import kafka_log
from strandline.jobs.ingest.logs.kafka_log import leader_epochs
from strandline.jobs.model.errors import SourceUnavailable


def message(partition: int, offset: int, term: int | None = None, error: int | None = None) -> Any:
    found = KafkaError(error) if error is not None else None
    return SimpleNamespace(
        partition=lambda: partition, offset=lambda: offset, leader_epoch=lambda: term, error=lambda: found
    )


class _Consumer:
    """Gives one list of messages for each call."""

    def __init__(self, *answers: list[Any]) -> None:
        self._answers = list(answers)
        self.assigned: dict[int, int] = {}
        self.closed = False

    def __call__(self, _options: dict[str, Any]) -> _Consumer:
        return self

    def assign(self, partitions: Any) -> None:
        self.assigned = {each.partition: each.offset for each in partitions}

    def consume(self, **_: Any) -> list[Any]:
        return self._answers.pop(0)

    def close(self) -> None:
        self.closed = True


def test_the_record_itself_tells_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a later one, that comes where it was compacted away or aborted; and not the end of the partition."""
    end, passing = KafkaError._PARTITION_EOF, KafkaError._TRANSPORT
    consumer = _Consumer(
        [message(0, 7, 3), message(0, 8, 4)],
        [],
        [message(-1, -1, error=passing), message(1, 9, 5), message(2, 6, error=end)],
        [message(3, 1, None)],
    )
    monkeypatch.setattr(kafka_log, "Consumer", consumer)
    assert leader_epochs({}, "t", {0: 7, 1: 8, 2: 5, 3: 1}) == {0: 3}
    assert consumer.assigned == {0: 7, 1: 8, 2: 5, 3: 1}
    assert consumer.closed


def test_no_record_is_no_look() -> None:
    assert leader_epochs({}, "t", {}) == {}


def test_silent_and_refusing_brokers_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_log, "TIMEOUT", 0.0)
    monkeypatch.setattr(kafka_log, "Consumer", _Consumer([], []))
    with pytest.raises(SourceUnavailable, match=r"'t' gives no record of the partitions \[4\]"):
        leader_epochs({}, "t", {4: 1})
    refused = message(4, -1, error=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(kafka_log, "Consumer", _Consumer([refused]))
    with pytest.raises(SourceUnavailable, match=r"[Aa]uthorization"):
        leader_epochs({}, "t", {4: 1})
