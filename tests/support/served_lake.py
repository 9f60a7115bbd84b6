"""A lake that a test feeds and refreshes beside whoever reads it, by DuckDB."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.tables import TOMBSTONE
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained, tables_of
from strandline.jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter
from strandline.state_store.commits import CommitRecord, ReachedNotes
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.support.event_commits import commit_events, log_table

_FIRST = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


class ServedLake:
    """One lake with the definitions of a text. All events have one partition; each is a second after the one before."""

    def __init__(self, settings: Settings, definitions: str) -> None:
        self.settings = settings
        self.lake = LakeLayout(settings.lake)
        assert list(Interpreter(settings).run(definitions))
        self._events = 0

    @property
    def last_event_time(self) -> int:
        """Microseconds since the epoch."""
        return int(self._time(self._events - 1).timestamp()) * 1_000_000

    @contextmanager
    def duckdb_engine(self) -> Iterator[DuckDBEngine]:
        with DuckDBEngine("500MB", 1) as duckdb_engine:
            yield duckdb_engine

    def append(self, source: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """One commit of events to the event log of a stream or keyed source."""
        definition = Catalog(self.lake).get(source)
        assert isinstance(definition, Source)
        head = log_table(self.lake, definition).ensure(CommitRecord(epoch=0))
        offset = head.record.offsets.get(definition.topic, {}).get("0", 0)
        made = []
        for place, row in enumerate(rows):
            at = self._time(self._events)
            self._events += 1
            meta = {"_partition": 0, "_offset": offset + place, "_timestamp": at, "_stream_time": at}
            made.append({TOMBSTONE: False, **meta, **row} if definition.kind == "table" else {**meta, **row})
        log = LocalLog(self.lake)
        topic_id = log.identity(definition.topic).id if log.exists(definition.topic) else ""
        commit_events(self.lake, definition, made, topic_id)

    def ingest(self, source: str) -> None:
        """Take in what a stream's topic holds and its event log does not: JSON with a BIGINT key, one partition."""
        definition = Catalog(self.lake).get(source)
        assert isinstance(definition, Source)
        log = LocalLog(self.lake)
        head = reader.head(self.lake.table(source))
        done = head.record.offsets.get(definition.topic, {}).get("0", 0) if head else 0
        rows: list[dict[str, Any]] = []
        for run in log.read(definition.topic, 0, done, log.end_offsets(definition.topic)[0]):
            for key, value in zip(run.keys, run.values, strict=True):
                fields = {name.lower(): field for name, field in json.loads(value or b"{}").items()}
                (name,) = definition.key
                rows.append({**fields, name: int.from_bytes(key or b"", "big")})
        if rows:
            self.append(source, rows)

    def refresh(self, duckdb_engine: DuckDBEngine, names: Collection[str] | None = None) -> None:
        """Bring these views, or all, to the present heads of their inputs."""
        catalog = Catalog(self.lake)
        levels = maintained(catalog.pipeline(DEFAULT_PIPELINE), catalog)
        chosen = [[item for item in level if names is None or item.name in names] for level in levels]
        context = RunContext(None, self.lake, f"{DEFAULT_PIPELINE}/1", duckdb_engine=duckdb_engine)
        done = refresh_all(context, chosen, frozenset())
        assert not done.failures, done.failures
        notes = ReachedNotes(self.lake, DEFAULT_PIPELINE, tables_of(levels))
        notes.note({result.table for result in done.stages}, done.reached)

    def _time(self, number: int) -> dt.datetime:
        return _FIRST + dt.timedelta(seconds=number)
