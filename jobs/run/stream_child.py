"""The process of a continuous run that Dagster starts: `python -m strandline.jobs.run.stream_child PIPELINE`.

It is the run of `strandline run PIPELINE --mode continuous`. It has no lifeline: it outlives the process that started
it, and whoever wants it finds it by its heartbeat. SIGTERM stops it. It logs to standard error, of news that comes with
every micro-batch a line a minute, so that a run without end fills no disk.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.settings import load_settings
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterator


# The stop of a continuous run: SIGTERM asks for it, the run ends after the micro-batch at work.


@contextmanager
def stopped_by_signal() -> Iterator[Event]:
    """An event that SIGTERM sets. Only for the main thread of a process."""
    stop = Event()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


EXIT_FAILED = 1
EXIT_USAGE = 2

_SECONDS_BETWEEN: Final = 60.0
_MOST_KINDS: Final = 1_000
"""Messages that were not made of a template would otherwise be remembered one by one."""


class RateLimitedLog(logging.Filter):
    """Lets news of one kind (one logger's template) through once in so many seconds, and says how much was kept back.

    Warnings and errors always pass. Any thread may log.
    """

    def __init__(self, seconds: float = _SECONDS_BETWEEN) -> None:
        super().__init__()
        self._seconds = seconds
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.INFO:
            return True
        kind, now = (record.name, str(record.msg)), time.monotonic()
        since, kept_back = self._said.get(kind, (now - self._seconds, 0))
        if now - since < self._seconds:
            self._said[kind] = (since, kept_back + 1)
            return False
        if len(self._said) >= _MOST_KINDS:
            self._said.clear()
        self._said[kind] = (now, 0)
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} ({kept_back} more since the last such line)", None
        return True


def main(arguments: list[str]) -> int:
    """Follow the pipeline named by the only argument until SIGTERM.

    Returns:
        The exit code: 0 after a stop, `EXIT_FAILED` when the run failed (its heartbeat says why), `EXIT_USAGE` when
        called wrongly.
    """
    if len(arguments) != 1:
        print("usage: python -m strandline.jobs.run.stream_child PIPELINE", file=sys.stderr)
        return EXIT_USAGE
    _log_to_stderr()
    from strandline.jobs.run.pipeline import follow

    try:
        with stopped_by_signal() as stop:
            follow(load_settings(), arguments[0], stop)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    return 0


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimitedLog())
    logging.basicConfig(handlers=[handler], level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    # It tells of each call between the JVM and Python, by a text of its own.
    logging.getLogger("py4j").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
