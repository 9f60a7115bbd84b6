"""The processes that answer queries, and the server's way to them: all are started before they are asked.

free ──asked──> at work ──answered──> free
                   └─ its time is over, it died, its client has gone ──> ended; a spare one takes its place
"""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar, cast

from strandline.jobs.query.pulled import Unnamed
from strandline.jobs.serve.errors import Busy, Cancelled, TimeLimit, TooLarge
from strandline.jobs.serve.terms import Terms
from strandline.jobs.server.state.worker import Answered, Failed, Form, QueryRequest, Question, serve
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.consistent_snapshot import Pinned
    from strandline.jobs.serve.terms import Least, QueryLimits
    from strandline.jobs.server.state.access import Token


# The end of a query that its client does not want any more: from another thread, in the middle of it.


class Cancelling:
    """One query that may be cancelled, before it runs or while it does."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._end: Callable[[], None] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """End the query. It may have its answer already."""
        with self._lock:
            self.cancelled = True
            if self._end is not None:
                self._end()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Inside the block, a cancellation calls `end`.

        Raises:
            Cancelled: it was cancelled before or inside; whatever the block raises for that.
        """
        with self._lock:
            if self.cancelled:
                raise _cancelled()
            self._end = end
        try:
            yield
        except (EOFError, OSError) as error:
            if self.cancelled:
                raise _cancelled() from error
            raise
        finally:
            with self._lock:
                self._end = None
        if self.cancelled:
            raise _cancelled()


def _cancelled() -> Cancelled:
    return Cancelled("the query was cancelled", hint="its client asked for that")


A = TypeVar("A")

_GRACE_SECONDS: Final = 0.5
"""A query that stops itself says why; one that cannot is ended so much later."""
_WAIT_SECONDS: Final = 2.0
"""Longer in line than that, and the client is told to come again."""
_START_SECONDS: Final = 60.0
"""A process imports its libraries first: a second on an idle machine, many on one that swaps or is started cold."""


class _Process:
    """One process and the pipe to it."""

    def __init__(self, settings: Settings, limits: QueryLimits) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._pipe: Connection = ours
        arguments = (theirs, settings, limits.memory_bytes)
        self._process: SpawnProcess = context.Process(target=serve, args=arguments, name="query", daemon=True)
        self._process.start()
        theirs.close()
        self._warm = False

    def ask(self, asked: Question[A]) -> A | None:
        """The answer; None when the process did not give one in time.

        Raises:
            StrandlineError: the query failed.
            EOFError, OSError: the process has ended.
        """
        if not self._warm:
            if not self._pipe.poll(_START_SECONDS):
                return None
            self._pipe.recv()
            self._warm = True
        seconds = asked.terms.limits.seconds
        self._pipe.send(asked)
        if not self._pipe.poll(None if seconds is None else seconds + _GRACE_SECONDS):
            return None
        found = self._pipe.recv()
        if isinstance(found, Failed):
            raise found.error()
        return cast("A", found)

    def kill(self) -> None:
        """End it at once; who waits for its answer gets EOFError. Any thread may call it."""
        self._process.kill()

    def end(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join()


class Queries:
    """A fixed number of processes. Any thread may ask; each asks one process at a time.

    Args:
        spares: processes that have imported their libraries and take the place of one that was ended: without, the
            next query waits for as long as that takes.
    """

    def __init__(self, settings: Settings, limits: QueryLimits, processes: int, spares: int = 0) -> None:
        self._settings = settings
        self._limits = limits
        self._processes = processes
        self._free: SimpleQueue[_Process] = SimpleQueue()
        self._spare: SimpleQueue[_Process] = SimpleQueue()
        for kept, count in ((self._free, processes), (self._spare, spares)):
            for _ in range(count):
                kept.put(_Process(settings, limits))

    def ask(
        self,
        text: str,
        token: Token,
        *,
        form: Form,
        at_least: Mapping[str, Least] | None = None,
        pinned: Pinned | None = None,
    ) -> Answered:
        """The answer to a SELECT.

        Args:
            at_least: {table: the least of it that the answer must reflect}.
            pinned: the cut that is read; None: the newest one.

        Raises:
            NotYet: it does not reflect that yet; otherwise as `answer`.
        """
        unnamed: Unnamed = "ksql" if form == "ksql" else "postgres"
        return self.answer(QueryRequest(text, Terms(self._limits, at_least or {}, unnamed, pinned), token, form))

    def answer(
        self, question: Question[A], cancelling: Cancelling | None = None, *, patience: float = _WAIT_SECONDS
    ) -> A:
        """The answer to a question.

        Args:
            cancelling: by which another thread may end it.
            patience: the seconds to wait for a process that is free.

        Raises:
            Busy: all processes are at work.
            TimeLimit, TooLarge: it took more than it may.
            Cancelled: another thread ended it.
            SqlError, StoreError, ServeError: it failed.
        """
        try:
            process = self._free.get(timeout=patience)
        except Empty:
            raise Busy("all queries that the server may run at once are running") from None
        cancelling = cancelling or Cancelling()
        lost = True
        try:
            with cancelling.ending(process.kill):
                found = process.ask(question)
            lost = found is None
        except StrandlineError:
            lost = cancelling.cancelled
            raise
        except (EOFError, OSError) as error:
            raise TooLarge("the query needs more memory than it may have", hint="ask for less") from error
        finally:
            if lost:
                process.end()
                self._spare.put(_Process(self._settings, self._limits))
                process = self._spare.get()
            self._free.put(process)
        if found is None:
            seconds = question.terms.limits.seconds
            raise TimeLimit(f"the query was ended after {seconds:g} s", hint="ask for less")
        return found

    def close(self) -> None:
        """End all processes, also those at work."""
        for _ in range(self._processes):
            self._free.get().end()
        while not self._spare.empty():
            self._spare.get().end()
