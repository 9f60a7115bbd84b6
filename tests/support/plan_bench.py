"""Plans of queries built by hand, maintained on DuckDB epoch after epoch, against the same query over all rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import duckdb
from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log, relation_of
from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import Column, Source, View
from strandline.jobs.model.stage import AggregateCall, Output, Plan
from strandline.jobs.model.stage_columns import relation_of as relation_of_stage
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.logical import Block, From
from strandline.state_store.layout import LakeLayout
from tests.support.duck_lake import DuckLake, Row
from tests.support.memory_runtime import quoted
from tests.support.parsed import parse_expression
from tests.support.rule_harness import multiset

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def source(name: str, kind: Literal["stream", "table"], key: str, **columns: SqlType) -> Source:
    """A source whose columns and key are those."""
    listed = tuple(Column(column, of, column == key) for column, of in columns.items())
    return Source(name, kind, listed, name, "KAFKA", "JSON", "p", "")


def read(made: Source, catalog: Catalog) -> Relation:
    """What a query sees of a source."""
    return relation_of(made) if made.kind == "stream" else relation_of_stage(plan(made, catalog).stages[-1])


def e(text: str) -> exp.Expression:
    """An expression of the language."""
    return parse_expression(text)


def out(name: str, text: str, kind: SqlType) -> Output:
    return Output(name, e(text), kind)


def call(name: str, function: str, *arguments: tuple[str, SqlType], where: str | None = None) -> AggregateCall:
    """A call of an aggregate, bound as the front end does it."""
    bound = FUNCTIONS[function].bind(tuple(e(a) for a, _ in arguments), tuple(kind for _, kind in arguments))
    return AggregateCall(
        name,
        function,
        bound.arguments,
        bound.argument_types,
        bound.type,
        bound.parameters,
        filter=e(where) if where is not None else None,
    )


def block(inputs: Sequence[From], outputs: Sequence[Output], where: str | None = None, **clauses: Any) -> Block:
    return Block(tuple(inputs), e(where) if where is not None else None, tuple(outputs), **clauses)


class PlanBench(DuckLake):
    """Sources fed with events, and plans over them."""

    def __init__(
        self, lake: LakeLayout, sources: Sequence[Source], db: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        super().__init__(Catalog(lake), sources, db)
        self.sources = {each.name: each for each in sources}

    def maintain(self, *plans: Plan) -> None:
        """Maintain these plans as well, from their next refresh on."""
        for each in plans:
            view = View(each.view, "table", (), "", each.inputs, "p", "", "")
            for stage in each.stages:
                self._stage(view, stage)

    def relation(self, name: str) -> Relation:
        return read(self.sources[name], self.catalog)

    def truth(self, sql: str) -> Counter[tuple[Any, ...]]:
        """The rows of a query over what the sources hold now; sources are read with all their stored columns."""
        views = ", ".join(f"{quoted(name)} AS ({self._rows_of(name)})" for name in self.sources)
        return multiset(self.db.execute(f"WITH {views} {sql}").fetchall())

    def shown(self, name: str) -> Counter[tuple[Any, ...]]:
        """The visible rows of a table, without the meta columns."""
        names = [column for column in self.visible(name) if not column.startswith("_")]
        return multiset([[row[column] for column in names] for row in self.rows(name)])

    def _rows_of(self, name: str) -> str:
        return self._side("new", self.relation(name), 0)


@dataclass
class Feeder:
    """Random events for the sources of a bench: inserts, updates, tombstones, nulls, late times; seeded.

    Attributes:
        values: {source: {column: the values it takes}}.
    """

    bench: PlanBench
    values: Mapping[str, Mapping[str, Sequence[Any]]]
    seed: int
    random: random.Random = field(init=False)
    _offsets: Counter[str] = field(default_factory=Counter)
    _times: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def epoch(self, most: int = 4) -> None:
        """Some events for each source, none for some."""
        for name in self.values:
            self.feed(name, [self._event(name) for _ in range(self.random.randint(0, most))])
        self.bench.refresh()

    def feed(self, name: str, rows: Sequence[Row]) -> None:
        made = self.bench.sources[name]
        log = name if made.kind == "stream" else event_log(made).name
        if rows:
            self.bench.feed(log, [self._placed(name, row) for row in rows])

    def _event(self, name: str) -> Row:
        row: Row = {column: self.random.choice(values) for column, values in self.values[name].items()}
        if self.bench.sources[name].kind == "table":
            row["_tombstone"] = self.random.random() < 0.3
        return row

    def _placed(self, name: str, row: Row) -> Row:
        time = EPOCH + timedelta(seconds=self._offsets[name] + self.random.randint(-20, 20))
        latest = self._times[name] = max(time, self._times.get(name, time))
        place = {"_partition": 0, "_offset": self._offsets[name], "_timestamp": time, "_stream_time": latest}
        self._offsets[name] += 1
        return {**place, **row}
