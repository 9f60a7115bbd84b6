"""The partial views of a server: each opened when it is first read, and followed by a thread of its own.

first read ──> opened at the newest cut ──> answers        told of a commit below ──> touched keys dropped, next cut
                                                           dropped, or made anew  ──> let go, with what it keeps
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING

from strandline.jobs.model.definitions import View
from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.partial.pull import Upqueries
from strandline.jobs.partial.view import PartialView
from strandline.jobs.serve.query_engine import QueryDatabase
from strandline.jobs.serve.watch import Poller
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.functions.python import Library
    from strandline.jobs.serve.catalogued import Catalogued
    from strandline.jobs.serve.terms import QueryLimits
    from strandline.state_store.layout import LakeLayout

log = logging.getLogger("strandline.server")


class FollowedPartial(Poller):
    """One partial view and the thread that advances it. Who reads it when it is stopped still gets the rows of its cut.

    Args:
        wanted: asked in that thread now and then; False ends it.
        moved: called in that thread with the view's name when readers see a newer cut.
    """

    def __init__(
        self,
        definition: View,
        view: PartialView,
        wanted: Callable[[FollowedPartial], bool],
        moved: Callable[[str], None],
    ) -> None:
        self.definition = definition
        self.view = view
        self._wanted = wanted
        self._moved = moved
        super().__init__(f"partial {definition.name}")
        self.begin()

    def look(self) -> bool:
        try:
            if not self._wanted(self):
                return False
            if self.view.advance():
                self._moved(self.definition.name)
        except StrandlineError as error:
            log.warning("a partial view stands still", extra={"view": self.definition.name, "error": error.attrs()})
        return True


class Partials:
    """The partial views of a server. Any thread may ask.

    Args:
        library: gives the functions that users wrote.
        moved: called with the name of a view when its readers see a newer cut.
    """

    def __init__(
        self,
        lake: LakeLayout,
        catalogued: Catalogued,
        library: Callable[[], Library],
        limits: QueryLimits,
        moved: Callable[[str], None],
    ) -> None:
        self._lake = lake
        self._catalogued = catalogued
        self._library = library
        self._limits = limits
        self._database = QueryDatabase(limits.memory_bytes)
        self._moved = moved
        self._lock = Lock()
        self._followed: dict[str, FollowedPartial] = {}

    def is_partial(self, name: str) -> bool:
        """True if that is a partial view."""
        found = self._catalogued.catalog.find(name)
        return isinstance(found, View) and found.partial

    def of(self, name: str) -> PartialView:
        """A partial view, at work. Reads the log of its inputs when it is opened.

        Raises: as `jobs.partial.plan.partial_plan` and `PartialView.advance`.
        """
        with self._lock:
            catalog = self._catalogued.catalog
            definition = catalog.get(name)
            assert isinstance(definition, View)
            found = self._followed.get(name)
            if found is not None and found.definition != definition:
                self._followed.pop(name).stop()
                found = None
            if found is None:
                plan = partial_plan(definition, catalog)
                upqueries = Upqueries(plan, self._lake, self._library(), self._limits, self._database)
                view = PartialView(plan, self._lake, upqueries, definition.maintenance.cache_bytes)
                view.advance()
                found = FollowedPartial(definition, view, self._is_wanted, self._moved)
                self._followed[name] = found
        return found.view

    def find(self, name: str) -> PartialView | None:
        """A partial view that was read before, if it still has that definition. Does not wait."""
        found = self._followed.get(name)
        return found.view if found is not None and found.definition == self._catalogued.catalog.find(name) else None

    def told(self, table: str) -> None:
        """A table may have a new version."""
        for each in self.all():
            if table in each.view.plan.inputs:
                each.wake()

    def tables(self) -> set[str]:
        """The tables below the views that were read."""
        return {name for each in self.all() for name in each.view.plan.inputs}

    def all(self) -> list[FollowedPartial]:
        """Those that were read."""
        return list(self._followed.values())

    def _is_wanted(self, followed: FollowedPartial) -> bool:
        """False if the view was dropped, or made anew; then it is no longer among those that were read."""
        name = followed.definition.name
        if self._catalogued.catalog.find(name) == followed.definition:
            return True
        with self._lock:
            if self._followed.get(name) is followed:
                del self._followed[name]
        return False

    def close(self) -> None:
        """End all of them."""
        for each in self.all():
            each.close()
        self._database.close()
