"""The range row: the last row of each range of records, in which its reader tells the driver what the range held.

    reader   records ──> Tally ──> range row ──────> Range   driver

It lets the driver commit without counting rows, past offsets that hold no record (transaction markers), and without
conditions on rows that meet them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEVER: Final = np.iinfo(np.int64).min
"""The running time before the first good record, in microseconds."""

RANGE_TYPE: Final = (
    "STRUCT<next: BIGINT, first: BIGINT, good: BIGINT, broken: BIGINT, "
    "first_time: TIMESTAMP, running_time: TIMESTAMP, leader_epoch: INT>"
)


@dataclass
class RangeTotals:
    """Totals of a range so far.

    Attributes:
        first: the offset of the first record.
        good, broken: the offsets of the last good record and of the last broken one.
        first_time, running_time: the running time of the first good record and of the last, in microseconds.
        leader_epoch: the term of the leader that took in the last record.
    """

    first: int | None = None
    good: int | None = None
    broken: int | None = None
    first_time: int = NEVER
    running_time: int = NEVER
    leader_epoch: int | None = None

    def add(self, offsets: np.ndarray[Any, Any], running: np.ndarray[Any, Any], broken: np.ndarray[Any, Any]) -> None:
        """Count some more records, in offset order; arrays of one length."""
        if not len(offsets):
            return
        self.first = int(offsets[0]) if self.first is None else self.first
        self.running_time = int(running[-1])
        if not broken.all():
            self.first_time = int(running[~broken][0]) if self.good is None else self.first_time
            self.good = int(offsets[~broken][-1])
        if broken.any():
            self.broken = int(offsets[broken][-1])

    def range_row(self, following: int) -> dict[str, int | None]:
        """The value of `_range` when the next range begins at `following`."""
        times = {"first_time": self.first_time, "running_time": self.running_time}
        return {
            "next": following,
            "first": self.first,
            "good": self.good,
            "broken": self.broken,
            **{name: None if time == NEVER else time for name, time in times.items()},
            "leader_epoch": self.leader_epoch,
        }


@dataclass(frozen=True)
class Range:
    """A range row as the driver has it; attributes as of `RangeTotals`. Times in microseconds; None: there is none."""

    partition: str
    next: int
    good: int | None
    broken: int | None
    running_time: int | None
    leader_epoch: int | None = None
    first: int | None = None
    first_time: int | None = None

    def begins_before(self, offset: int) -> bool:
        """True if it holds records below the offset."""
        return self.first is not None and self.first < offset

    def is_late(self, stream_time: int) -> bool:
        """True if a good record's running time may be below the stream time (microseconds)."""
        return self.good is not None and (self.first_time is None or self.first_time < stream_time)


def ranges_of(micro_batch: DataFrame) -> dict[str, list[Range]]:
    """{source: its ranges}. The Spark job that reads and decodes the topics; later jobs find the rows in memory."""
    from pyspark.sql import functions as f

    rows = micro_batch.where("_range IS NOT NULL").select(
        "_source",
        "_partition",
        "_range.next",
        "_range.good",
        "_range.broken",
        f.unix_micros("_range.running_time").alias("running_time"),
        "_range.leader_epoch",
        "_range.first",
        f.unix_micros("_range.first_time").alias("first_time"),
    )
    found: dict[str, list[Range]] = {}
    for name, partition, *rest in rows.collect():
        found.setdefault(name, []).append(Range(str(partition), *rest))
    return found
