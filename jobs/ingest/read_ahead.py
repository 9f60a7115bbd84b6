"""The ranges of a backlog, read in threads: the next ones while the driver commits those before.

    threads   part 1 ──> part 2 is read and decoded ──> part 3 …
    driver           part 1 is written, committed, its views refreshed ──> part 2 …

The client, Arrow and DuckDB leave Python's lock, so the two go side by side. What is read ahead is in memory only, and
a range that was decided before: until the driver commits it nothing says that it was read, and a run that ends before
that has read it in vain.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.ingest.source import TopicRange, TopicsReader

_READERS: Final = 8
"""Ranges that are read side by side: each waits for its broker most of the time."""

_Read = list["Future[list[pa.RecordBatch]]"]


class ReadAhead:
    """Reads ranges of topics, of each partition one after the other. For one thread.

    Args:
        log: the topics; closed with this.
    """

    def __init__(self, reader: TopicsReader, log: Log) -> None:
        self._reader, self._log = reader, log
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="read")
        self._stop = Event()
        self._begun: tuple[Sequence[TopicRange], _Read] | None = None

    def begin(self, ranges: Sequence[TopicRange]) -> None:
        """Begin to read what will be asked for next."""
        self._begun = ranges, self._read(ranges)

    def read(self, ranges: Sequence[TopicRange]) -> list[pa.RecordBatch]:
        """The rows of some ranges (see `jobs.ingest.decode`), which may be begun.

        Raises:
            StrandlineError: as of `TopicsReader.read`.
        """
        if self._begun is not None and [each.value for each in self._begun[0]] != [each.value for each in ranges]:
            self.drop()
        _, reading = self._begun or (ranges, self._read(ranges))
        self._begun = None
        return [batch for each in reading for batch in each.result()]

    def drop(self) -> None:
        """Forget what is begun."""
        if self._begun is not None:
            self._stop.set()
            for each in self._begun[1]:
                each.cancel() or each.exception()
            self._stop.clear()
            self._begun = None

    def close(self) -> None:
        """End what is begun, and give back what reading holds."""
        self.drop()
        self._threads.shutdown()
        self._log.close()

    def _read(self, ranges: Sequence[TopicRange]) -> _Read:
        return [self._threads.submit(self._rows, each) for each in ranges]

    def _rows(self, wanted: TopicRange) -> list[pa.RecordBatch]:
        rows: list[pa.RecordBatch] = []
        for batch in self._reader.read(wanted, self._log):
            if self._stop.is_set():
                break
            rows.append(batch)
        return rows
