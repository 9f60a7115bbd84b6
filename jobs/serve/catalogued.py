"""The relations that a query can read: those of the catalog as it stands, which a process that serves reads again when
another one has changed it, and the tables that come with them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import companion, visible_relation
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.errors import NotSupported, UnknownName
from strandline.jobs.query.clauses.from_functions import is_unnest, window_function
from strandline.jobs.sql.dialect import quote
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.tables import Relation
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


def readable_named(name: str, catalog: Catalog) -> Relation:
    """The relation of that name, as a query sees it.

    Raises:
        UnknownName: there is none; the nearest names are proposed.
        CorruptState: the file of its definition is broken.
    """
    found = catalog.find(name)
    relation = companion(name, catalog) if found is None else None
    if relation is not None:
        return relation
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream, table or view", name, catalog.relations())
    return visible_relation(found)


CHANGES: Final = "table_changes"
"""The changes between two versions of a table, in FROM: Delta's name for it."""
_CALLED_SO: Final = (CHANGES, "changes")


def changes_call(table: exp.Table) -> exp.Anonymous | None:
    """The call of `table_changes('t', 3, 7)`, or `CHANGES(t, 3, 7)`, that stands in FROM; None for another input."""
    call = table.this
    return call if isinstance(call, exp.Anonymous) and call.name.lower() in _CALLED_SO else None


def names_read(query: exp.Query, catalog: Catalog) -> list[str]:
    """The names in FROM, for whoever checks what may be read; that of a WITH alone is none of them.

    One of a WITH that a relation has as well counts: which of the two it means differs from place to place
    (`WITH a AS (SELECT … FROM a)` reads the relation). TUMBLE and its like, and `table_changes`, read the table that is
    their first argument.

    Raises:
        InvalidQuery: a window function in FROM has other arguments.
    """
    named: set[str] = set()
    for table in query.find_all(exp.Table):
        call = changes_call(table)
        if call is not None:
            named |= {catalog.name_map.stored(each.name) for each in call.expressions[:1]}
            continue
        windowed = window_function(table)
        found = windowed.find_all(exp.Table) if windowed is not None else () if is_unnest(table) else (table,)
        named |= {each.name for each in found}
    subqueries = {each.alias for each in query.find_all(exp.CTE)}
    return sorted(name for name in named if name not in subqueries or _is_relation(name, catalog))


def check_stored(names: Iterable[str], catalog: Catalog) -> None:
    """Check that these relations have tables.

    Raises:
        NotSupported: one is a partial view.
    """
    for name in names:
        found = catalog.find(name)
        if isinstance(found, View) and found.partial:
            raise NotSupported(
                sentence("'{}' is a partial view: nothing is stored of it, so it has no changes to follow", Name(name)),
                hint=sentence(
                    "SELECT … FROM {} WHERE … by its key; or create it without STATE = 'partial'", Name(name, quote)
                ),
            )


def _is_relation(name: str, catalog: Catalog) -> bool:
    found = catalog.find(name)
    return companion(name, catalog) is not None if found is None else not isinstance(found, InsertQuery)
