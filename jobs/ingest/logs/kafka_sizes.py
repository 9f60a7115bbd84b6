"""The size of Kafka's records, by a look at a few of them: brokers do not tell how many bytes a range takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest.logs import kafka_range

if TYPE_CHECKING:
    from collections.abc import Mapping

# A look costs a fetch and the start of a consumer, about 50 ms, so not at every micro-batch. Records seldom change
# their size within seconds.
_SECONDS = 10.0
_RECORDS = 100
_CONSUMER: dict[str, Any] = {"max.partition.fetch.bytes": 1 << 20, "queued.max.messages.kbytes": 1 << 10}


@dataclass(frozen=True)
class _Average:
    """What a record of a topic takes in bytes, and when that was seen (monotonic seconds)."""

    bytes: int
    at: float


class RecordSizes:
    """The average size of the records of each topic, remembered for some seconds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = {**options, **_CONSUMER}
        self._known: dict[str, _Average] = {}

    def estimate(self, topic: str, partition: int, start: int, end: int) -> int:
        """The number of offsets times the average of the records seen last, which were the first of some range.

        A range of few records is not worth a look of its own, unless it is the first of all. In a topic that nobody has
        looked at, records count as large as the largest that are known: many topics of a few records each are much
        together.

        Raises:
            OffsetsVanished: retention removed the records at `start`.
            SourceUnavailable: the brokers do not answer.
        """
        count = end - start
        known = self._known.get(topic)
        old = known is None or time.monotonic() - known.at > _SECONDS
        if not self._known or (count > _RECORDS and old):
            known = self._known[topic] = self._look(topic, partition, start, min(end, start + _RECORDS))
        return count * (known.bytes if known is not None else max(each.bytes for each in self._known.values()))

    def _look(self, topic: str, partition: int, start: int, end: int) -> _Average:
        runs = kafka_range.read(self._options, topic, partition, start, end)
        try:
            first = next(runs, None)
        finally:
            runs.close()
        size = kafka_range.bytes_of(first) // len(first) if first is not None else 0
        return _Average(size, time.monotonic())
