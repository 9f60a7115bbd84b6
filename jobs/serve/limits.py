"""What one query may take: time, memory, and the rows and bytes of its answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.jobs.serve.errors import TimeLimit, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


@dataclass(frozen=True)
class Limits:
    """The most that a query may take; None: as much as there is, as on the command line.

    Attributes:
        seconds: from its beginning to the last row of its answer.
        memory_bytes: of the rows that it reads, and again of what DuckDB computes with.
        rows, answer_bytes: of its answer, in Arrow form.
    """

    seconds: float | None = None
    memory_bytes: int | None = None
    rows: int | None = None
    answer_bytes: int | None = None


NO_LIMITS = Limits()


@dataclass
class Spent:
    """What a query has taken so far. One thread works with it."""

    limits: Limits
    begun: float = field(default_factory=time.monotonic)
    read_bytes: int = 0

    @property
    def seconds_left(self) -> float | None:
        """The time that is left; None without a limit."""
        if self.limits.seconds is None:
            return None
        return self.limits.seconds - (time.monotonic() - self.begun)

    def check_time(self) -> None:
        """Raise TimeLimit when the time is over."""
        left = self.seconds_left
        if left is not None and left <= 0:
            raise TimeLimit(
                f"the query was stopped after {self.limits.seconds:g} s",
                hint="ask for less, or define a view that does the work",
            )

    def reading(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches as they are read from a table.

        Raises:
            TimeLimit: the time is over.
            TooLarge: they take more memory than a query may.
        """
        for batch in batches:
            self.check_time()
            self.read_bytes += batch.nbytes
            if self.limits.memory_bytes is not None and self.read_bytes > self.limits.memory_bytes:
                raise TooLarge(
                    f"the query reads more than {self.limits.memory_bytes:,} bytes",
                    hint="name fewer columns, give keys in WHERE, or define a view that does the work",
                )
            yield batch

    def answering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of the answer.

        Raises:
            TimeLimit: the time is over.
            TooLarge: there are more rows or bytes than an answer may have.
        """
        rows = size = 0
        for batch in batches:
            self.check_time()
            rows, size = rows + batch.num_rows, size + batch.nbytes
            for found, most, unit in ((rows, self.limits.rows, "rows"), (size, self.limits.answer_bytes, "bytes")):
                if most is not None and found > most:
                    raise TooLarge(f"the answer has more than {most:,} {unit}", hint="add a LIMIT, or ask for less")
            yield batch
