"""A case, lived through: its steps with detours, cut anywhere, each view checked at every cut.

Between two steps a table's row may come first with other values, or come and go; rows that are in no step come and go
too. So what the suite says in one INSERT reaches the views as insertions, updates and deletions, in an order of its
own for each seed. Nothing of that may be seen once the step is done.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb

from strandline.jobs.model.definitions import Source, View
from tests.outside.cases import Case, Row, Step
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.examples import AT_LENGTH
from tests.support.memory_catalog import MemoryCatalog
from tests.support.rule_harness import multiset

Event = tuple[str, Row]
"""(name of the source, row); a row of the key alone is a deletion."""

# An epoch costs some ten milliseconds for each view: a case of many steps is not cut inside of them as well.
_CUTS = 3 if AT_LENGTH else 1
_DETOURS = 0.4
_GHOSTS = 2
_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


class FollowedCase:
    """A case's tables and views, maintained."""

    def __init__(self, case: Case, db: duckdb.DuckDBPyConnection, seed: int) -> None:
        self.case = case
        self._pick = random.Random(seed)
        catalog = MemoryCatalog()
        run(case.sources, catalog)
        for name, view in case.views.items():
            run(f"CREATE MATERIALIZED VIEW {name} AS {view.select};", catalog)
        self.sources = {each.name: each for each in catalog.definitions() if isinstance(each, Source)}
        self.columns = {
            each.name: [c.name for c in each.columns] for each in catalog.definitions() if isinstance(each, View)
        }
        self.lake = DuckLake(catalog, catalog.definitions(), db)
        self._offsets: Counter[str] = Counter()
        self._clock = _BEGIN

    def close(self) -> None:
        """Forget the tables."""
        self.lake.close()

    def wrong(self) -> str:
        """What is wrong first, in words; empty when nothing is."""
        for number, step in enumerate(self.case.steps):
            for batch in self._cut(list(self._with_detours(step))):
                self._take(batch)
                for name in self.case.views:
                    found = self.lake.wrong(name)
                    if found:
                        return f"step {number}, against recomputation: {found}"
            for name, view in self.case.views.items():
                if number in view.shows and self._rows(name) != multiset(view.shows[number]):
                    return f"step {number}, against the suite: '{name}' is {self._rows(name)}"
        return ""

    def _rows(self, view: str) -> Counter[tuple[Any, ...]]:
        names = self.columns[view]
        return multiset([row[name] for name in names] for row in self.lake.rows(view))

    def _take(self, events: Sequence[Event]) -> None:
        logs: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for name, row in events:
            source = self.sources[name]
            columns = dict(zip([c.name for c in source.columns], row, strict=False))
            if source.timestamp is not None:
                self._clock = max(self._clock, columns[source.timestamp])
            log = name if source.kind == "stream" else f"{name}__log"
            place = {"_partition": 0, "_offset": self._offsets[log], "_stream_time": self._clock}
            gone = {"_tombstone": True} if _is_deletion(row) and source.kind == "table" else {}
            logs[log].append({**columns, **place, "_timestamp": columns.get(source.timestamp or "", _BEGIN), **gone})
            self._offsets[log] += 1
        for log, rows in logs.items():
            self.lake.feed(log, rows)
        self.lake.refresh()

    def _cut(self, events: Sequence[Event]) -> Iterator[Sequence[Event]]:
        cuts = sorted(self._pick.randint(0, len(events)) for _ in range(_CUTS // len(self.case.steps)))
        for begin, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
            yield events[begin:end]

    def _with_detours(self, step: Step) -> Iterator[Event]:
        """The events of a step, those of one key in their order, otherwise in any."""
        waiting: list[list[Event]] = []
        for name, rows in step.items():
            if self.sources[name].kind == "stream":
                waiting.append([(name, row) for row in rows])
                continue
            waiting += [[*self._detour(name, row[:1]), (name, row)] for row in rows]
            for ghost in range(self._pick.randint(0, _GHOSTS)):
                key = (-1 - ghost,) if isinstance(rows[0][0], int) else (f"ghost {ghost}",)
                waiting.append([(name, self._any_row(name, key)), (name, key)])
        while waiting:
            chosen = self._pick.choice(waiting)
            yield chosen.pop(0)
            waiting = [each for each in waiting if each]

    def _detour(self, name: str, key: Row) -> list[Event]:
        if self._pick.random() > _DETOURS:
            return []
        there: Event = (name, self._any_row(name, key))
        return [there, (name, key)] if self._pick.random() < _DETOURS else [there]

    def _any_row(self, name: str, key: Row) -> Row:
        """A row of that key, each value from some row of the case."""
        rows = [row for step in self.case.steps for row in step.get(name, ()) if not _is_deletion(row)]
        return (*key, *(self._pick.choice(rows)[at] for at in range(1, len(rows[0]))))


def _is_deletion(row: Row) -> bool:
    return len(row) == 1
