"""Whole pipelines in DuckDB's memory, by the same rules that Spark runs in production: no JVM, no files, milliseconds.

    lake = DuckLake(catalog, catalog.definitions())
    lake.feed("visit", [{"product": "Apple", "length": 10, "_partition": 0, "_offset": 0, …}])
    lake.refresh()
    assert lake.rows("totals") == [{"product": "Apple", "total": 10}]

Each refresh checks by itself that a key is settled once, that `__old` is what is stored, and that a rule gives the
types its table has.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log, relation_of
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.late import with_late_rows
from strandline.jobs.ivm.refresh.runtime import maintain
from strandline.jobs.ivm.rules.stored import stored_columns
from strandline.jobs.model.definitions import Definition, InsertQuery, Source
from strandline.jobs.model.stage import Input, RecursiveStage, Stage, inputs_of
from strandline.jobs.model.stage_columns import key_names, storage_of
from strandline.jobs.model.tables import TOMBSTONE, Relation
from strandline.state_store.commits import CommitRecord
from strandline.state_store.tablespec import STATE
from tests.support import oracle
from tests.support.memory_runtime import FROM, TO, MemoryRuntime, MemoryTable, quoted, stored_path
from tests.support.stage_rule import StageRule

Row = dict[str, Any]

_schemas = itertools.count(1)


@dataclass
class _Kept:
    """A stage as this lake runs it; `since` is the epoch it was last refreshed in, None before the first; `late` are
    the late rows of its record."""

    definition: str
    stage: Stage
    since: int | None = None
    late: int | None = None
    rule: StageRule = field(init=False)

    def __post_init__(self) -> None:
        self.rule = StageRule(self.stage)


class DuckLake:
    """The tables of some definitions, fed by hand and refreshed epoch after epoch.

    Args:
        definitions: what is maintained; all that it reads must be among them.
        db: a connection to work in (in a schema of its own); to open one costs as much as several refreshes.
    """

    def __init__(
        self, catalog: Catalog, definitions: Sequence[Definition], db: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        self.catalog = catalog
        self.db = db if db is not None else duckdb.connect(config={"threads": 1})
        self.db.execute("SET TimeZone = 'UTC'")
        self.db.execute("SET disabled_optimizers = 'statistics_propagation'")
        self.schema = f"lake_{next(_schemas)}"
        self.db.execute(f"CREATE SCHEMA {self.schema}")
        self.epoch = 0
        self.stores: dict[str, MemoryTable] = {}
        self.kept: list[_Kept] = []
        self.recomputations: dict[str, list[oracle.Recomputation]] = {}
        self.define(definitions)

    def close(self) -> None:
        """Forget the tables; the connection stays open."""
        self.db.execute(f"DROP SCHEMA {self.schema} CASCADE")

    def define(self, definitions: Sequence[Definition]) -> None:
        """Maintain more definitions; they start with their next refresh, over all history."""
        for definition in definitions:
            if isinstance(definition, Source):
                self._source(definition)
        for definition in definitions:
            if not (isinstance(definition, Source) and definition.kind == "stream"):
                for stage in plan(definition, self.catalog).stages:
                    self._stage(definition, stage)
        self.kept = list(_in_order(self.kept))

    def feed(self, log: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append events to a stream or to `<table>__log`; the next refresh takes them in. Columns left out are NULL."""
        store = self.stores[log]
        given: Row = {TOMBSTONE: False} if TOMBSTONE in dict(store.columns) else {}
        store.feed([given | dict(row) for row in rows], self.epoch + 1)

    def refresh(self, only: Collection[str] | None = None) -> None:
        """Bring all definitions, or only some, to the newest epoch: what was read as old has then been read as new."""
        self.epoch += 1
        for kept in self.kept:
            if only is None or kept.definition in only:
                self._refresh(kept)

    def recompute(self, name: str) -> None:
        """Compute all rows of a table anew and store what differs, as REFRESH = 'full' does."""
        self.epoch += 1
        for kept in self.kept:
            if kept.stage.table == name:
                self._maintain(kept, None, anew=True)
            kept.since = self.epoch

    def rows(self, name: str) -> list[Row]:
        """The visible rows (of an append-only table with the meta columns)."""
        return self.fetch(self.visible_sql(name))

    def visible_sql(self, name: str) -> str:
        """A SELECT of the visible columns of the rows there are."""
        return f"SELECT {', '.join(map(quoted, self.visible(name)))} FROM ({self.stores[name].at(self.epoch)})"

    def visible(self, name: str) -> list[str]:
        """The names of the visible columns."""
        return [column for column, _ in self.stores[name].columns if column != STATE]

    def changes(self, name: str) -> list[tuple[int, Row]]:
        """What the last refresh did to the visible rows: (weight, row), the old row of a key before the new one."""
        store = self.stores[name]
        stage = next((kept.stage for kept in self.kept if kept.stage.table == name), None)
        keyed = stage is not None and storage_of(stage) == "keyed"
        keys = [stored_path(stage, each) for each in key_names(stage)] if stage and keyed else []
        order = ", ".join([*keys, FROM]) if keyed else "rowid"
        found = self.fetch(
            f"SELECT {', '.join(map(quoted, self.visible(name)))}, {FROM} FROM {store.table}"
            f" WHERE ({FROM} = {self.epoch}) <> ({TO} = {self.epoch}) ORDER BY {order}"
        )
        weighed = [(1 if row.pop(FROM) == self.epoch else -1, row) for row in found]
        return list(_visible_changes(weighed)) if keyed else weighed

    def fetch(self, sql: str) -> list[Row]:
        """The rows of a query."""
        result = self.db.execute(sql)
        assert result.description is not None
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def expected(self, name: str) -> list[Row]:
        """What the visible rows of a view or keyed source must be: its own SELECT over its inputs as it last saw them.

        An event joined what was there of a frozen input in the epoch in which the event came.
        """
        rows: list[Row] = []
        for each in self._recomputations(name):
            inputs = [
                f"{quoted(relation.name)} AS ({self._seen(relation, name, past=relation.name in each.looked_up)})"
                for relation in each.relations
            ]
            rows += self.fetch(f"WITH {', '.join(inputs)} {each.sql}" if inputs else each.sql)
        return rows

    def wrong(self, name: str) -> str:
        """What is wrong with the rows of a view or keyed source, in words; empty when nothing is."""
        definition = self.catalog.get(name)
        assert not isinstance(definition, InsertQuery)
        columns = [column.name for column in definition.columns]
        actual, expected = (oracle.counted(rows, columns) for rows in (self.rows(name), self.expected(name)))
        return oracle.difference(definition, actual, expected)

    def since(self, name: str) -> int:
        """The epoch that the table `name` reflects."""
        return max((kept.since or 0 for kept in self.kept if kept.stage.table == name), default=self.epoch)

    def late(self, name: str) -> int | None:
        """The late rows of all stages of a definition, as its records say; None where no row is ever late."""
        counts = [kept.late for kept in self.kept if kept.definition == name and kept.late is not None]
        return sum(counts) if counts else None

    # --- inside -----------------------------------------------------------------------------------------------

    def _recomputations(self, name: str) -> list[oracle.Recomputation]:
        if name not in self.recomputations:
            self.recomputations[name] = oracle.recomputations(name, self.catalog, _was_there)
        return self.recomputations[name]

    def _seen(self, relation: Relation, by: str, *, past: bool) -> str:
        """SELECT of an input's rows as the table `by` last saw them, with those before where it looks them up."""
        store = self.stores[relation.name]
        return store.ever(relation, FROM, TO) if past else store.at(self.since(by), relation, FROM, TO)

    def _source(self, source: Source) -> None:
        fed = relation_of(source) if source.kind == "stream" else event_log(source)
        self.stores[fed.name] = MemoryTable(self.db, self.schema, fed.name, fed.columns)

    def _stage(self, definition: Definition, stage: Stage) -> None:
        owner = definition.name
        if isinstance(definition, InsertQuery):
            self.kept.append(_Kept(owner, stage))
            return
        if any(kept.stage.table == stage.table for kept in self.kept):
            return  # a stage that views share is maintained once
        self.stores[stage.table] = MemoryTable(self.db, self.schema, stage.table, stored_columns(stage))
        self.kept.append(_Kept(owner, stage))

    def _refresh(self, kept: _Kept) -> None:
        changed = self._changed(kept)
        if changed is None or changed:
            self._maintain(kept, changed)
        kept.since = self.epoch

    def _maintain(self, kept: _Kept, changed: frozenset[str] | None, *, anew: bool = False) -> None:
        since = kept.since or 0

        def side(which: str, each: Input) -> str:
            return self._side(which, each.relation, since)

        runtime = MemoryRuntime(kept.stage, self.stores[kept.stage.table], side, since)
        record = with_late_rows(runtime, kept.stage, CommitRecord(epoch=self.epoch, late=kept.late), changed)
        maintain(runtime, kept.stage, kept.rule.text(changed), record, anew=anew)
        kept.late = record.late

    def _changed(self, kept: _Kept) -> frozenset[str] | None:
        if kept.since is None:
            return None
        since = kept.since
        moved = [each.alias for each in inputs_of(kept.stage) if self.stores[each.relation.name].moved > since]
        if moved and isinstance(kept.stage, RecursiveStage):
            return None  # that rows only came is what commits say, and here there are none
        return frozenset(moved)

    def _side(self, side: str, relation: Relation, since: int) -> str:
        store = self.stores[relation.name]
        if side == "delta":
            return store.delta(since, self.epoch, relation)
        return store.at(since if side == "old" else self.epoch, relation)


def _was_there(events: str, frozen: str) -> str:
    """The condition that a row was there in the epoch in which an event came."""
    came = f"{quoted(events)}.{FROM}"
    return f"{quoted(frozen)}.{FROM} <= {came} AND {quoted(frozen)}.{TO} > {came}"


def _in_order(todo: Sequence[_Kept]) -> Iterator[_Kept]:
    """Writers of a table before its readers, otherwise as given."""
    waiting = list(todo)
    while waiting:
        written = [kept.stage.table for kept in waiting]
        ready = next(
            (k for k in waiting if not any(each.relation.name in written for each in inputs_of(k.stage))), None
        )
        assert ready is not None, f"these read each other in a circle: {written}"
        waiting.remove(ready)
        yield ready


def _visible_changes(weighed: Sequence[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
    """Without the pairs (old, new) that look the same: only `__state` changed."""
    pending: tuple[int, Row] | None = None
    for change in weighed:
        if pending is not None and pending[0] < 0 < change[0] and pending[1] == change[1]:
            pending = None
            continue
        if pending is not None:
            yield pending
        pending = change
    if pending is not None:
        yield pending
