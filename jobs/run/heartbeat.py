"""The heartbeat of a run: a note in the lake that says it is alive, and how far it is.

    <lake>/runs/<pipeline>.json

Dagster, `strandline status` and alerts read it. No row and no lock depends on it, and one that does not read back
counts as none, which an alert says. The thread that writes it proves that the process is alive; how long the present
refresh has been going on, it says beside that.
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Literal

from pydantic import TypeAdapter

from strandline.jobs.ingest.topics import lag, open_log
from strandline.jobs.model.errors import SourceError
from strandline.jobs.model.report import TableReport
from strandline.state_store import files
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StrandlineError
from strandline.state_store.processes import Process, process
from strandline.state_store.stored_state import members_since, sealed_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.jobs.model.definitions import Source
    from strandline.jobs.run.stream import PipelineStream
    from strandline.state_store.layout import LakeLayout

log = logging.getLogger("strandline")

BEAT_SECONDS: Final = 5.0
"""A beat costs one flushed file and a look at each topic's end: nothing at this pace, and fresh enough to watch."""
SILENT_SECONDS: Final = 60.0
"""Twelve beats. A machine that swaps, or a broker that is asked for its offsets and does not answer, takes less."""

_FORMAT: Final = 2
"""Since it they have a checksum."""
_TABLES = TypeAdapter(tuple[TableReport, ...])

Mode = Literal["drain", "continuous"]


@dataclass(frozen=True)
class Heartbeat:
    """One beat. Moments are milliseconds since the epoch, by the run's clock.

    Attributes:
        refreshed: what was committed before this moment, every view that has not stopped reflects.
        settled: when that refresh ended: the views reflect what the pipeline itself committed before it; None in a
            beat of an older version.
        waiting: {what waits by its FRESHNESS: when its last refresh began and ended}; of that alone the two moments
            above do not hold.
        busy_since: when the micro-batch at work began; None when none is.
        lag: {topic: events that wait}; None where the broker does not answer.
        failures: {table: why it stopped}.
        ended: the run is over: by itself, or as it was asked to.
        error: why it is over, when that was an error: code, action, message, where, hint.
        ticked: the moment in seconds by the host's monotonic clock, which all its processes share and nobody sets;
            None in a beat of an older version.
    """

    pipeline: str
    mode: Mode
    process: Process
    started: int
    at: int
    refreshed: int | None
    busy_since: int | None
    micro_batches: int
    lag: dict[str, int | None]
    failures: dict[str, str]
    tables: tuple[TableReport, ...]
    ended: bool = False
    error: dict[str, str | None] | None = None
    ticked: float | None = None
    settled: int | None = None
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """True as far as can be told: of a run on another host, only its silence tells that it is over."""
        return not self.ended and (self.process.is_alive or not self.process.is_local)

    def silent_seconds(self, now_ms: int) -> float:
        """The seconds since this beat.

        A clock that is set must not make a live run silent, so where it can be, they are told by the monotonic clock.

        Args:
            now_ms: what counts for a beat of another host, or of before a reboot.
        """
        if self.ticked is not None and self.process.is_local:
            return max(time.monotonic() - self.ticked, 0.0)
        return max(now_ms - self.at, 0) / 1000

    def is_silent(self, now_ms: int) -> bool:
        """True if a run that should be alive has said nothing for `SILENT_SECONDS`."""
        return not self.ended and self.silent_seconds(now_ms) > SILENT_SECONDS


def read_beat(lake: LakeLayout, pipeline: str) -> Heartbeat | None:
    """The last beat of the pipeline's last run; None when there is none, or it does not read back."""
    with suppress(OSError, ValueError, KeyError, TypeError, StrandlineError):
        content = members_since(lake.run(pipeline).read_bytes(), _FORMAT)
        found = Process.from_json(content.pop("process"))
        if found is not None:
            tables = _TABLES.validate_python(content.pop("tables"))
            return Heartbeat(process=found, tables=tables, **content)
    return None


def write_beat(lake: LakeLayout, beat: Heartbeat) -> None:
    """Put a beat in the place of the last one.

    Raises:
        DiskFailed, StorageDenied, StorageUnavailable: it could not be written.
    """
    path = lake.run(beat.pipeline)
    files.make_folder(path.parent)
    content = {"format": _FORMAT, **asdict(beat), "process": beat.process.as_json()}
    # As it reads back: the checksum is of names in the order that they have as texts.
    files.replace(path, sealed_members(json.loads(json.dumps(content))))


def is_unread(lake: LakeLayout, pipeline: str) -> bool:
    """True if there is a last beat, and it does not read back."""
    return lake.run(pipeline).exists() and read_beat(lake, pipeline) is None


@contextmanager
def heartbeat(
    stream: PipelineStream,
    mode: Mode,
    report: Callable[[], tuple[TableReport, ...]],
    seconds: float = BEAT_SECONDS,
    told: Callable[[Heartbeat], None] = lambda _beat: None,
) -> Iterator[None]:
    """Write heartbeats while the body runs, and one more at its end, with the error that ended it.

    Args:
        report: the tables as they stand.
        seconds: between two beats.
        told: of each beat.
    """
    heart = _Heart(stream, mode, report, told)
    over = Event()
    heart.beat()
    thread = Thread(target=heart.go_on, args=(over, seconds), name="heartbeat", daemon=True)
    thread.start()
    error: dict[str, str | None] | None = None
    try:
        yield
    except StrandlineError as fault:
        error = fault.attrs()
        raise
    except BaseException as fault:
        error = {"code": type(fault).__name__, "action": None, "message": str(fault), "where": None, "hint": None}
        raise
    finally:
        over.set()
        thread.join()
        heart.beat(ended=True, error=error)


class _Heart:
    """Writes the beats of one run."""

    def __init__(
        self,
        stream: PipelineStream,
        mode: Mode,
        report: Callable[[], tuple[TableReport, ...]],
        told: Callable[[Heartbeat], None],
    ) -> None:
        me = process(os.getpid())
        assert me is not None
        self._stream, self._report, self._told = stream, report, told
        self._log = open_log(stream.settings, stream.lake)
        now = now_ms()
        self._last = Heartbeat(stream.pipeline, mode, me, now, now, None, None, 0, {}, {}, ())

    def go_on(self, over: Event, seconds: float) -> None:
        while not over.wait(seconds):
            self.beat()

    def beat(self, *, ended: bool = False, error: dict[str, str | None] | None = None) -> None:
        """Write one beat. Whatever keeps it from being written is logged and no more: the silence is seen."""
        try:
            # After an error the broker may be what is wrong, and asking it again would only take its time.
            lag = self._lag() if error is None else self._last.lag
            self._last = replace(self._now(), lag=lag, ended=ended, error=error)
            write_beat(self._stream.lake, self._last)
            self._told(self._last)
        except Exception as fault:  # a note must never end the run that it speaks of
            log.warning("a heartbeat could not be written: %s", fault)

    def _lag(self) -> dict[str, int | None]:
        return {source.topic: self._lag_of(source) for source in self._stream.sources}

    def _lag_of(self, source: Source) -> int | None:
        try:
            return lag(source, self._stream.lake, self._log)
        except SourceError:
            return None

    def _now(self) -> Heartbeat:
        stream = self._stream
        (refreshed, settled), failures = stream.refreshed or (None, None), dict(stream.failures)
        return replace(
            self._last,
            at=now_ms(),
            ticked=time.monotonic(),
            refreshed=refreshed,
            settled=settled,
            busy_since=stream.busy_since,
            micro_batches=stream.micro_batches,
            failures={table: str(error) for table, error in failures.items()},
            waiting=stream.waiting,
            tables=self._report(),
        )
