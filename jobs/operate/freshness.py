"""The staleness of a view: for how long the oldest event or change has waited that its rows do not reflect.

    topic ── offset 7 waits since 12:00:03 ──> event log ── version 4 is of 12:00:05 ──> view at version 3

A view is as stale as the oldest thing that waits anywhere above it: here since 12:00:03. When nothing waits, it is
fresh, however long ago its last commit was.

A change that changes no row of a view leaves its vector where it is (`jobs.ivm.refresh.refresh`). So a change does not
wait either when its pipeline has refreshed all views since; the run's heartbeat says when. Commits that change no row
(merged files, a trimmed log, further columns) are waited for by nobody.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.topics import waiting_since
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, InsertQuery, Ownership, Source, View
from strandline.jobs.run.heartbeat import read_beat
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import WholeHeads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.run.heartbeat import Heartbeat


_NEVER: Final = -1
"""In place of the version of an input that a table does not reflect at all."""


class Waiting:
    """What waits above the views of one lake. Each topic, table and heartbeat is looked at once.

    Args:
        heads: of the lake's tables, at that moment.
        log: the topics.
    """

    def __init__(self, catalog: Catalog, heads: WholeHeads, log: Log) -> None:
        self.heads = heads
        self._catalog, self._lake, self._log = catalog, heads.lake, log
        self._known: dict[str, int | None] = {}
        self._beats: dict[str, Heartbeat | None] = {}

    def seconds(self, name: str, now_ms: int) -> float:
        """The staleness of a definition's rows; 0 when nothing waits. Raises as `since`."""
        since = self.since(name)
        return 0.0 if since is None else max(now_ms - since, 0) / 1000

    def since(self, name: str) -> int | None:
        """The moment since when a definition's rows lack something: milliseconds since the epoch; None: nothing waits.

        Raises:
            SourceError: the broker does not answer, or has not what the lake has read.
            StoreError: its table or one above it does not read, is lost, or lacks commits that others have read.
        """
        if name not in self._known:
            self._known[name] = None  # a query that feeds an earlier stream may close a circle
            self._known[name] = min(self._moments(self._catalog.get(name)), default=None)
        return self._known[name]

    def versions(self, name: str) -> int:
        """The versions of all that a definition reads which its rows do not reflect, nor has a refresh found since that
        they change none of its rows. Of what it has never read, all versions."""
        lag = 0
        for _, table, seen, until in self._read(name, never=_NEVER):
            if seen == _NEVER:  # its first versions may be gone
                newest = delta_log.newest_version(self._lake.table(table))
                lag += 0 if newest is None else newest - seen
                continue
            _, versions = self._after(table, seen, until)
            lag += len(versions) if self._first_change(table, versions) is not None else 0
        return lag

    def _moments(self, definition: Definition) -> Iterator[int]:
        self.heads.head(definition.name)
        if isinstance(definition, Source):
            waiting = waiting_since(definition, self._lake, self._log)
            yield from () if waiting is None else (waiting,)
        for each, table, seen, until in self._read(definition.name):
            first = self._first_change(*self._after(table, seen, until))
            yield from () if first is None else (first,)
            above = self._whole(each)
            if above is not None and not isinstance(above, InsertQuery):
                since = self.since(each)
                yield from () if since is None else (since,)

    def _read(self, name: str, never: int = 0) -> Iterator[tuple[str, str, int, int]]:
        """What a definition reads: its name, the table that is read of it, the version that the rows reflect, and the
        moment before which commits have been looked at.

        Args:
            never: in place of the version of what they do not reflect at all. Version 0 only makes a table.
        """
        definition = self._catalog.get(name)
        inputs: list[str] = []
        if isinstance(definition, Source) and definition.kind == "table":
            inputs = [tables.event_log(definition)]
        if isinstance(definition, View):
            inputs = list(definition.inputs)
        for query in self._catalog.whole_queries(name):
            inputs += query.inputs
        seen = self._reflected(name)
        for each in dict.fromkeys(inputs):
            log = tables.log_below(each)
            table = log if log in seen and each not in seen else each  # a join may read the events below a table
            yield each, table, seen.get(table, never), self._looked_at(definition, each)

    def _looked_at(self, definition: Definition, read: str) -> int:
        """The moment before which its pipeline has looked at the commits of what a definition reads; 0 when that is not
        known. What the pipeline commits itself during a refresh, the views above take in before its end."""
        beat = self._beat(definition.pipeline)
        if beat is None or beat.refreshed is None or definition.name in beat.failures:
            return 0
        began, ended = beat.waiting.get(definition.name, (beat.refreshed, beat.settled))
        above = self._whole(tables.definition_of(read))
        if above is None or above.pipeline != definition.pipeline or ended is None:
            return began
        held = isinstance(above, View | Source) and Ownership.read(above.options).blocking
        return began if held else ended

    def _beat(self, pipeline: str) -> Heartbeat | None:
        if pipeline not in self._beats:
            self._beats[pipeline] = read_beat(self._lake, pipeline)
        return self._beats[pipeline]

    def _reflected(self, table: str) -> dict[str, int]:
        """{input: version} by the vectors of a table and of the inner stages that stand in it."""
        head = reader.head(self._lake.table(table))
        found: dict[str, int] = {}
        for entry, version in (head.record.versions if head is not None else {}).items():
            name = entry.rpartition("/")[2]
            found[name] = max(version, found.get(name, 0))
            owner = tables.definition_of(name)
            if owner not in self._catalog.broken and self._catalog.find(owner) is None:
                found |= self._reflected(name)
        return found

    def _whole(self, name: str) -> Definition | None:
        """A definition whose file is whole; a broken one is said elsewhere."""
        return None if name in self._catalog.broken else self._catalog.find(name)

    def _after(self, table: str, version: int, moment: int) -> tuple[str, range]:
        """The table, and its versions after one that were committed after a moment."""
        path = self._lake.table(table)
        newest = delta_log.newest_version(path)
        versions = range(version + 1, (-1 if newest is None else newest) + 1)
        first = bisect_right(versions, moment, key=lambda each: delta_log.read_commit(path, each).timestamp)
        return table, versions[first:]

    def _first_change(self, table: str, versions: range) -> int | None:
        """The time of the first of these commits that changes rows."""
        commits = (delta_log.read_commit(self._lake.table(table), each) for each in versions)
        return next((commit.timestamp for commit in commits if commit.changes_rows), None)
