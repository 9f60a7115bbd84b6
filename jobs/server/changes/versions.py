"""The events of one version for one query, and the process that computes those of queries with expressions.

An expression that anybody may send must not run where all requests are answered: one call of LPAD can take minutes and
gigabytes, and cannot be interrupted. So it runs in a process of its own, with the limits of a pull query for each
version, and ends with that process. A query that only shows columns computes nothing, and is read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.errors import ChangesGone
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


class VersionProcess:
    """The process that computes versions, for all feeds, one at a time. It is started when it is first needed.

    Args:
        limits: of each version.
    """

    def __init__(self, settings: Settings, limits: QueryLimits) -> None:
        self._settings = settings
        self._limits = limits
        self._lock = Lock()
        self._queries: Queries | None = None
        self._closed = False

    def events(self, asked: VersionAsked) -> list[PushedEvent]:
        """The events that are asked for. Any thread may ask.

        Raises:
            Busy: the server ends, or it was not the feed's turn for a minute.
            Others: as of `VersionAsked.events`.
        """
        limited = VersionAsked(asked.made, asked.form, asked.place, asked.table, self._limits)
        return self._started().answer(limited, patience=_TURN_SECONDS)

    def close(self) -> None:
        """End the process, also in the middle of a version."""
        with self._lock:
            queries, self._queries, self._closed = self._queries, None, True
        if queries is not None:
            queries.close()

    def _started(self) -> Queries:
        with self._lock:
            if self._queries is None:
                self._queries = Queries(self._settings, self._limits, 0 if self._closed else 1)
            return self._queries
