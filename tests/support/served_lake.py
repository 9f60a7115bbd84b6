"""A lake that a test feeds and refreshes beside whoever reads it, by the kernel."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from jobs.catalog.catalog import Catalog
from jobs.catalog.relations import event_log, relation
from jobs.ingest.logs.local_log import LocalLog
from jobs.ivm.refresh.context import RunContext
from jobs.model.columns import TOMBSTONE
from jobs.model.definitions import Source
from jobs.model.settings import Settings
from jobs.model.stage_columns import spec_of_input
from jobs.run.refresh_views import refresh_all
from jobs.run.schedule import maintained
from jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter
from state_store.commits import CommitRecord
from state_store.delta import reader
from state_store.delta.commit import Rows
from state_store.delta.staging import stage_rows
from state_store.delta.stored_table import StoredTable
from state_store.digest import Digest, digest_of_table
from state_store.kernel.kernel import Kernel
from state_store.layout import Lake

_FIRST = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


class ServedLake:
    """One lake with the definitions of a text. All events have one partition; each is a second after the one before."""

    def __init__(self, settings: Settings, definitions: str) -> None:
        self.settings = settings
        self.lake = Lake(settings.lake)
        assert list(Interpreter(settings).run(definitions))
        self._events = 0

    @property
    def last_event_time(self) -> int:
        """Microseconds since the epoch."""
        return int(self._time(self._events - 1).timestamp()) * 1_000_000

    @contextmanager
    def kernel(self) -> Iterator[Kernel]:
        with Kernel("500MB", 1) as kernel:
            yield kernel

    def append(self, source: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """One commit of events to the event log of a stream or keyed source."""
        definition = Catalog(self.lake).get(source)
        assert isinstance(definition, Source)
        log = event_log(definition) if definition.kind == "table" else relation(source, Catalog(self.lake))
        table = StoredTable(self.lake.table(log.name), spec_of_input(log))
        head = table.ensure(CommitRecord(epoch=0))
        offset = head.record.offsets.get(definition.topic, {}).get("0", 0)
        made = []
        for place, row in enumerate(rows):
            at = self._time(self._events)
            self._events += 1
            meta = {"_partition": 0, "_offset": offset + place, "_timestamp": at, "_stream_time": at}
            made.append({TOMBSTONE: False, **meta, **row} if definition.kind == "table" else {**meta, **row})
        given = pa.Table.from_pylist(made, pa.schema([(name, kind.arrow()) for name, kind in log.columns]))
        record = CommitRecord(
            epoch=head.record.epoch + 1,
            mode="ingest",
            inserted=len(made),
            digest=str(Digest.parse(head.record.digest) + digest_of_table(given.to_batches())),
            offsets={definition.topic: {"0": offset + len(made)}},
            stream_times={definition.topic: {"0": self.last_event_time}},
        )
        table.commit(head, record, Rows(stage_rows(given, table.path, record.epoch, table.spec.indexed)))

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

    def refresh(self, kernel: Kernel, names: Collection[str] | None = None) -> None:
        """Bring these views, or all, to the present heads of their inputs."""
        catalog = Catalog(self.lake)
        levels = maintained(catalog.pipeline(DEFAULT_PIPELINE), catalog)
        chosen = [[item for item in level if names is None or item.name in names] for level in levels]
        context = RunContext(None, self.lake, f"{DEFAULT_PIPELINE}/1", kernel=kernel)
        failures = refresh_all(context, chosen, frozenset()).failures
        assert not failures, failures

    def _time(self, number: int) -> dt.datetime:
        return _FIRST + dt.timedelta(seconds=number)
