"""Writes results: rows to standard output, messages to standard error.

With `json` standard output holds one JSON object for each row and nothing else, for scripts to read.

The steps of a long operation, as its user sees them: a live line on a terminal, lines with their time in a log.

    03:00:12 computing 'by_shop' (stage 2 of 3): 5,000,000 rows to read, about 40 s by the rate so far
    03:00:42 still computing 'by_shop' (stage 2 of 3), for 30 s

A step may be one statement that nothing is heard of until it ends. So in a log a thread says every half a minute that
it is still at work.
"""

from __future__ import annotations

import json as jsons
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.serve.results import (
    Document,
    LiveRows,
    Message,
    Result,
    Rows,
    TextTable,
    Tombstone,
    Weighted,
    cell,
    json_line,
    to_json,
)
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.report import MicroBatch
    from strandline.jobs.run.pipeline import Outlook


TOMBSTONE_FIELD = "__tombstone"
"""The JSON member that marks a tombstone, and a row that went; others do not have it."""
WEIGHT_FIELD = "__weight"
"""The JSON member, and the table's last column, of rows that no key tells apart: 1 for one more, -1 for one less."""

_TOMBSTONE_CELL = "<gone>"


@dataclass(frozen=True)
class CommandOutput:
    """The output of a command: results on standard output, as JSON lines or as tables."""

    json: bool = False

    def write(self, result: Result) -> None:
        """Write one result; of a live one, each row when it arrives.

        Raises:
            BrokenPipeError: nobody reads standard output any more.
        """
        match result:
            case Message():
                say(result.text)
            case Document():
                print(to_json(result.data) if self.json else result.text, flush=True)
            case Rows() if self.json:
                for row in result.rows:
                    print(json_line(result.names, row))
                sys.stdout.flush()
                self._note(result)
            case Rows():
                self._table(result)
                self._note(result)
            case LiveRows() if self.json:
                self._live_json(result)
            case LiveRows():
                self._live_table(result)

    def _note(self, result: Rows) -> None:
        if result.note:
            say(result.note)

    def _table(self, result: Rows) -> None:
        rows = [[cell(value) for value in row] for row in result.rows]
        table = TextTable.fitting(result.names, rows)
        print(table.header())
        for row in rows:
            print(table.line(row))
        print(table.rule, flush=True)

    def _live_json(self, result: LiveRows) -> None:
        for change in result.rows:
            match change:
                case Tombstone(row):
                    marks: dict[str, object] = {TOMBSTONE_FIELD: True}
                case Weighted(row, weight):
                    marks = {TOMBSTONE_FIELD: True, WEIGHT_FIELD: weight} if weight < 0 else {WEIGHT_FIELD: weight}
                case row:
                    marks = {}
            print(json_line((*result.names, *marks), (*row, *marks.values())), flush=True)

    def _live_table(self, result: LiveRows) -> None:
        names = (*result.names, WEIGHT_FIELD) if result.marked else result.names
        table = TextTable.within(names, shutil.get_terminal_size().columns)
        print(table.header(), flush=True)
        for change in result.rows:
            cells, weight = _live_cells(change)
            print(table.line([*cells, str(weight)] if result.marked else cells), flush=True)


def say(text: str) -> None:
    """Write a message for the user to standard error."""
    print(text, file=sys.stderr, flush=True)


def _live_cells(change: tuple[object, ...] | Tombstone | Weighted) -> tuple[Sequence[str], int]:
    """The cells of a change, and 1 for a row that came, -1 for one that went."""
    match change:
        case Tombstone(row):
            return [_TOMBSTONE_CELL if value is None else cell(value) for value in row], -1
        case Weighted(row, weight):
            return [cell(value) for value in row], weight
        case row:
            return [cell(value) for value in row], 1


def show_json(rows: Sequence[dict[str, Any]]) -> None:
    """Write one JSON object for each row."""
    for row in rows:
        print(jsons.dumps(row, ensure_ascii=False))
    sys.stdout.flush()


# The progress of a run: a live line on a terminal, one line for each micro-batch in a log.
#
# The live line is drawn when a micro-batch ends and by no thread: nothing of it is left when a run stops.


@dataclass
class IntakeProgress:
    """The events taken in so far, of those that waited at the start.

    Attributes:
        waiting: events at the start.
        views: the number of views that each micro-batch refreshes; None where that is not known.
        began: monotonic seconds.
    """

    waiting: int
    views: int | None
    began: float
    done: int = 0

    def line(self, batch: MicroBatch, now: float) -> str:
        """What there is to say after a micro-batch; it is counted.

        Args:
            now: monotonic seconds.
        """
        self.done += batch.events
        rate = batch.events / batch.seconds if batch.seconds > 0 else 0.0
        text = f"epoch {batch.number}: {_counted(self.done, 'event')} in, {rate:,.1f} rows/s"
        if self.views is not None:
            stopped = f"{_counted(batch.stopped, 'table')} stopped"
            text += f", {stopped if batch.stopped else _counted(self.views, 'view') + ' fresh'}"
        left = self._left(batch)
        if not left:
            return text
        # By the rate since the start, which holds the start itself: rather too long than too short.
        seconds = left * (now - self.began) / self.done if self.done else 0.0
        return f"{text}, {left:,} to go, about {seconds:,.0f} s left"

    def _left(self, batch: MicroBatch) -> int:
        left = max(self.waiting - self.done, 0)
        known = batch.left() if left and batch.left is not None else None
        if known is not None:
            left = known
            self.waiting = self.done + known
        return left


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


@contextmanager
def shown(outlook: Outlook) -> Iterator[Callable[[MicroBatch], None]]:
    """Say what the run will do, and give what is to be told of each micro-batch."""
    say(str(outlook))
    progress = IntakeProgress(outlook.events, len(outlook.views), time.monotonic())
    if not sys.stderr.isatty():
        yield lambda batch: say(f"{time.strftime('%H:%M:%S')} {progress.line(batch, time.monotonic())}")
        return
    from rich.console import Console
    from rich.live import Live

    with Live("starting …", console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda batch: live.update(progress.line(batch, time.monotonic()), refresh=True)


_AGAIN_SECONDS: Final = 30.0
"""Between two lines of a log about a step that goes on."""


class ShownSteps:
    """Turns steps into lines.

    Args:
        line: shows a line for good.
        now_at: shows what is at work, until something else is.
    """

    def __init__(self, line: Callable[[str], None], now_at: Callable[[str], None]) -> None:
        self._line, self._now_at = line, now_at
        self._lock = Lock()
        self._what, self._rows, self._began = "", 0, 0.0
        self._progress = IntakeProgress(0, None, 0.0)
        # Of the steps that have ended; one in micro-batches has its own rate.
        self._read, self._reading_seconds = 0, 0.0

    def begin(self, what: str, rows: int = 0) -> None:
        with self._lock:
            self._end()
            self._what, self._rows, self._began = what, rows, time.monotonic()
            self._progress = IntakeProgress(rows, None, self._began)
            self._now_at(sentence("{}{}", what, self._outlook()))

    def micro_batch(self, batch: MicroBatch) -> None:
        with self._lock:
            self._now_at(self._progress.line(batch, time.monotonic()))

    def done(self, what: str) -> None:
        with self._lock:
            self._end()
            self._line(sentence("{} ({} s)", what, f"{time.monotonic() - self._began:.1f}"))

    def again(self) -> None:
        """Say which step is at work; nothing between two steps."""
        with self._lock:
            if not self._what:
                return
            seconds = time.monotonic() - self._began
            self._line(
                sentence("still {}, for {} s", self._what, f"{seconds:.0f}")
                if seconds >= 1
                else sentence("now {}", self._what)
            )

    def _end(self) -> None:
        if self._what and self._rows and not self._progress.done:
            self._read += self._rows
            self._reading_seconds += time.monotonic() - self._began
        self._what = ""

    def _outlook(self) -> str:
        """What is known of a step before it is made."""
        if not self._rows:
            return ""
        text = f": {self._rows:,} rows to read"
        if not self._read:
            return text
        seconds = self._rows * self._reading_seconds / self._read
        return f"{text}, about {seconds:,.0f} s by the rate so far"


@contextmanager
def shown_steps(
    name_map: NameMap | None = None, again_seconds: float = _AGAIN_SECONDS, *, begins: bool = True
) -> Iterator[ShownSteps]:
    """Steps on standard error, while the body runs.

    Args:
        name_map: of the definitions that steps mention.
        begins: a log hears of each step when it begins; otherwise only of those that take long.
    """
    if sys.stderr.isatty():
        with _on_a_terminal(name_map) as steps:
            yield steps
        return

    def dated(text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')} {_said(text, name_map)}")

    steps, over = ShownSteps(dated, dated if begins else _unsaid), Event()
    thread = Thread(target=_again, args=(steps, over, again_seconds), name="steps", daemon=True)
    thread.start()
    try:
        yield steps
    finally:
        over.set()
        thread.join()


def _said(text: str, name_map: NameMap | None) -> str:
    return text if name_map is None else name_map.localized(text)


def _unsaid(_text: str) -> None:
    """A log is told of what lasts."""


def _again(steps: ShownSteps, over: Event, seconds: float) -> None:
    while not over.wait(seconds):
        steps.again()


@contextmanager
def _on_a_terminal(name_map: NameMap | None) -> Iterator[ShownSteps]:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting …", total=None)
        yield ShownSteps(
            lambda text: bar.console.print(_said(text, name_map), markup=False, highlight=False),
            lambda text: bar.update(task, description=_said(text, name_map)),
        )
