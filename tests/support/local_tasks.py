"""Spark's tasks in this process, for tests in their thousands: what a session and its RDDs do with them, and no more.

What a task is given, and what it gives, is pickled on its way, as between the driver and a worker.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle

from strandline.jobs.ivm.refresh.context import SparkSessions


class LocalTasks:
    """A session of so many slots. One task runs after the other.

    Attributes:
        shared: the refreshes that tasks have shared.
    """

    def __init__(self, slots: int = 3) -> None:
        self.sparkContext = self
        self.defaultParallelism = slots
        self._jsc = self
        self.shared = 0

    @property
    def sessions(self) -> SparkSessions:
        """Sessions that are this one."""
        return SparkSessions(lambda: self)  # type: ignore[arg-type, return-value]

    def newSession(self) -> LocalTasks:
        return self

    def sc(self) -> LocalTasks:
        return self

    def statusTracker(self) -> LocalTasks:
        return self

    def getExecutorInfos(self) -> list[str]:
        return ["driver", *(f"executor {number}" for number in range(self.defaultParallelism))]

    def parallelize(self, items: Iterable[Any], slices: int) -> _Rows:
        dealt: list[list[Any]] = [[] for _ in range(slices)]
        for number, each in enumerate(items):
            dealt[number % slices].append(each)
        self.shared += 1
        return _Rows(dealt)


class _Rows:
    """An RDD: its items by partition."""

    def __init__(self, partitions: list[list[Any]]) -> None:
        self._partitions = partitions

    def map(self, function: Callable[[Any], Any]) -> _Rows:
        return self.flatMap(lambda item: [function(item)])

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> _Rows:
        def of_partition(_: int, items: Iterator[Any]) -> Iterator[Any]:
            for item in items:
                yield from function(item)

        return self.mapPartitionsWithIndex(of_partition)

    def partitionBy(self, partitions: int, function: Callable[[Any], int]) -> _Rows:
        dealt: list[list[Any]] = [[] for _ in range(partitions)]
        for items in self._partitions:
            for key, value in items:
                dealt[function(key) % partitions].append((key, value))
        return _Rows(dealt)

    def mapPartitionsWithIndex(self, function: Callable[[int, Iterator[Any]], Iterable[Any]]) -> _Rows:
        sent = pickle.loads(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
        return _Rows(
            [pickle.loads(pickle.dumps(list(sent(at, iter(items))))) for at, items in enumerate(self._partitions)]
        )

    def collect(self) -> list[Any]:
        return [item for items in self._partitions for item in items]
