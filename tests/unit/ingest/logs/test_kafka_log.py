"""Kafka's answers as the log tells them on, with a client that gives prepared ones. See tests/live for real brokers."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from strandline.jobs.ingest.logs import kafka_client
from strandline.jobs.ingest.logs.kafka_log import KafkaLog
from strandline.jobs.ingest.logs.log import CHUNK, TopicIdentity
from strandline.jobs.ingest.offsets import cut_bytes
from strandline.jobs.model.errors import OffsetsVanished, TopicMissing
from strandline.jobs.model.settings import KafkaSettings


def _future(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


class _Admin:
    """Answers for one topic of two partitions; the second one's leader has no term."""

    def __init__(self, topic_id: Uuid | None, error: int | None = None) -> None:
        self._topic_id = topic_id
        self._error = error

    def describe_topics(self, _topics: Any, **_: Any) -> dict[str, Future[Any]]:
        if self._error is not None:
            return {"t": _future(KafkaException(KafkaError(self._error)))}
        partitions = [SimpleNamespace(id=number) for number in range(2)]
        return {"t": _future(SimpleNamespace(topic_id=self._topic_id, partitions=partitions))}

    def list_offsets(self, wanted: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        terms = {0: 7, 1: None}
        return {p: _future(SimpleNamespace(offset=5, leader_epoch=terms[p.partition])) for p in wanted}


def _log(admin: _Admin) -> KafkaLog:
    log = KafkaLog(KafkaSettings(bootstrap_servers="nowhere:1"))
    log._client = admin  # type: ignore[assignment]
    return log


def test_a_topics_identity_is_the_brokers_id_and_the_leaders_terms() -> None:
    found = _log(_Admin(Uuid(1, -2))).identity("t")
    assert found == TopicIdentity("0000000000000001fffffffffffffffe", {0: 7})
    assert _log(_Admin(Uuid(1, -2))).end_offsets("t") == {0: 5, 1: 5}


@pytest.mark.parametrize("unknown", [None, Uuid(0, 0)])
def test_brokers_that_know_no_ids_give_none(unknown: Uuid | None) -> None:
    assert _log(_Admin(unknown)).identity("t").id == ""


def test_a_missing_topic_has_no_identity() -> None:
    with pytest.raises(TopicMissing, match="'t'"):
        _log(_Admin(None, KafkaError.UNKNOWN_TOPIC_OR_PART)).identity("t")


class _Consumer:
    """Retention removed what it was asked for: the broker answers that the offset is out of range."""

    def __init__(self, options: dict[str, Any]) -> None:
        assert options["auto.offset.reset"] == "error", "a jump to the first offset kept would skip records"

    def assign(self, _partitions: Any) -> None: ...

    def consume(self, **_: Any) -> list[Any]:
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
        return [SimpleNamespace(error=lambda: error)]

    def close(self) -> None: ...


def test_a_range_whose_first_records_are_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never reads on from the first offset that is kept."""
    monkeypatch.setattr(kafka_client, "Consumer", _Consumer)
    with pytest.raises(OffsetsVanished, match="records from 3 on were removed unread"):
        list(kafka_client.read({}, "t", 0, 3, 9))


class _Messages:
    """A consumer of endless records of `size` bytes; notes how many each call asks for."""

    def __init__(self, size: int) -> None:
        self.asked: list[int] = []
        self.at = 0
        self._size = size

    def __call__(self, _options: dict[str, Any]) -> _Messages:
        return self

    def assign(self, partitions: Any) -> None:
        self.at = partitions[0].offset

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        self.asked.append(num_messages)
        self.at += num_messages
        return [self._message(offset) for offset in range(self.at - num_messages, self.at)]

    def close(self) -> None: ...

    def _message(self, offset: int) -> Any:
        return SimpleNamespace(
            error=lambda: None,
            offset=lambda: offset,
            timestamp=lambda: (1, 1),
            key=lambda: None,
            value=lambda: bytes(self._size),
            headers=lambda: None,
            leader_epoch=lambda: 5,
        )


def test_runs_of_large_records_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = _Messages(size=1 << 20)
    monkeypatch.setattr(kafka_client, "Consumer", messages)
    runs = list(kafka_client.read({}, "t", 0, 0, 100))
    assert [offset for run in runs for offset in run.offsets] == list(range(100))
    assert [len(run) for run in runs[1:]] == [8, 8, 8, 8, 4]


def test_runs_of_small_records_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = _Messages(size=10)
    monkeypatch.setattr(kafka_client, "Consumer", messages)
    assert [len(run) for run in kafka_client.read({}, "t", 0, 0, 3 * CHUNK)][1:3] == [CHUNK, CHUNK]


def test_a_range_is_sized_by_a_look_at_its_first_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look serves the partitions of a topic for some seconds."""
    messages = _Messages(size=700)
    monkeypatch.setattr(kafka_client, "Consumer", messages)
    log = _log(_Admin(None))
    assert log.size("t", 0, 50, 1050) == 700_000
    assert log.size("t", 1, 0, 10) == 7000
    assert len(messages.asked) == 1


def test_short_ranges_of_many_topics_are_not_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is worth a look of its own; together they may be more than a process can hold."""
    messages = _Messages(size=1 << 20)
    monkeypatch.setattr(kafka_client, "Consumer", messages)
    log = _log(_Admin(None))
    sizes = [log.size(f"t{number}", 0, 50, 60) for number in range(1000)]
    assert sizes == [10 << 20] * 1000
    assert messages.asked == [10], "one look, at records that there are"
    end = {f"t{number}": {"0": 60} for number in range(1000)}
    reached = cut_bytes({topic: {"0": 50} for topic in end}, end, 16 << 20, log)
    assert sum(reached[topic]["0"] - 50 for topic in end) == 1000, "a record of each, so that each advances"


class _Consumers:
    """Makes consumers of endless records; notes which were made, and which are closed."""

    def __init__(self) -> None:
        self.made: list[_Messages] = []
        self.closed: list[_Messages] = []

    def __call__(self, options: dict[str, Any]) -> _Messages:
        consumer = _Messages(size=10)
        consumer.close = lambda: self.closed.append(consumer)  # type: ignore[method-assign]
        consumer.get_watermark_offsets = lambda *_, **__: (0, 1_000)  # type: ignore[attr-defined]
        self.made.append(consumer)
        return consumer


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> _Consumers:
    made = _Consumers()
    monkeypatch.setattr(kafka_client, "Consumer", made)
    return made


def _offsets(log: KafkaLog, start: int, end: int) -> list[int]:
    return [offset for run in log.read("t", 0, start, end) for offset in run.offsets]


def test_a_consumer_reads_on_where_ranges_follow_each_other(consumers: _Consumers) -> None:
    log = KafkaLog(KafkaSettings(bootstrap_servers="nowhere:1"), going_on=True)
    assert _offsets(log, 0, 100) == list(range(100))
    assert _offsets(log, 100, 250) == list(range(100, 250))
    assert (len(consumers.made), consumers.closed) == (1, [])
    assert _offsets(log, 300, 310) == list(range(300, 310)), "some were left out"
    assert consumers.closed == consumers.made[:1]
    assert _offsets(log, 310, 1_000) == list(range(310, 1_000))
    assert consumers.closed == consumers.made, "there is no more, as far as is known"
    assert len(consumers.made) == 2


@pytest.mark.parametrize("going_on", [False, True])
def test_no_consumer_stays_open(consumers: _Consumers, going_on: bool) -> None:
    """Not two of one partition, which sources of the same topic read side by side, nor one that is given up."""
    log = KafkaLog(KafkaSettings(bootstrap_servers="nowhere:1"), going_on=going_on)
    side_by_side = [log.read("t", 0, 0, 100) for _ in range(2)]
    for each in side_by_side:
        next(iter(each))
    for each in side_by_side:
        assert sum(map(len, each)) == 100 - 64
    given_up = log.read("t", 1, 0, 100)
    next(iter(given_up))
    del given_up
    assert len(consumers.closed) == (2 if going_on else 3)
    log.close()
    assert len(consumers.closed) == len(consumers.made) == 3


def test_a_read_that_fails_leaves_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "Consumer", _Consumer)
    log = KafkaLog(KafkaSettings(bootstrap_servers="nowhere:1"), going_on=True)
    with pytest.raises(OffsetsVanished):
        list(log.read("t", 0, 3, 9))
    assert log._kept == {}
