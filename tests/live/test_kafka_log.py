"""Kafka as a log, without Spark: topics, whole records, brokers that are silent, options of the client."""

from __future__ import annotations

import pytest

from infra.kafka.broker import KafkaBroker
from strandline.jobs.ingest.logs.kafka_log import KafkaLog, client_options
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.errors import SourceUnavailable, TopicMissing
from strandline.jobs.model.settings import KafkaSettings, Settings
from strandline.jobs.serve.consistent_snapshot import Reach
from strandline.jobs.serve.errors import TooStale
from strandline.jobs.serve.watch import Topics
from strandline.state_store.layout import LakeLayout
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.kafka


def test_a_missing_topic_is_named_and_not_created(log: KafkaLog) -> None:
    assert not log.exists("nowhere")
    for ask in (lambda: log.end_offsets("nowhere"), lambda: log.produce("nowhere", [Record(None, b"", 0)])):
        with pytest.raises(TopicMissing, match="'nowhere'"):
            ask()
    assert "nowhere" not in log.topics()


def test_a_record_keeps_headers_key_and_time(log: KafkaLog) -> None:
    log.ensure_topic("whole", 2)
    log.ensure_topic("whole", 7)
    record = Record(b"\x00k", None, 1_700_000_000_123, (("h", b"\xff"), ("n", None)), partition=1)
    assert log.produce("whole", [record]) == [(1, 0)]
    (run,) = log.read("whole", 1, 0, 1)
    assert (run.keys, run.values, run.timestamps) == ([b"\x00k"], [None], [1_700_000_000_123])
    assert list(run.headers[0] or ()) == [("h", b"\xff"), ("n", None)]


def test_brokers_that_do_not_answer_are_an_error_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.jobs.ingest.logs.kafka_log.TIMEOUT", 1.0)
    with pytest.raises(SourceUnavailable) as caught:
        KafkaLog(KafkaSettings(bootstrap_servers="127.0.0.1:9")).end_offsets("t")
    assert caught.value.action == "retry"


def test_client_options_are_those_of_the_settings_only() -> None:
    """Options of the client can load code or send credentials elsewhere: only the named ones are ever passed."""
    full = KafkaSettings.model_validate(
        {
            "bootstrap_servers": "b:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "u",
            "sasl_password": "p",
            "ssl_ca_location": "/ca",
        }
    )
    options = client_options(full)
    assert options.pop("logger") is not None
    assert options == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "/ca",
        "client.id": "strandline",
    }
    with pytest.raises(ValueError, match="plugin"):
        KafkaSettings.model_validate({"bootstrap_servers": "b:1", "plugin.library.paths": "x.so"})


def test_a_topic_made_again_has_another_id(log: KafkaLog, kafka_broker: KafkaBroker) -> None:
    log.ensure_topic("again", 2)
    first = log.identity("again")
    assert first == log.identity("again")
    assert len(first.id) == 32
    assert set(first.leader_epochs) <= {0, 1}
    kafka_broker.admin.delete_topics(["again"])["again"].result(PATIENCE_SECONDS)
    wait_until(lambda: not log.exists("again"), "the topic is still there")
    log.ensure_topic("again", 2)
    assert log.identity("again").id not in ("", first.id)


def test_answers_of_a_topic_that_was_made_again_are_behind(
    kafka: Settings, log: KafkaLog, kafka_broker: KafkaBroker
) -> None:
    log.ensure_topic("anew", 1)
    log.produce("anew", [Record(None, b"1", 0)])
    reached = {"anew": Reach({0: 1}, frozenset([log.identity("anew").id]))}
    topics = Topics(kafka, LakeLayout(kafka.lake))
    try:
        topics.check(reached, 30)
        kafka_broker.admin.delete_topics(["anew"])["anew"].result(PATIENCE_SECONDS)
        wait_until(lambda: not log.exists("anew"), "the topic is still there")
        log.ensure_topic("anew", 1)
        log.produce("anew", [Record(None, b"2", 0)])
        topics.look(["anew"])
        with pytest.raises(TooStale, match="'anew' was deleted and made again"):
            topics.check(reached, 30)
        lag = topics.lag(reached)
        assert lag is not None
        assert lag.records == 1
    finally:
        topics.close()
