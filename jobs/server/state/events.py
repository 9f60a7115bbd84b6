"""Server-sent events: the changes of a version as the text that goes to every subscriber alike.

An expression that anybody may send must not run where all requests are answered: one call of LPAD can take minutes and
gigabytes, and cannot be interrupted. So it runs in another process, with the limits of a pull query for each version,
and ends with that process. A query that only shows columns computes nothing, and is read here.

A version that is sent again to those who subscribe is encoded once, kept on disk, and taken in pieces:

    snapshot, or changes of a version ──encode (few threads)──> lines of a file without a name ──pieces──> subscribers

A snapshot has as many events as its view has rows, and a subscriber takes them at its own pace, maybe never. In memory
forty subscribers of a view of 100,000 rows took 2.6 GB.
"""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from tempfile import SpooledTemporaryFile
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.serve.errors import Busy, ChangesGone, RequestRefused, TimeLimit, TooLarge
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.results import Tombstone, Weighted, json_line, to_json
from strandline.jobs.serve.terms import NO_LIMITS, QueryBudget, QueryLimits, Terms
from strandline.jobs.server.state.pool import Queries
from strandline.state_store.errors import VersionGone
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterable

    import pyarrow as pa

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.subscription import Subscription
    from strandline.jobs.server.state.worker import Shared
    from strandline.state_store.errors import StrandlineError


# A subscriber's place among the changes of a table, and its text: the id of a server-sent event.
#
# 12@t        all of version 12 was sent                12-3@t   of version 12 three changes were sent
# s12-40@t    of the snapshot at 12 forty rows were     @t: the first letters of the table's identity

_TEXT = re.compile(r"(s?)([0-9]{1,18})(?:-([0-9]{1,18}))?(?:@([0-9a-f]{0,8}))?")
IDENTITY_LETTERS = 8
"""Of a table's identity: enough to tell a table from the one that was made anew in its place; an id stays short."""


@dataclass(frozen=True)
class Place:
    """A place among the changes.

    Attributes:
        sent: changes of the version, or rows of its snapshot, that were sent; None: all of them.
        snapshot: true inside the snapshot at the version.
        table: the first letters of the table's identity; empty where it is not known.
    """

    version: int
    sent: int | None = None
    snapshot: bool = False
    table: str = ""

    def __str__(self) -> str:
        sent = "" if self.sent is None else f"-{self.sent}"
        return f"{'s' if self.snapshot else ''}{self.version}{sent}@{self.table}"

    @classmethod
    def read(cls, text: str) -> Place:
        """The place that a text names.

        Raises:
            RequestRefused: it is none.
        """
        found = _TEXT.fullmatch(text)
        if found is None or (found[1] and found[3] is None):
            raise RequestRefused("the Last-Event-ID is not one of ours", hint="send back the id of the last event")
        return cls(int(found[2]), int(found[3]) if found[3] else None, bool(found[1]), found[4] or "")


Form = Literal["upserts", "weights", "columns", "arrays"]
"""`upserts`: the new row of a key, or the key that was deleted; rows that no key tells apart as they come and go, each
with its weight. `weights`: every row so. `columns`: ksqlDB's rows, one for each row that changed, and `retracted`: the
row that went, where no key says which. `arrays`: the columns of those alone."""


@dataclass(frozen=True)
class PushedEvent:
    """One event: `change` or `row` of a snapshot, `progress`, `error`."""

    kind: str
    place: Place
    data: str

    @cached_property
    def text(self) -> bytes:
        """As it is sent; made once for all subscribers."""
        return f"event: {self.kind}\nid: {self.place}\ndata: {self.data}\n\n".encode()


def events_of(
    made: Subscription, duck: QueryEngine, changes: pa.Table, form: Form, first: Place
) -> Iterator[PushedEvent]:
    """The events of one version's changes, in an order that is the same at each look.

    Args:
        first: the place before the first of them.
    """
    kind = "row" if first.snapshot else "change"
    for number, data in enumerate(_LINES[form](made, duck, changes), start=1):
        yield PushedEvent(kind, replace(first, sent=number), data)


def progress(place: Place, **about: object) -> PushedEvent:
    """All changes up to a version were sent."""
    return PushedEvent("progress", place, to_json({"version": place.version, **about}))


def failed(place: Place, error: StrandlineError) -> PushedEvent:
    """The end of a subscription, and why."""
    return PushedEvent("error", place, to_json({**error.attrs(), "where": None, "last_event_id": str(place)}))


def _weights(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for change in made.weighted(duck, changes):
        yield f'{{"weight": {change.weight}, "row": {json_line(made.names, change.row)}}}'


def _upserts(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for change in made.visible(duck, changes):
        match change:
            case Tombstone(row):
                key = [(n, v) for n, v, of_key in zip(made.names, row, made.of_key, strict=True) if of_key]
                yield f'{{"deleted": {json_line([n for n, _ in key], [v for _, v in key])}}}'
            case Weighted(row, weight):
                what = "row" if weight > 0 else "deleted"
                yield f'{{"{what}": {json_line(made.names, row)}, "weight": {weight}}}'
            case row:
                yield f'{{"row": {json_line(made.names, row)}}}'


def _columns(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for went, came in made.pairs(duck, changes):
        shown = came if came is not None else made.key_of(went or ())
        tombstone = ', "tombstone": true' if came is None else ""
        retracted = "" if went is None or made.by_key else f', "retracted": {to_json(list(went))}'
        yield f'{{"columns": {to_json(list(shown))}{tombstone}{retracted}}}'


def _arrays(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for went, came in made.pairs(duck, changes):
        yield to_json(list(came if came is not None else made.key_of(went or ())))


_LINES: Final = {"upserts": _upserts, "weights": _weights, "columns": _columns, "arrays": _arrays}


_TURN_SECONDS: Final = 60.0
"""A feed waits so long for its turn: others may each have a version to compute, which takes up to its limit of time."""
_MOMENT_SECONDS: Final = 0.25
"""A version that takes longer is computed beside those that do not."""
_REMEMBERED: Final = 4_096
"""Queries of which it is known where they are computed."""

_Lane = Literal["quick", "patient"]


@dataclass(frozen=True)
class VersionAsked:
    """The events of the version after a place, or the rest of its own; as it is sent to a query process.

    Attributes:
        table: the first letters of the table's identity, which the places of the events name.
        limits: of the computation.
    """

    made: Subscription
    form: Form
    place: Place
    table: str
    limits: QueryLimits = NO_LIMITS

    @property
    def terms(self) -> Terms:
        """What it may take."""
        return Terms(self.limits)

    def answered(self, shared: Shared) -> list[PushedEvent]:
        """The events, computed in the process; errors as of `events`."""
        library = shared.library(shared.catalogued.catalog)
        with QueryEngine(library, QueryBudget(self.limits), shared.database) as duck:
            return self.events(duck)

    def events(self, duck: QueryEngine) -> list[PushedEvent]:
        """The events. Raises as `each`."""
        return list(self.each(duck))

    def each(self, duck: QueryEngine) -> Iterator[PushedEvent]:
        """The events, one by one.

        Raises:
            ChangesGone: they are not kept any more, or are of rows that another key told apart.
            InvalidQuery: an expression fails on a row.
            TimeLimit, TooLarge: it takes more than it may.
            StoreError: the table cannot be read.
        """
        version = self.place.version if self.place.sent is not None else self.place.version + 1
        weights = self.form == "weights"
        try:
            if self.place.snapshot:
                changes = self.made.snapshot(version, by_weight=weights)
            else:
                changes = self.made.changes(version - 1, version, by_weight=weights)
        except VersionGone as error:
            raise ChangesGone(
                sentence(
                    "the changes of '{}' after version {} are not kept any more",
                    Name(self.made.relation.name),
                    self.place.version,
                ),
                hint="subscribe again without Last-Event-ID and as_of: a snapshot comes first",
            ) from error
        first = Place(version, 0, self.place.snapshot, self.table)
        return islice(events_of(self.made, duck, changes, self.form, first), self.place.sent or 0, None)


class VersionProcesses:
    """The processes that compute versions, for all feeds. They are started when they are first needed.

        quick     what takes a moment, in turn; what takes longer is ended there, and asked again of the other
        patient   the others, one after the other, each up to its limits

    Anybody may subscribe with an expression that takes its whole limit of time for each version. So a query goes to
    `quick` as long as its versions take a moment; one that never has waits for those that have. Whoever is quick waits
    for one of the others at most.

    Args:
        limits: of each version.
    """

    def __init__(self, settings: Settings, limits: QueryLimits) -> None:
        self._settings = settings
        self._limits = limits
        self._lock = Lock()
        self._turns = Turns()
        self._started: dict[_Lane, Queries] = {}
        self._lanes: OrderedDict[tuple[str, bool], _Lane] = OrderedDict()
        self._closed = False

    def events(self, asked: VersionAsked) -> list[PushedEvent]:
        """The events that are asked for. Any thread may ask.

        Raises:
            Busy: the server ends, or it was not the feed's turn for a minute.
            Others: as of `VersionAsked.events`.
        """
        name = (asked.made.text, asked.place.snapshot)
        with self._lock:
            lane = self._lanes.get(name)
        if lane != "patient":
            try:
                with self._turns.one(first=lane == "quick", patience=_TURN_SECONDS):
                    found = self._ask("quick", asked, self._moment)
            except (TimeLimit, TooLarge):
                if self._moment == self._limits:
                    raise
            else:
                self._note(name, "quick")
                return found
        self._note(name, "patient")
        begun = time.monotonic()
        found = self._ask("patient", asked, self._limits)
        if time.monotonic() - begun < _MOMENT_SECONDS:
            self._note(name, "quick")
        return found

    def close(self) -> None:
        """End the processes, also in the middle of a version."""
        with self._lock:
            started, self._started, self._closed = self._started, {}, True
        for each in started.values():
            each.close()

    @property
    def _moment(self) -> QueryLimits:
        seconds = self._limits.seconds
        return replace(self._limits, seconds=_MOMENT_SECONDS if seconds is None else min(seconds, _MOMENT_SECONDS))

    def _ask(self, lane: _Lane, asked: VersionAsked, limits: QueryLimits) -> list[PushedEvent]:
        return self._queries(lane).answer(replace(asked, limits=limits), patience=_TURN_SECONDS)

    def _note(self, name: tuple[str, bool], lane: _Lane) -> None:
        with self._lock:
            self._lanes[name] = lane
            self._lanes.move_to_end(name)
            while len(self._lanes) > _REMEMBERED:
                self._lanes.popitem(last=False)

    def _queries(self, lane: _Lane) -> Queries:
        with self._lock:
            if self._closed:
                return Queries(self._settings, self._limits, 0)
            if lane not in self._started:
                # One that is ended in the middle of a call is not waited for: a spare one is ready.
                self._started[lane] = Queries(self._settings, self._limits, 1, spares=int(lane == "quick"))
            return self._started[lane]


class Turns:
    """One at a time, and whoever is `first` before the others."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._taken = False
        self._first = 0

    @contextmanager
    def one(self, *, first: bool, patience: float) -> Iterator[None]:
        """The turn, for the duration of the block. Raises Busy: it did not come in `patience` seconds."""
        with self._changed:
            self._first += first
            try:
                came = self._changed.wait_for(lambda: not self._taken and (first or not self._first), patience)
            finally:
                self._first -= first
            if not came:
                raise Busy("all that subscribers may compute at once is being computed")
            self._taken = True
        try:
            yield
        finally:
            with self._changed:
                self._taken = False
                self._changed.notify_all()


_THREADS: Final = 2
"""That encode: a thousand who come back at once shall not take the processor from look-ups."""
_MOST_BYTES: Final = 4 << 30
"""On disk, of all that is being sent: a hundred snapshots of some hundred thousand rows."""
_IN_MEMORY: Final = 1 << 18
"""A version of so many bytes needs no file."""
_PIECE_BYTES: Final = 1 << 16
"""Of events that a subscriber has in memory."""


class Replay:
    """The events of one version. One thread adds them; then any may take pieces.

    Args:
        first: the place before the first event.
        count: is told of bytes before they are kept; may raise.
    """

    def __init__(self, first: Place, count: Callable[[int], None]) -> None:
        self._first = first
        self._count = count
        self._file = SpooledTemporaryFile[bytes](_IN_MEMORY)
        self._lock = Lock()
        self._numbers = [0]
        self._offsets = [0]
        self._kind = ""
        self._events = 0
        self.size = 0

    def add(self, event: PushedEvent) -> None:
        """Keep one more event."""
        line = event.data.encode() + b"\n"
        self._count(len(line))
        self._file.write(line)
        self._kind = event.kind
        self._events += 1
        self.size += len(line)
        if self.size - self._offsets[-1] >= _PIECE_BYTES:
            self._numbers.append(self._events)
            self._offsets.append(self.size)

    def piece(self, sent: int) -> list[PushedEvent]:
        """Some of the events after so many of them; none: these were all."""
        if sent >= self._events:
            return []
        place = bisect_right(self._numbers, sent) - 1
        begin, end = self._offsets[place], [*self._offsets[place + 1 : place + 2], self.size][0]
        with self._lock:
            self._file.seek(begin)
            lines = self._file.read(end - begin).split(b"\n")[:-1]
        number = self._numbers[place]
        return [
            PushedEvent(self._kind, replace(self._first, sent=at), data.decode())
            for at, data in enumerate(lines[sent - number :], start=sent + 1)
        ]

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


@dataclass
class _Shared:
    """A replay that is made, or is there, and how many take it."""

    made: asyncio.Future[Replay]
    takers: int = 0


class Replays:
    """The replays of a server. Its event loop works with it.

    Args:
        most_bytes: of all that are there at once.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = Lock()
        self._shared: dict[Hashable, _Shared] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "replays")

    @asynccontextmanager
    async def opened(
        self, name: Hashable, first: Place, events: Callable[[], Iterable[PushedEvent]]
    ) -> AsyncIterator[Replay]:
        """A replay for the duration of the block; all who ask by one name at a time share it.

        Args:
            first: the place before the first event.
            events: makes all of them, in a thread.

        Raises:
            Busy: there are too many bytes of others.
            StrandlineError: as `events`.
        """
        shared = self._shared.get(name)
        if shared is None:
            made = asyncio.get_running_loop().run_in_executor(self._threads, self._encoded, first, events)
            shared = self._shared[name] = _Shared(made)
        shared.takers += 1
        try:
            yield await asyncio.shield(shared.made)
        finally:
            shared.takers -= 1
            if not shared.takers:
                del self._shared[name]
                shared.made.add_done_callback(self._close)

    def close(self) -> None:
        """Make no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _encoded(self, first: Place, events: Callable[[], Iterable[PushedEvent]]) -> Replay:
        made = Replay(first, self._keep)
        try:
            for event in events():
                made.add(event)
        except BaseException:
            self._release(made)
            raise
        return made

    def _keep(self, size: int) -> None:
        with self._lock:
            if self._bytes + size > self._most_bytes:
                raise Busy("too many snapshots are being sent to others")
            self._bytes += size

    def _release(self, replay: Replay) -> None:
        replay.close()
        with self._lock:
            self._bytes -= replay.size

    def _close(self, made: asyncio.Future[Replay]) -> None:
        if not made.cancelled() and made.exception() is None:
            self._release(made.result())
