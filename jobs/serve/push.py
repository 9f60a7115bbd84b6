"""Push queries: the present rows of one table as changes, then every change as it is committed.

    version V ──> snapshot ──┐
    V+1, V+2, … ──> changes ─┴─> subscription ──> rows, tombstones, weighted rows

For a stream each event is a row, in the order of the stream.
"""

from __future__ import annotations

from itertools import islice
from threading import Event
from typing import TYPE_CHECKING

from strandline.jobs.serve.duck import Duck
from strandline.jobs.serve.results import LiveRows
from strandline.jobs.serve.subscription import subscription
from strandline.jobs.serve.watch import Watch
from strandline.state_store.delta.heads import newest_version
from strandline.state_store.errors import TableMissing
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python.register import Library
    from strandline.jobs.serve.subscription import Change, Subscription
    from strandline.jobs.sql.syntax import Select
    from strandline.state_store.layout import Lake

# Only so that Ctrl-C is seen: a commit ends the wait at once.
_WAIT_SECONDS = 1.0


def push(statement: Select, catalog: Catalog, lake: Lake, functions: Library, *, from_latest: bool = False) -> LiveRows:
    """Subscribe to the changes of one stream, table or view.

    Args:
        functions: those that users wrote.
        from_latest: leave out the present rows of the table.

    Raises:
        NotSupported: the query does more than filter and project; the message names the clause.
        SqlError: the query is refused. And while rows are read, StoreError: the table cannot be read.
    """
    made = subscription(statement, catalog, lake)
    changes = _follow(made, lake, functions, from_latest=from_latest)
    return LiveRows(made.names, islice(changes, statement.limit), marked=not made.shows_deletions)


def _follow(made: Subscription, lake: Lake, functions: Library, *, from_latest: bool) -> Iterator[Change]:
    """The changes, without end."""
    name, moved = made.relation.name, Event()

    def told(table: str) -> None:
        if table == name:
            moved.set()

    with Duck(functions) as duck, Watch(lake, told, lambda: [name]):
        version = _newest(made, lake)
        if version >= 0 and not from_latest:
            yield from made.visible(duck, made.snapshot(version))
        while True:
            # Before the look: a commit after it ends the next wait.
            moved.clear()
            newest = _newest(made, lake)
            if newest < version:
                raise TableMissing(
                    sentence("'{}' was dropped, or made anew", Name(name)), hint="subscribe again to what is there"
                )
            if newest > version:
                yield from made.visible(duck, made.changes(version, newest))
                version = newest
            moved.wait(_WAIT_SECONDS)


def _newest(made: Subscription, lake: Lake) -> int:
    """The newest version; −1 while there is no table yet, so that every version is a change. Raises TableLost."""
    version = newest_version(lake, made.relation.name)
    return -1 if version is None else version
