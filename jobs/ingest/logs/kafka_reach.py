"""The first contact with Kafka's brokers: a few seconds, and when it fails, the cause that the client only logs.

The client tries again until a request's time limit; the request then fails with "timed out", whatever the matter was.
What it met on the way, it tells its error callback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from strandline.jobs.model.errors import SourceDenied, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.model.errors import SourceError

# Seconds. A broker that is there answers in milliseconds, one across an ocean in a second; a person waits five.
CONTACT = 4.0
# Where by then no connection has failed either, a slow machine may still be at its answer: who is silent for so long
# is not there.
SILENCE = 20.0

# The client's own names of its codes.
_AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)  # noqa: SLF001
_TLS = (KafkaError._SSL,)  # noqa: SLF001
_NAME = (KafkaError._RESOLVE,)  # noqa: SLF001
_NO_KAFKA = (KafkaError._BAD_MSG,)  # noqa: SLF001

# Only what is critical: each failed try would be a line on the user's screen, besides the error that tells the cause.
_QUIET = {"log_level": 2}


def connect(options: Mapping[str, Any]) -> AdminClient:
    """A client that has had an answer from the brokers.

    Raises:
        SourceDenied: the brokers are there, and TLS or the authentication fails.
        SourceUnavailable: no broker answers: the name is unknown, the connection is refused, or nothing comes.
    """
    servers = str(options.get("bootstrap.servers"))
    met: list[KafkaError] = []
    try:
        client = AdminClient({**options, **_QUIET, "error_cb": met.append})  # type: ignore[dict-item]
    except KafkaException as error:
        raise SourceDenied(
            f"Kafka: the settings cannot be used: {error.args[0].str()}",
            where=servers,
            hint="correct the settings under [kafka]: see docs/settings.md",
        ) from error
    try:
        _met_within(client, met)
    except (KafkaException, TimeoutError) as error:
        client.poll(0)
        raise _cause(met, servers) from error
    return client


def _met_within(client: AdminClient, met: Sequence[KafkaError]) -> None:
    """Raise KafkaException or TimeoutError when no broker answers: after `CONTACT` where a connection has failed."""
    answer = client.describe_cluster(request_timeout=SILENCE)
    try:
        answer.result(CONTACT)
    except TimeoutError:
        client.poll(0)
        if met:
            raise
        answer.result(SILENCE)


def _cause(met: Sequence[KafkaError], servers: str) -> SourceError:
    """The error of a contact that failed, by what the client met: the most telling first."""
    text = {error.code(): error.str() for error in reversed(met)}  # of each code the first
    for code in (code for code in _AUTHENTICATION if code in text):
        return SourceDenied(
            f"Kafka: the brokers refuse this user: {text[code]}",
            where=servers,
            hint="check kafka.sasl_mechanism, kafka.sasl_username and kafka.sasl_password",
        )
    for code in (code for code in _TLS if code in text):
        return SourceDenied(
            f"Kafka: TLS fails: {text[code]}",
            where=servers,
            hint="check kafka.security_protocol (does this port speak TLS?) and kafka.ssl_ca_location",
        )
    for code in (code for code in _NAME if code in text):
        return SourceUnavailable(
            f"Kafka: a host name is unknown: {text[code]}",
            where=servers,
            hint="check the spelling in kafka.bootstrap_servers, and DNS",
        )
    for code in (code for code in _NO_KAFKA if code in text):
        return SourceUnavailable(
            f"Kafka: what answers does not speak Kafka: {text[code]}",
            where=servers,
            hint="check the port in kafka.bootstrap_servers, and whether it wants TLS: kafka.security_protocol",
        )
    refused = next((each for each in text.values() if "refused" in each.lower()), None)
    if refused is not None:
        return SourceUnavailable(
            f"Kafka: no broker listens there: {refused}",
            where=servers,
            hint="start the broker, or correct the port in kafka.bootstrap_servers",
        )
    first = next(iter(text.values()), f"no answer within {SILENCE:.0f} s")
    return SourceUnavailable(
        f"Kafka: {first}",
        where=servers,
        hint="check kafka.bootstrap_servers, that the brokers run, and that no firewall is in between",
    )
