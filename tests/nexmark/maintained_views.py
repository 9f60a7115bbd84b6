"""Nexmark's views in DuckDB's memory: maintained batch after batch, and asked again from scratch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark.amendments import amended
from benchmarks.nexmark.generator import Event, Generator, side_input
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Definition, View
from strandline.jobs.session.define.analyze import define
from strandline.jobs.sql.statements import CreateSource, CreateView, Statement, parse
from tests.nexmark.expected import EXPECTED
from tests.support.duck_lake import DuckLake
from tests.support.rule_harness import multiset

PIPELINE = Path(__file__).parents[2] / "jobs" / "pipelines" / "nexmark.sql"
EVENTS = 3000
# 20 events a second are two and a half minutes: windows and sessions of 10 seconds begin and end, and a day ends.
GENERATOR = Generator(rate=20, start=datetime(2015, 7, 14, 23, 59, tzinfo=UTC))


def inserts() -> list[Event]:
    """Events that only add rows."""
    return list(GENERATOR.events(0, EVENTS))


def with_amendments() -> list[Event]:
    """The same, and one bid and auction of twenty is changed or withdrawn later."""
    return list(amended(inserts(), seed=1))


def statements(*, as_tables: bool) -> str:
    """The pipeline's text; people, auctions and bids as tables, where rows can change, or as streams."""
    text = PIPELINE.read_text(encoding="utf-8")
    if as_tables:
        text = text.replace("CREATE STREAM", "CREATE TABLE").replace("BIGINT KEY", "BIGINT PRIMARY KEY")
    return text


@cache
def parsed(*, as_tables: bool) -> tuple[Statement, ...]:
    """The same, read."""
    return tuple(parse(statements(as_tables=as_tables)))


def definitions(catalog: Catalog, views: Sequence[str], *, as_tables: bool) -> list[Definition]:
    """The sources and those views, put into the catalog."""
    for statement in parsed(as_tables=as_tables):
        assert isinstance(statement, CreateSource | CreateView)
        if isinstance(statement, CreateSource) or statement.name in views:
            catalog.add(define(statement, catalog, "nexmark"))
    return catalog.definitions()


class MaintainedViews:
    """Some of the views, maintained."""

    def __init__(self, catalog: Catalog, views: Sequence[str], *, as_tables: bool) -> None:
        self.as_tables = as_tables
        self.lake = DuckLake(catalog, definitions(catalog, views, as_tables=as_tables))
        self.views = {d.name: [c.name for c in d.columns] for d in catalog.definitions() if isinstance(d, View)}
        self.offsets: Counter[str] = Counter()
        self.clocks: dict[str, datetime] = {}
        self._feed("side_input__log", [(row, GENERATOR.start, False) for row in side_input()])

    def take(self, events: Iterable[Event]) -> None:
        """One batch, and the refresh that takes it in."""
        logs: defaultdict[str, list[tuple[dict[str, Any], datetime, bool]]] = defaultdict(list)
        for event in events:
            log = f"{event.kind}__log" if self.as_tables else event.kind
            gone = event.row is None
            row: dict[str, Any] = {"id": event.key} if event.row is None else event.row
            logs[log].append((row, row.get("date_time", GENERATOR.start), gone))
        for log, rows in logs.items():
            self._feed(log, rows)
        self.lake.refresh()

    def rows(self, view: str) -> Counter[tuple[Any, ...]]:
        """The visible rows of a view."""
        names = self.views[view]
        return multiset([row[name] for name in names] for row in self.lake.rows(view))

    def _feed(self, log: str, rows: Sequence[tuple[dict[str, Any], datetime, bool]]) -> None:
        fed = []
        for row, time, gone in rows:
            self.clocks[log] = max(self.clocks.get(log, time), time)
            place = {
                "_partition": 0,
                "_offset": self.offsets[log],
                "_timestamp": time,
                "_stream_time": self.clocks[log],
            }
            fed.append({**row, **place, **({"_tombstone": True} if gone else {})})
            self.offsets[log] += 1
        self.lake.feed(log, fed)


def from_scratch(events: Iterable[Event], views: Sequence[str]) -> dict[str, Counter[tuple[Any, ...]]]:
    """What the views must hold after those events."""
    with holding(events) as db:
        return {view: answers(db, view) for view in views}


def answers(db: duckdb.DuckDBPyConnection, view: str) -> Counter[tuple[Any, ...]]:
    """DuckDB's answer to the view's question."""
    return multiset(db.execute(EXPECTED[view]).fetchall())


def holding(events: Iterable[Event]) -> duckdb.DuckDBPyConnection:
    """A database that holds what is there after those events."""
    kept: dict[str, dict[int, dict[str, Any]]] = {"person": {}, "auction": {}, "bid": {}}
    for event in events:
        kept[event.kind].pop(event.key, None)
        if event.row is not None:
            kept[event.kind][event.key] = event.row
    db = duckdb.connect(config={"threads": 1})
    db.execute("SET TimeZone = 'UTC'")
    tables = {kind: list(rows.values()) for kind, rows in kept.items()}
    for name, rows in {**tables, "side_input": side_input()}.items():
        db.register("given", pa.Table.from_pylist(rows, _schema(name)))
        db.execute(f"CREATE TABLE {name} AS FROM given")
    return db


@cache
def _schema(name: str) -> pa.Schema:
    """The columns of a table, also of one without rows."""
    rows = side_input() if name == "side_input" else [event.row for event in inserts() if event.kind == name]
    return pa.Table.from_pylist(rows).schema
