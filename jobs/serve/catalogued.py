"""The catalog as it stands, for a process that serves: read again when another one has changed it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.serve.readable import readable_named

if TYPE_CHECKING:
    from strandline.jobs.model.relation import Relation
    from strandline.state_store.layout import LakeLayout

_LOOK_SECONDS: Final = 0.01
"""On a disk a definition that is made elsewhere is seen that much later: a look takes as long as a read of a replica,
and thousands of requests a second need not each have one."""
_SECONDS: Final = 5.0
"""On an object store it is seen that much later."""
_SWAP_SECONDS: Final = 1.0
"""While a view is being replaced the catalog is read again so often: it takes some milliseconds."""
_REPLACING: Final = "replacing"
_FOLDERS: Final = ("", "functions", "dropping", "swapping", _REPLACING)
"""Of the catalog: all that says which definitions there are. They are looked at as text, which is twice as fast."""


class Catalogued:
    """The relations of a lake. Any thread may ask.

    Args:
        look_seconds: the catalog may be so old.
    """

    def __init__(self, lake: LakeLayout, look_seconds: float = _LOOK_SECONDS) -> None:
        self._lake = lake
        self._look_seconds = look_seconds
        self._lock = Lock()
        self._mark = _mark(lake)
        self._looked = time.monotonic()
        self._catalog = Catalog(lake)
        self._relations: dict[str, tuple[Catalog, Relation]] = {}

    @property
    def catalog(self) -> Catalog:
        """The definitions as they are now."""
        now = time.monotonic()
        if now - self._looked < self._look_seconds:
            return self._catalog
        self._looked = now
        # Before the files are read: what changes meanwhile is read again at the next look.
        mark = _mark(self._lake)
        if mark != self._mark:
            with self._lock:
                self._catalog = Catalog(self._lake)
                self._mark = mark
        return self._catalog

    def relation(self, name: str) -> Relation:
        """A stream, table or view as a query sees it.

        Raises:
            UnknownName: there is none of that name.
        """
        catalog = self.catalog
        known = self._relations.get(name)
        if known is None or known[0] is not catalog:
            # With its catalog: another thread may have read a newer one meanwhile.
            known = self._relations[name] = (catalog, readable_named(name, catalog))
        return known[1]

    def definition(self, name: str) -> Source | View:
        """The definition of a stream, table or view. Raises UnknownName."""
        found = self.catalog.find(name)
        if not isinstance(found, Source | View):
            raise UnknownName.among("stream, table or view", name, self.catalog.relations())
        return found

    def source(self, name: str) -> Source:
        """A stream or table that events can be inserted into.

        Raises:
            UnknownName: there is none of that name.
        """
        catalog = self.catalog
        found = catalog.find(name)
        if not isinstance(found, Source):
            known = (catalog.name_map.of(each.name) for each in catalog.definitions() if isinstance(each, Source))
            raise UnknownName.among("stream or table", name, known)
        return found

    def views(self) -> list[Source | View]:
        """What can be read by name, in the order of creation."""
        return [each for each in self.catalog.definitions() if isinstance(each, Source | View)]


def _mark(lake: LakeLayout) -> tuple[object, ...]:
    """Another one when a definition was added, changed or removed, or a drop or a replacement began or ended.

    Each is a file that is renamed into its folder: another file of the name, even within one tick of the disk's clock.
    """
    if not isinstance(lake.catalog, Path):
        return (int(time.monotonic() / _SECONDS),)
    found = [_listed(os.path.join(lake.catalog, each)) for each in _FOLDERS]
    _, intents = found[_FOLDERS.index(_REPLACING)]
    # The swap of a definition is a commit of the view's table, which none of the folders tells.
    swapped = int(time.monotonic() / _SWAP_SECONDS) if intents else None
    return (*found, swapped)


def _listed(folder: str) -> tuple[int, list[tuple[str, int]]]:
    """The folder's time, and the names in it with their files' numbers; a number may come again later."""
    try:
        with os.scandir(folder) as entries:
            return os.stat(folder).st_mtime_ns, [(each.name, each.inode()) for each in entries]
    except FileNotFoundError:
        return 0, []
