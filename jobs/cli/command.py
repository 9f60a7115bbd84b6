"""What every command has around it: the settings and the name map of the lake, and its end: an exit code, for each
error a message, and after Ctrl-C or SIGTERM a stop; no end is a traceback.

0     done
1     something that was verified is broken
2     an error that the message explains
130   interrupted by Ctrl-C, as shells expect of SIGINT

Names come in and go out as people write them.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Event, Timer
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from strandline.jobs.cli.output import say
from strandline.jobs.model.errors import PipelineMissing, UnknownName
from strandline.state_store.errors import InternalError, StrandlineError
from strandline.state_store.files import of_system
from strandline.state_store.layout import LakeLayout, check_lake
from strandline.state_store.wording import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import NoReturn

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.settings import Settings


T = TypeVar("T")


def load_settings() -> Settings:
    """The settings of a command. What reads them takes as long to import as all else that `--help` needs.

    Raises:
        SettingsError: one of them is none.
    """
    from strandline.jobs.model import settings

    return settings.load_settings()


def name_map_in(settings: Settings) -> NameMap:
    """Read the name map of the lake.

    Raises:
        ObjectMissing: there is no lake.
    """
    from strandline.jobs.catalog.catalog import Catalog

    lake = LakeLayout(settings.lake)
    check_lake(lake)
    return Catalog(lake).name_map


def _localized_error(error: StrandlineError) -> StrandlineError:
    """Localize an error by the name map of the lake, if that can be read."""
    try:
        return name_map_in(load_settings()).localized_error(error)
    except (StrandlineError, OSError):
        return error


def _looked_in(error: StrandlineError) -> str:
    """A line that says which lake a name was looked for in, for an error about one that is not there; else empty."""
    if isinstance(error, PipelineMissing) or (isinstance(error, UnknownName) and error.of_lake):
        with suppress(StrandlineError):
            return f"\n  lake: {LakeLayout(load_settings().lake).root} (STRANDLINE_LAKE)"
    return ""


def note_stored(name_map: NameMap, tables: Iterable[str]) -> None:
    """Print the stored name of each renamed table of a plan, which shows stored names."""
    for table in dict.fromkeys(tables):
        if name_map.of(table) != table:
            say(f"'{name_map.of(table)}' is stored as `{table}`")


def localized(found: Iterable[T], name_map: NameMap, *attributes: str) -> list[T]:
    """Localize these attributes of the values of a dataclass.

    Args:
        attributes: names of tables or definitions, or sentences with such names.
    """
    return [_localized(each, name_map, attributes) for each in found]


def _localized(each: T, name_map: NameMap, attributes: tuple[str, ...]) -> T:
    if not name_map.names:
        return each
    changed = {name: _localized_value(getattr(each, name), name_map) for name in attributes}
    return cast("T", replace(cast("Any", each), **changed))


def _localized_value(value: Any, name_map: NameMap) -> Any:
    if isinstance(value, Text):
        return name_map.localized(value)
    return name_map.of(value) if isinstance(value, str) else value


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
        ours = as_ours(error)
        say(f"{_localized_error(ours)}{_looked_in(ours)}")
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
