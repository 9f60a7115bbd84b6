"""Brokers that cannot be reached: said within five seconds, with the cause."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest

from strandline.jobs.ingest.logs.kafka_client import connect
from strandline.jobs.ingest.logs.kafka_log import client_options
from strandline.jobs.model.errors import SourceDenied, SourceError, SourceUnavailable
from strandline.jobs.model.settings import KafkaSettings


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("strandline.kafka").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("strandline.kafka").setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def web_server() -> Iterator[str]:
    """An address where something answers that is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_answer, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _answer(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def refusal(settings: KafkaSettings) -> SourceError:
    with pytest.raises(SourceError) as refused:
        connect(client_options(settings))
    assert refused.value.where == settings.bootstrap_servers
    return refused.value


def test_the_cause_of_no_contact_is_told(web_server: str) -> None:
    unknown = refusal(KafkaSettings(bootstrap_servers="no-such-host.invalid:9092"))
    assert isinstance(unknown, SourceUnavailable)
    assert "host name is unknown" in unknown.message
    refused = refusal(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    assert isinstance(refused, SourceUnavailable)
    assert "no broker listens there" in refused.message


def test_a_port_without_tls_is_told_from_one_without_kafka(web_server: str) -> None:
    tls = refusal(KafkaSettings(bootstrap_servers=web_server, security_protocol="SSL"))
    assert isinstance(tls, SourceDenied)
    assert "kafka.security_protocol" in str(tls.hint)
    other = refusal(KafkaSettings(bootstrap_servers=web_server))
    assert "does not speak Kafka" in other.message


def test_settings_that_the_client_refuses_are_told_at_once() -> None:
    settings = KafkaSettings(bootstrap_servers="a:1", security_protocol="SSL", ssl_ca_location="/no/such/file")
    assert "ssl.ca.location" in refusal(settings).message
