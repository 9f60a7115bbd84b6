"""The events of one version for one query, and the processes that compute those of queries with expressions.

An expression that anybody may send must not run where all requests are answered: one call of LPAD can take minutes and
gigabytes, and cannot be interrupted. So it runs in another process, with the limits of a pull query for each version,
and ends with that process. A query that only shows columns computes nothing, and is read here.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.serve.errors import Busy, ChangesGone, TimeLimit, TooLarge
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.terms import NO_LIMITS, QueryBudget, QueryLimits, Terms
from strandline.jobs.server.changes.events import Place, events_of
from strandline.jobs.server.queries.pool import Queries
from strandline.state_store.errors import VersionGone
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.subscription import Subscription
    from strandline.jobs.server.changes.events import Form, PushedEvent
    from strandline.jobs.server.queries.worker import Shared

_TURN_SECONDS: Final = 60.0
"""A feed waits so long for its turn: others may each have a version to compute, which takes up to its limit of time."""
_MOMENT_SECONDS: Final = 0.25
"""A version that takes longer is computed beside those that do not."""
_REMEMBERED: Final = 4_096
"""Queries of which it is known where they are computed."""

Lane = Literal["quick", "patient"]


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
            ChangesGone: they are not kept any more.
            InvalidQuery: an expression fails on a row.
            TimeLimit, TooLarge: it takes more than it may.
            StoreError: the table cannot be read.
        """
        version = self.place.version if self.place.sent is not None else self.place.version + 1
        try:
            changes = self.made.snapshot(version) if self.place.snapshot else self.made.changes(version - 1, version)
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
        self._started: dict[Lane, Queries] = {}
        self._lanes: OrderedDict[tuple[str, bool], Lane] = OrderedDict()
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

    def _ask(self, lane: Lane, asked: VersionAsked, limits: QueryLimits) -> list[PushedEvent]:
        return self._queries(lane).answer(replace(asked, limits=limits), patience=_TURN_SECONDS)

    def _note(self, name: tuple[str, bool], lane: Lane) -> None:
        with self._lock:
            self._lanes[name] = lane
            self._lanes.move_to_end(name)
            while len(self._lanes) > _REMEMBERED:
                self._lanes.popitem(last=False)

    def _queries(self, lane: Lane) -> Queries:
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
