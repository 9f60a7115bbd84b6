"""The micro-batches of a run while Spark's query starts, which takes 20 s with its JVM: the driver takes in what comes.

    a thread   session ── query ── its planner, its first micro-batch ──> the query goes on
    driver     micro-batch ── micro-batch ── … ───┘

So a stream that was killed is fresh again when its process is there, not when its JVM is, and a drain of millions of
events begins with the first. What is not small is taken in part by part, as below. The query
begins where the logs ended when the session was there; what the driver took in since is left out of its first
micro-batch, as after any repetition (see `jobs.ingest.event_logs`).

A backlog, which is not small, is taken in part by part, each of which is written while the one before it is committed.

    threads   part 1: read, decoded, in its files ──> part 2 ──> part 3 …
    driver                                            part 1 is committed, its views refreshed ──> part 2 …

What a thread does of a part is what a task of Spark's does (see `in_tasks`). The bounds of a part are decided before it
is read, and where the event logs will stand then follows from what the parts before it held. If they stand elsewhere,
the part is read again: nothing of it counts, or is named by anything, until the driver commits it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql.streaming.datasource import ReadAllAvailable

from strandline.jobs.ingest.in_tasks import TaskIntake, write_range
from strandline.jobs.ingest.offsets import cut, cut_bytes
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.settings import local_cores
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.ingest.event_logs import Ingested, Target
    from strandline.jobs.ingest.in_driver import Bounds, SmallBatches
    from strandline.jobs.ingest.in_tasks import RangeDone, RangeTask
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.ingest.offsets import Offsets


_LOOKS_SECONDS: Final = 0.2
"""Between two looks whether what is started is there, where the driver has nothing to do meanwhile."""

Started = TypeVar("Started")
Ingest = Callable[["Sequence[Target]"], "list[Ingested]"]
"""Appends the records of a micro-batch to the event logs; the commits made."""


class DriverClock:
    """The clock of micro-batches that Spark's query has no part in.

    Args:
        micro_batch: makes a micro-batch of the records that its argument takes in.
        seconds: the least distance of two.
    """

    def __init__(self, small: SmallBatches, micro_batch: Callable[[Ingest], None], seconds: float, stop: Event) -> None:
        self._small, self._micro_batch, self._seconds, self._stop = small, micro_batch, seconds, stop
        self._backlog = Backlog(small)
        self._at = small.start

    def close(self) -> None:
        """Give back what taking in parts holds."""
        self._backlog.close()

    def tick(self, *, in_parts: bool = False) -> bool:
        """A micro-batch of what has come, after a moment when nothing has; False when Spark must take it in.

        Args:
            in_parts: of what is not small, a part.
        """
        taking: Backlog | SmallBatches = self._backlog if in_parts else self._small
        bounds = taking.waiting(self._at)
        if bounds is None:
            return False
        start, self._at = bounds
        if start != self._at:
            self._micro_batch(partial(taking.ingest, bounds))
            self._stop.wait(self._seconds)
        return True

    def run_out(self, broken_off: Callable[[], bool], *, in_parts: bool = False) -> bool:
        """Tick until nothing waits, the run is to stop, or it is broken off; False when Spark must take in the rest."""
        while not (self._stop.is_set() or broken_off()):
            before = self._at
            if not self.tick(in_parts=in_parts):
                return False
            if self._at == before:
                return True
        return True

    def run_out_until(self, starts: Callable[[], object], broken_off: Callable[[], bool]) -> bool:
        """Tick in parts until nothing waits, and start something in a thread meanwhile if that takes long; False when
        that is there first.

        Raises:
            Whatever it raises, while something waits.
        """
        if self._backlog.is_soon_done(self._at):
            return self.run_out(broken_off, in_parts=True)
        started = _in_a_thread(starts)
        while not (self._stop.is_set() or broken_off()):
            before = self._at
            if started.done() and started.exception() is None:
                return False
            if started.done() and self._backlog.waiting(before) != (before, before):
                started.result()
            if not self.tick(in_parts=True):
                started.result()
                return False
            if self._at == before:
                return True
        return False

    def run_until(self, starts: Callable[[], Started], at_work: Callable[[Started], bool]) -> Started | None:
        """Start something in a thread, and tick until that is at work.

        Returns:
            What was started; None when the run is to stop, which does not wait for it.

        Raises:
            Whatever either of the two does.
        """
        started = _in_a_thread(starts)
        while not self._stop.is_set() and not (started.done() and _over(started, at_work)):
            if not self.tick(in_parts=True):
                break
        while not (started.done() or self._stop.wait(_LOOKS_SECONDS)):
            pass
        return started.result() if started.done() else None


def _in_a_thread(starts: Callable[[], Started]) -> Future[Started]:
    """What comes of it. The thread is a daemon: a process that ends does not wait for a JVM, which ends with it."""
    future: Future[Started] = Future()

    def work() -> None:
        try:
            future.set_result(starts())
        except BaseException as error:  # whoever asks for the result gets it
            future.set_exception(error)

    Thread(target=work, name="start", daemon=True).start()
    return future


def _over(started: Future[Started], at_work: Callable[[Started], bool]) -> bool:
    """True if it is at work, or has failed."""
    return started.exception() is not None or at_work(started.result())


_FIRST_ROWS: Final = 5
"""Micro-batches that are small in the first part."""
_GROWTH: Final = 4
"""How many times as large each part is as the one before, up to the limits of a micro-batch: the first rows are there
soon, and five million records take seven epochs, not fifty, each of which costs as much as to read a hundred thousand
records."""
_FIRST_BYTES: Final = 16 << 20
_MOST_BYTES: Final = 64 << 20
"""Of the records of a part."""
_ROWS_ALONE: Final = 250
_BYTES_ALONE: Final = 512 << 20
"""Micro-batches that are small, and bytes, that the driver has taken in before a session would: a JVM and Spark's first
query take some nine seconds, in which it takes in as much (docs/design/0052)."""
_CORES_WORTH_TASKS: Final = 3
"""Cores from which on tasks take in more than the driver: each of them takes in less than the half of what it does."""
_WRITERS: Final = 8
"""Ranges that are read and written side by side: each waits for its broker some of the time."""


class Backlog:
    """The parts of what waits. For one thread.

    Args:
        small: of the same run.
    """

    def __init__(self, small: SmallBatches) -> None:
        self._small = small
        self._reading = small.reading
        self._duckdb_engine = small.duckdb_engine
        self._rows, self._bytes = small.reading.settings.ingest.driver_rows * _FIRST_ROWS, _FIRST_BYTES
        self._ahead: _WriteAhead | None = None
        self._next: Bounds | None = None
        """Of the part that is begun."""

    def is_soon_done(self, start: Offsets) -> bool:
        """True if the driver has taken in all that waits before tasks would have, with their session."""
        cores = local_cores(self._reading.settings.spark.master)
        if cores is not None and cores < _CORES_WORTH_TASKS:
            return True
        end = self._ends(start)
        most = self._reading.settings.ingest.driver_rows * _ROWS_ALONE
        log = self._small.log
        return cut(start, end, most, log) == end and cut_bytes(start, end, _BYTES_ALONE, log) == end

    def waiting(self, start: Offsets) -> Bounds | None:
        """The bounds of the next part; None when the driver takes in nothing.

        Raises:
            StrandlineError: as of `TopicsReader.latestOffset`.
        """
        if not self._rows:
            return None
        leaders = self._small.reader.leaders
        ends = self._ends(start)
        if self._small.reader.leaders != leaders:
            self.close()  # who was elected since may not have the records that were read ahead
        if self._next is not None and self._next[0] == start:
            return self._next
        return start, self._end(start, ends)

    def ingest(self, bounds: Bounds, targets: Sequence[Target]) -> list[Ingested]:
        """Append the records of a part to the event logs and dead letters of their sources; the next part is begun.

        Returns:
            the commits made, in order; none when there is nothing new.

        Raises:
            OffsetsVanished: retention removed records of a range, or its partition is gone.
            VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
        """
        if self._ahead is None:
            self._ahead = _WriteAhead(open_log(self._reading.settings, self._reading.lake, going_on=True))
        ranges = self._small.ranges(bounds)
        commits: list[Ingested] = []
        with self._duckdb_engine.connection() as connection:
            intakes = [TaskIntake(target, self._duckdb_engine, connection) for target in targets]
            done = self._ahead.done([task for each in intakes for task in each.tasks(self._reading, ranges)])
            of_each = [(intake, [each for each in done if each.source == intake.name]) for intake in intakes]
            self._begin_next(bounds[1], of_each)
            for intake, mine in of_each:
                commits += intake.take_done(mine)
        return commits

    def close(self) -> None:
        """Forget what is begun, and give back what reading holds."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = self._next = None

    def _begin_next(self, start: Offsets, taken: Sequence[tuple[TaskIntake, Sequence[RangeDone]]]) -> None:
        """Args: `taken`: what is to be committed before it."""
        assert self._ahead is not None, "this part was read by it"
        self._rows, self._bytes = _GROWTH * self._rows, min(_GROWTH * self._bytes, _MOST_BYTES)
        self._next = None
        ends = self._small.reader.seen
        end = self._end(start, ends) if ends else start
        if start == end:
            return
        with suppress(StrandlineError):  # it is said when that part is asked for
            ranges = self._small.ranges((start, end))
            tasks = [task for each, done in taken for task in each.tasks_after(done, self._reading, ranges)]
            self._ahead.begin(tasks)
            self._next = start, end

    def _ends(self, start: Offsets) -> Offsets:
        ends: Offsets = self._small.reader.latestOffset({"topics": start}, ReadAllAvailable())["topics"]
        return ends

    def _end(self, start: Offsets, ends: Offsets) -> Offsets:
        """Of a part. Args: `ends`: of the topics."""
        ingest = self._reading.settings.ingest
        end = cut(start, ends, min(self._rows, ingest.max_rows_per_epoch), self._small.log)
        return cut_bytes(start, end, min(self._bytes, ingest.max_bytes_per_epoch), self._small.log)


class _Dropped(Exception):
    """Nobody asks for what a thread writes any more."""


class _WriteAhead:
    """Tasks in threads, some of them begun before they are asked for. For one thread.

    Args:
        log: the topics; closed with this.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._threads = ThreadPoolExecutor(_WRITERS, thread_name_prefix="intake")
        self._stop = Event()
        self._begun: tuple[list[RangeTask], list[Future[RangeDone]]] | None = None

    def begin(self, tasks: list[RangeTask]) -> None:
        """Begin what will be asked for next."""
        self._begun = tasks, self._submitted(tasks)

    def done(self, tasks: list[RangeTask]) -> list[RangeDone]:
        """What became of some tasks, which may be begun.

        Raises:
            StrandlineError: as of `TopicsReader.read`.
        """
        if self._begun is not None and [each.key for each in self._begun[0]] != [each.key for each in tasks]:
            self.drop()
        _, running = self._begun or (tasks, self._submitted(tasks))
        self._begun = None
        try:
            return [each.result() for each in running]
        except BaseException:
            self._discard(running)
            raise

    def drop(self) -> None:
        """Forget what is begun."""
        if self._begun is not None:
            self._discard(self._begun[1])
            self._begun = None

    def close(self) -> None:
        """End what is begun, and give back what reading holds."""
        self.drop()
        self._threads.shutdown()
        self._log.close()

    def _submitted(self, tasks: Sequence[RangeTask]) -> list[Future[RangeDone]]:
        return [self._threads.submit(write_range, each, self._log, self._check) for each in tasks]

    def _check(self) -> None:
        if self._stop.is_set():
            raise _Dropped

    def _discard(self, running: Sequence[Future[RangeDone]]) -> None:
        """Let the tasks end, and remove their files."""
        self._stop.set()
        for each in running:
            if not each.cancel() and each.exception() is None and (written := each.result().written) is not None:
                written.staged.discard()
        self._stop.clear()
