"""Kafka's client as it is used here: the first contact with the brokers, and the reader of an exact range of offsets.

The first contact with Kafka's brokers: a few seconds, and when it fails, the cause that the client only logs.

The client tries again until a request's time limit; the request then fails with "timed out", whatever the matter was.
What it met on the way, it tells its error callback.

The reader of an exact range of offsets from Kafka, with transactions: a consumer assigned to one partition.

It is in no group and commits no offsets: progress is recorded in the lake's commits only. Not every offset of a range
holds a record: transaction markers and aborted records leave gaps, also at its end. So the end of a range is recognised
by the consumer's position, which the partition's end events carry, not by its last record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from strandline.jobs.ingest.logs.log import CHUNK, CHUNK_BYTES, Records
from strandline.jobs.model.errors import OffsetsVanished, SourceDenied, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from strandline.jobs.model.errors import SourceError


# Seconds. A broker that is there answers in milliseconds, one across an ocean in a second; a person waits five.
_CONTACT = 4.0
# Where by then no connection has failed either, a slow machine may still be at its answer: who is silent for so long
# is not there.
_SILENCE = 20.0

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
    """Raise KafkaException or TimeoutError when no broker answers: after `_CONTACT` where a connection has failed."""
    answer = client.describe_cluster(request_timeout=_SILENCE)
    try:
        answer.result(_CONTACT)
    except TimeoutError:
        client.poll(0)
        if met:
            raise
        answer.result(_SILENCE)


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
    first = next(iter(text.values()), f"no answer within {_SILENCE:.0f} s")
    return SourceUnavailable(
        f"Kafka: {first}",
        where=servers,
        hint="check kafka.bootstrap_servers, that the brokers run, and that no firewall is in between",
    )


# Seconds. An answer that takes longer comes from a broker in trouble: the election of a leader takes less.
TIMEOUT = 30.0

CONSUMER: dict[str, Any] = {
    # Required by the client; no group is ever joined and nothing is committed to it.
    "group.id": "strandline-unused",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    # A range that is not there must be an error, never a jump to another offset.
    "auto.offset.reset": "error",
    # Large fetches: a range is read from one end to the other. The queue holds what two fetches bring.
    "fetch.min.bytes": 1,
    # How long the broker holds a fetch at the partition's end: it delays the end event, and so a range's end, by this.
    "fetch.wait.max.ms": 20,
    "fetch.max.bytes": 16 << 20,
    "max.partition.fetch.bytes": 8 << 20,
    "queued.max.messages.kbytes": 32 << 10,
    "queued.min.messages": 100_000,
    # How long the client stops fetching when its queue is full. Its default, a second, is what a bare consume loop
    # mostly waits for: 155,000 small records a second with it, 800,000 without.
    "fetch.queue.backoff.ms": 5,
    # Checked by the client, not trusted to the wire.
    "check.crcs": True,
}
# The records of the first run, of which nothing is known: with the brokers' default limit of 1 MB a record, 64 MB.
_FIRST = 64
END = KafkaError._PARTITION_EOF  # noqa: SLF001  (the client names its own codes so)
_VANISHED = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001
# The client recovers from these by itself; if it does not, the time limit ends the read.
PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001


def read(
    options: Mapping[str, Any], topic: str, partition: int, start: int, end: int
) -> Generator[Records, None, None]:
    """The committed records with start <= offset < end; arguments, runs and errors as of `PartitionRead`."""
    if start >= end:
        return
    reading = PartitionRead(options, topic, partition, start)
    try:
        yield from reading.upto(end)
    finally:
        reading.close()


class PartitionRead:
    """A consumer assigned to one partition: what is read next begins where what was read before ends.

    Runs have at most `CHUNK` records, and are bounded to about `CHUNK_BYTES`: each asks for as many records as would
    fit if they were as large as those of the one before. Where records grow suddenly, the client's queue bounds what
    comes with one call.

    Args:
        options: how to reach the brokers; also options of the consumer that differ from those here.
        start: the first offset.

    Attributes:
        at: where what is read next begins.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, partition: int, start: int) -> None:
        self.at = start
        self._topic, self._partition = topic, partition
        self._reached = start
        self._wanted = _FIRST
        self._beyond: list[Any] = []
        """Messages that came already, of offsets after what was asked for."""
        self._consumer = Consumer({**CONSUMER, **options})
        try:
            self._consumer.assign([TopicPartition(topic, partition, start)])
        except BaseException:
            self.close()
            raise

    def upto(self, end: int) -> Iterator[Records]:
        """The committed records from `at` on, up to `end`.

        Raises:
            OffsetsVanished: retention removed records of the range.
            SourceUnavailable: the brokers refuse, or nothing has come for `TIMEOUT`.
        """
        kept, self._beyond = self._beyond, []
        if len(records := self._below(kept, end)):
            yield records
        last_answer = time.monotonic()
        while self._reached < end:
            # The call waits for all the messages it asks for. Offsets without a record never come, so it waits briefly.
            messages = self._consumer.consume(num_messages=min(self._wanted, end - self._reached), timeout=0.05)
            good = [message for message in messages if message.error() is None]
            if len(good) != len(messages):
                self._reached = _position_after(messages, self._topic, self._partition, self._reached)
            if good:
                self._reached = max(self._reached, good[-1].offset() + 1)  # type: ignore[operator]
            if len(records := self._below(good, end)):
                self._wanted = _fitting(bytes_of(records), len(records))
                yield records
            if messages:
                last_answer = time.monotonic()
            elif time.monotonic() - last_answer > TIMEOUT:
                raise unavailable(
                    f"topic '{self._topic}', partition {self._partition} gives nothing at offset {self._reached}"
                )
        self.at = end

    def has_more(self) -> bool:
        """True if the partition had records after what was read, when the broker answered last."""
        known = self._consumer.get_watermark_offsets(TopicPartition(self._topic, self._partition), cached=True)
        return known is not None and known[1] > self._reached

    def close(self) -> None:
        self._consumer.close()

    def _below(self, messages: list[Any], end: int) -> Records:
        """The records of the messages below `end`; the others are kept."""
        if messages and messages[-1].offset() >= end:
            self._beyond += [message for message in messages if message.offset() >= end]
            messages = [message for message in messages if message.offset() < end]
        return _columns(self._partition, messages)


def bytes_of(records: Records) -> int:
    """The bytes of keys and values; headers are small beside them, or rare."""
    return sum(map(len, filter(None, records.keys))) + sum(map(len, filter(None, records.values)))


def _fitting(size: int, count: int) -> int:
    """How many records fit into a run if they are as large as these: `count` records of `size` bytes together."""
    return max(1, min(CHUNK, CHUNK_BYTES * count // max(1, size)))


def _position_after(messages: Sequence[Any], topic: str, partition: int, reached: int) -> int:
    """The consumer's position by the partition's end events, at least `reached`; other events are errors."""
    for error, message in ((message.error(), message) for message in messages):
        if error is None:
            continue
        if error.code() == END:
            reached = max(reached, message.offset())
        elif error.code() in _VANISHED:
            raise OffsetsVanished(
                f"topic '{topic}', partition {partition}: records from {reached} on were removed unread",
                hint="raise the topic's retention; to go on without them, drop the source and create it again",
            )
        elif not error.retriable() and error.code() not in PASSING:
            raise unavailable(str(KafkaException(error)))
    return reached


def unavailable(what: str) -> SourceUnavailable:
    """The error of brokers that refuse, or are silent."""
    return SourceUnavailable(f"Kafka: {what}", hint="check kafka.bootstrap_servers and that the brokers run")


def _columns(partition: int, messages: Sequence[Any]) -> Records:
    """The messages column by column: one list comprehension each is what Python does fastest."""
    return Records(
        partition,
        _offsets(messages),
        [message.timestamp()[1] for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.headers() for message in messages],
        messages[-1].leader_epoch() if messages else None,
    )


def _offsets(messages: Sequence[Any]) -> list[int]:
    """They grow, so between the first and the last there is mostly no choice."""
    if not messages:
        return []
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first + 1 == len(messages):
        return list(range(first, last + 1))
    return [message.offset() for message in messages]
