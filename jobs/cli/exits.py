"""How a command ends: exit code, for each error a message, and after Ctrl-C or SIGTERM a stop; no end is a traceback.

0     done
1     something that was verified is broken
2     an error that the message explains
130   interrupted by Ctrl-C, as shells expect of SIGINT
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Event, Timer
from typing import TYPE_CHECKING

import typer

from strandline.jobs.cli.output import say
from strandline.state_store.errors import InternalError, StrandlineError
from strandline.state_store.files import of_system

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import NoReturn


BROKEN = 1
USER_ERROR = 2
INTERRUPTED = 130


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors into a message and an exit code; a reader that closes the pipe is no error."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        say("interrupted by Ctrl-C: what was committed stays")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit, into a pipe that is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except Exception as error:
        from strandline.jobs.cli.name_map import localized_error, looked_in

        ours = as_ours(error)
        say(f"{localized_error(ours)}{looked_in(ours)}")
        raise typer.Exit(USER_ERROR) from None


def as_ours(error: Exception) -> StrandlineError:
    """An error as one of Strandline's: itself, or its translation."""
    if isinstance(error, StrandlineError):
        return error
    return of_system(error) if isinstance(error, OSError) else internal(error)


def leave(code: int) -> NoReturn:
    """End this process after a command whose sessions and connections are closed.

    Not by the interpreter's own end where Spark was loaded: the threads of its bridge to the JVM never stop, and hold
    modules whose C++ side then reports everything that is "leaked", pages of it.
    """
    if "pyspark" not in sys.modules:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)


def internal(error: Exception) -> InternalError:
    """The error for one that nobody expected; its traceback goes to a file, for a report."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[2])] or frames
    where = f"{Path(own[-1].filename).name}, line {own[-1].lineno}" if own else None
    with NamedTemporaryFile("w", prefix="strandline-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    # A library's message may be pages of generated SQL.
    first = (str(error).strip().splitlines() or [""])[0][:300]
    return InternalError(
        f"{type(error).__name__}: {first}" if first else type(error).__name__,
        where=where,
        hint=f"this is a fault of Strandline: please report it, with the file {file.name} and what you typed",
    )


# Ctrl-C and SIGTERM during a run: a stop after the present micro-batch, or within seconds without it.
#
# Breaking off costs nothing that was committed: an epoch is one atomic commit, so the next run goes on from the last
# one.

# A stop is to be over in five seconds: what a container's or a person's patience is at least. An epoch of DuckDB
# takes tenths of one; stopping Spark about one.
_GRACE_SECONDS = 4.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop(Event):
    """Set when the run is to end. `code` is the exit code that goes with it: 128 and the signal's number."""

    code: int = 0


@contextmanager
def stopped_by_signal() -> Iterator[Stop]:
    """A stop that the first signal sets. Whoever does not end in time is ended, JVM and all."""
    stop = Stop()
    # It ends with the process: a daemon.
    timer = Timer(_GRACE_SECONDS, _abandon, [stop])
    timer.daemon = True

    def heard(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            return
        stop.code = 128 + number
        stop.set()
        say(f"{signal.Signals(number).name}: stopping; what was committed stays")
        timer.start()

    before = {number: signal.signal(number, heard) for number in _SIGNALS}
    try:
        yield stop
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _abandon(stop: Stop) -> None:
    """End this process at once. The JVM ends with it: it watches the pipe from its parent."""
    say("the work at hand was abandoned: the next run goes on from the last commit")
    sys.stdout.flush()
    os._exit(stop.code)
