"""A pipeline of many small epochs, refreshed by DuckDB, with compaction as it goes and maintenance now and then."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import pyarrow as pa

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import RetentionSettings, Settings
from strandline.jobs.model.tables import META_COLUMNS
from strandline.jobs.operate.maintenance import MaintenanceResult, execute_maintenance, plan_maintenance
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import sizes_below

STATEMENTS = """
    CREATE STREAM visits (page INT, seconds INT) WITH (KAFKA_TOPIC = 'visits', PARTITIONS = 1);
    CREATE TABLE totals AS SELECT page, COUNT(*) AS n, MAX(seconds) AS most FROM visits GROUP BY page;
    CREATE MATERIALIZED VIEW spread AS SELECT n, COUNT(*) AS pages FROM totals GROUP BY n;
"""
TABLES = ("visits", "totals", "spread")
_START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
_PAGES = 500
_EVENTS = 20


@dataclass(frozen=True)
class TableFigures:
    """What a table has come to: live files, all files of its folder, entries of its log."""

    live: int
    files: int
    entries: int


class ManyEpochs:
    """The pipeline at work. Used by `with`.

    Args:
        horizon_seconds: how long versions are kept.

    Attributes:
        seconds, cpu_seconds: of each epoch, by the clock, and those in which its process was at work.
    """

    def __init__(self, settings: Settings, horizon_seconds: float, seed: int = 1) -> None:
        retention = RetentionSettings(horizon_days=horizon_seconds / 86_400)
        self.settings = settings.model_copy(update={"retention": retention})
        self.lake = LakeLayout(settings.lake)
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self.pages: Counter[int] = Counter()
        self.most: dict[int, int] = {}
        list(Interpreter(settings, "shop").run(STATEMENTS))
        catalog = Catalog(self.lake)
        source = catalog.get("visits")
        assert isinstance(source, Source)
        self._spec = log_spec(source)
        columns = [(c.name, c.type.arrow()) for c in source.columns]
        self._schema = pa.schema([*columns, *((name, kind.arrow()) for name, kind in META_COLUMNS)])
        self._levels = maintained(catalog.pipeline("shop"), catalog)
        self._duckdb_engine = DuckDBEngine("512MB", os.cpu_count() or 2)
        self._context = RunContext(None, self.lake, "shop/1", None, self._duckdb_engine, "duckdb")
        self._random = random.Random(seed)
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._duckdb_engine.close()

    def live(self, epochs: int) -> None:
        """So many epochs: some events into the log, then every view."""
        for _ in range(epochs):
            began, busy = time.perf_counter(), time.process_time()
            self._append()
            done = refresh_all(self._context, self._levels, frozenset())
            assert not done.failures, done.failures
            self.seconds.append(time.perf_counter() - began)
            self.cpu_seconds.append(time.process_time() - busy)

    def maintain(self) -> MaintenanceResult:
        """One maintenance, as a schedule starts it beside the stream."""
        return execute_maintenance(self.settings, plan_maintenance(self.settings))

    def figures(self) -> dict[str, TableFigures]:
        """The figures of each table."""
        found = {}
        for name in TABLES:
            path = self.lake.table(name)
            newest = log.newest_version(path)
            assert newest is not None
            live = len(read_snapshot(path, newest).files)
            found[name] = TableFigures(live, len(sizes_below(path)), len(log.versions(path)))
        return found

    def check(self) -> None:
        """The views are those of the events, and every scan compares the digest of its rows with the record."""
        totals = reader.read_rows(self.lake.table("totals")).to_pylist()
        assert {row["page"]: (row["n"], row["most"]) for row in totals} == {
            page: (n, self.most[page]) for page, n in self.pages.items()
        }
        spread = reader.read_rows(self.lake.table("spread")).to_pylist()
        assert {row["n"]: row["pages"] for row in spread} == dict(Counter(self.pages.values()))
        assert reader.read_rows(self.lake.table("visits")).num_rows == self._offset

    def _append(self) -> None:
        table = StoredTable(self.lake.table("visits"), self._spec)
        head = table.ensure(CommitRecord(epoch=0))
        rows = []
        for _ in range(_EVENTS):
            page, seconds = int(self._random.paretovariate(0.7)) % _PAGES, self._random.randrange(10_000)
            self.pages[page] += 1
            self.most[page] = max(seconds, self.most.get(page, -1))
            at = _START + dt.timedelta(seconds=self._offset)
            place = {"_partition": 0, "_offset": self._offset, "_timestamp": at, "_stream_time": at}
            rows.append({"page": page, "seconds": seconds, **place})
            self._offset += 1
        given = pa.Table.from_pylist(rows, self._schema)
        digest = Digest.parse(head.record.digest) + digest_of_table(given.to_batches())
        offsets = {"visits": {"0": self._offset}}
        record = replace(head.record, epoch=head.record.epoch + 1, mode="ingest", offsets=offsets, writer="shop/1")
        record = replace(record, inserted=_EVENTS, deleted=0, digest=str(digest))
        table.commit(head, record, RowChanges(stage_rows(given, table.path, record.epoch, self._spec.indexed)))
