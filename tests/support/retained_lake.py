"""A lake whose event logs have a retention, fed without a JVM: the views by DuckDB, the events of two partitions.

Events are written as ingest writes them: topic first, then one commit of the log. Event times grow by a minute each.
"""

from __future__ import annotations

import datetime as dt
import os
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.tables import META_COLUMNS, TOMBSTONE
from strandline.jobs.model.types import BOOLEAN
from strandline.jobs.operate.maintenance import MaintenanceResult, execute_maintenance, plan_maintenance
from strandline.jobs.run.refresh_views import Refreshed, refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.support.arrow_table import ArrowTable, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.ivm.retention import LogTrim
    from strandline.jobs.model.settings import Settings

PIPELINE: Final = "shop"
BEGIN: Final = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
MINUTE_MS: Final = 60_000
BEGIN_MS: Final = int(BEGIN.timestamp() * 1000)
PARTITIONS: Final = 2

SOURCES: Final = """
    CREATE STREAM s (k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, RETENTION_MS = 600000);
    CREATE TABLE t (k VARCHAR PRIMARY KEY, v INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 2, RETENTION_MS = 600000);
"""

FOLDS: Final = {
    "counts": "CREATE TABLE counts AS SELECT k, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS least, MAX(v) AS most"
    " FROM s GROUP BY k",
    "large": "CREATE STREAM large AS SELECT k, v FROM s WHERE v > 3",
    "of_large": "CREATE MATERIALIZED VIEW of_large AS SELECT v, COUNT(*) AS n FROM large GROUP BY v",
    "hours": "CREATE TABLE hours AS SELECT k, COUNT(*) AS n, COLLECT_LIST(v) AS items FROM s"
    " WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 DAY) GROUP BY k",
    "spread": "CREATE MATERIALIZED VIEW spread AS SELECT n, COUNT(*) AS keys, MAX(k) AS last"
    " FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) AS c GROUP BY n",
    "seen": "CREATE MATERIALIZED VIEW seen AS SELECT DISTINCT k, v FROM s",
    "newest": "CREATE TABLE newest AS SELECT k, LATEST_BY_OFFSET(v) AS v, COUNT(DISTINCT v) AS kinds FROM s GROUP BY k",
    "named": "CREATE MATERIALIZED VIEW named AS SELECT t.k, t.v, counts.n FROM t JOIN counts ON t.k = counts.k",
    "everything": "CREATE MATERIALIZED VIEW everything AS SELECT COUNT(*) AS n, SUM(v) AS total FROM s",
    "both": "CREATE MATERIALIZED VIEW both AS SELECT k, COUNT(*) AS n FROM"
    " (SELECT k, v FROM s UNION ALL SELECT k, v FROM s WHERE v > 2) AS u GROUP BY k",
}
"""Views that take in changes and read no event again."""

LOOK_BACK: Final = {
    "joined": "CREATE MATERIALIZED VIEW joined AS SELECT s.k, s.v, t.v AS w FROM s JOIN t ON s.k = t.k",
    "visits": "CREATE TABLE visits AS SELECT k, COUNT(*) AS n FROM s WINDOW SESSION (5 MINUTES) GROUP BY k",
    "ranked": "CREATE MATERIALIZED VIEW ranked AS SELECT k, v FROM s"
    " QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, rowoffset) <= 2",
    "pairs": "CREATE STREAM pairs AS SELECT a.k, a.v, b.v AS w FROM s a JOIN s b WITHIN 1 HOUR ON a.k = b.k",
    "anew": "CREATE MATERIALIZED VIEW anew WITH (REFRESH = 'full') AS SELECT k, COUNT(*) AS n FROM s GROUP BY k",
    "asked": "CREATE MATERIALIZED VIEW asked WITH (STATE = 'partial') AS SELECT k, COUNT(*) AS n FROM s GROUP BY k",
}
"""Views that may read former events of `s` again."""


class RetainedLake:
    """The lake, its events and its runs."""

    def __init__(self, settings: Settings, statements: Sequence[str] = ()) -> None:
        self.settings = settings
        self.lake = LakeLayout(settings.lake)
        self.minutes = 0
        self.sql(SOURCES, *(f"{statement};" for statement in statements))
        self._log = LocalLog(self.lake)

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.lake)

    @property
    def now(self) -> int:
        """Milliseconds since the epoch, by the events: the time of the newest one."""
        return BEGIN_MS + self.minutes * MINUTE_MS

    def sql(self, *statements: str) -> None:
        """Execute statements."""
        assert list(Interpreter(self.settings, PIPELINE).run("\n".join(statements)))

    def feed(self, name: str, events: Sequence[tuple[str, int | None]]) -> None:
        """One epoch of a source: (key, value), a minute apart; None deletes a key of `t`. A key has one partition."""
        source = self.catalog.get(name)
        assert isinstance(source, Source)
        begins = self._log.end_offsets(source.topic)
        rows: list[Row] = []
        for key, value in events:
            self.minutes += 1
            partition = ord(key[0]) % PARTITIONS
            text = None if value is None else f'{{"v": {value}}}'.encode()
            self._log.produce(source.topic, [Record(key.encode(), text, self.now, partition=partition)])
            time = BEGIN + dt.timedelta(minutes=self.minutes)
            place = {"_partition": partition, "_offset": begins[partition], "_timestamp": time, "_stream_time": time}
            rows.append({"k": key, "v": value, **place, TOMBSTONE: value is None})
            begins[partition] += 1
        self._append(source, rows, begins)

    def _append(self, source: Source, rows: list[Row], ends: dict[int, int]) -> None:
        schema = _schema(source)
        table = ArrowTable(self.lake.table(log_spec(source).name), schema, log_spec(source))
        head = reader.head(table.path) or table.create(CommitRecord(epoch=0, writer="fed/1"))
        said = defaultdict(int, head.record.offsets.get(source.topic, {}))
        said |= {str(partition): end for partition, end in ends.items()}
        record = replace(
            head.record,
            epoch=head.record.epoch + 1,
            mode="ingest",
            offsets={source.topic: dict(said)},
            topics={source.topic: self._log.identity(source.topic).id},
        )
        table.apply([{name: row.get(name) for name in schema.names} for row in rows], None, record)

    def refresh(self) -> Refreshed:
        """Every view at the heads of its inputs, by DuckDB; what failed is in the result."""
        catalog = self.catalog
        library = Library(catalog.functions.values(), ())
        with DuckDBEngine("256MB", 1) as duckdb_engine:
            context = RunContext(None, self.lake, f"{PIPELINE}/{os.getpid()}", library, duckdb_engine, "duckdb")
            return refresh_all(context, maintained(catalog.pipeline(PIPELINE), catalog), frozenset())

    def refreshed(self) -> None:
        """The same, of which nothing may fail."""
        failures = self.refresh().failures
        assert not failures, failures

    def trimmed(self, *names: str, now: int | None = None) -> MaintenanceResult:
        """A maintenance of the named tables, by default of all, planned and done."""
        at = self.now if now is None else now
        return execute_maintenance(self.settings, plan_maintenance(self.settings, names, now=at), at)

    def plan(self, name: str) -> LogTrim:
        """What is planned for one log now."""
        (found,) = plan_maintenance(self.settings, [name], now=self.now).tables
        assert found.trim is not None
        return found.trim

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """The visible rows of a view or log, sorted."""
        table = reader.read_rows(self.lake.table(name))
        names = [each for each in table.column_names if not each.startswith("_")]
        return sorted((tuple(row.values()) for row in table.select(names).to_pylist()), key=repr)

    def gone(self, log: str) -> int:
        """The events that retention has taken from a log."""
        head = reader.head(self.lake.table(log))
        assert head is not None
        return head.record.gone


def _schema(source: Source) -> pa.Schema:
    columns = [(column.name, column.type.arrow()) for column in source.columns]
    columns += [(name, kind.arrow()) for name, kind in META_COLUMNS]
    return pa.schema([*columns, (TOMBSTONE, BOOLEAN.arrow())] if source.kind == "table" else columns)
