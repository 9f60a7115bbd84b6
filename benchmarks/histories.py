"""Long histories, quickly: event logs of a lake written from DuckDB straight to Delta, and refreshes by hand, timed.

A history is the article's two tables: `info(product, category)`, a thousand products, and `visit(product, user,
length)`, whose events are drawn from a fixed number of keys: history grows, what is stored does not. Of the events of
`visit` one in fifty takes a row away, the others add or replace one. Event n is the same in every history.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from strandline.jobs.catalog.relations import event_log
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.run.refresh_views import Refreshed, RefreshTasks, refresh_all
from strandline.jobs.run.schedule import RefreshUnit, maintained
from strandline.jobs.run.spark import spark_session
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.arrangements import arrangements_in
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.entry import CHECKSUM
from strandline.state_store.delta.log import commit_file, newest_version
from strandline.state_store.delta.merging import BackgroundMerges
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import Tally
from strandline.state_store.files import replace as replace_file
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from strandline.state_store.stored_state import sealed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline.jobs.model.tables import Relation

PIPELINE = "bench"
PRODUCTS = 1_000
CATEGORIES = 100

TABLES = """
CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR)
  WITH (KAFKA_TOPIC='info', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE visit (product VARCHAR PRIMARY KEY, user VARCHAR PRIMARY KEY, length INT)
  WITH (KAFKA_TOPIC='visit', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
"""

_VALUES = {
    "info": {"product": "'p' || n", "category": f"'c' || (n % {CATEGORIES})", "_tombstone": "FALSE"},
    "visit": {
        "product": f"'p' || (hash(n) % {{keys}} % {PRODUCTS})",
        "user": f"'u' || (hash(n) % {{keys}} // {PRODUCTS})",
        "length": "1 + n * 7919 % 1000",
        "_tombstone": "n % 50 = 49",
    },
}
_PLACE = {
    "_partition": "0",
    "_offset": "n",
    "_timestamp": "TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_milliseconds(n)",
    "_stream_time": "TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_milliseconds(n)",
    "_headers": "NULL",
}


@dataclass
class History:
    """A lake with the two tables, some views over them, and as many events as were added."""

    lake: LakeLayout
    settings: Settings
    keys: int
    interpreter: Interpreter
    visits: int = 0
    commits: int = 0
    merges: BackgroundMerges | None = None
    """Those of the process that refreshes it, as a run's intake has them."""

    @classmethod
    def begin(cls, root: Path, views: str, keys: int) -> History:
        """Define the tables and `views` in a new lake, and add all of `info`."""
        history = cls.over(root, TABLES + views, keys)
        history.fill("info", 0, PRODUCTS)
        return history

    @classmethod
    def over(cls, root: Path, statements: str, keys: int = 0) -> History:
        """Define other tables and views in a new lake; nothing is added."""
        settings = load_settings(lake=root)
        interpreter = Interpreter(settings, PIPELINE)
        list(interpreter.run(statements))
        return cls(interpreter.lake, load_settings(lake=root, engine="duckdb"), keys, interpreter)

    def append(self, log: Relation, events: pa.Table, topic: str = "") -> None:
        """One commit of events, made as ingest makes it; the columns of their place are filled in.

        Args:
            topic: of which the commit records the offsets; without it, it records none.
        """
        table = StoredTable(self.lake.table(log.name), spec_of_input(log), merges=self.merges)
        head = table.ensure(CommitRecord(epoch=0, writer=f"{PIPELINE}/1"))
        first, count = head.record.rows, events.num_rows
        at = pa.array(np.arange(first, first + count))
        meta = {"_partition": pa.repeat(0, count), "_offset": at, "_timestamp": at, "_stream_time": at}
        schema = pa.schema([(name, kind.arrow()) for name, kind in log.columns])
        columns = {**meta, "_headers": pa.nulls(count), "_tombstone": pa.repeat(False, count)}
        columns |= {name: events[name] for name in events.column_names}
        rows = pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema)
        tally = Tally()
        tally.insert(rows, rows.column_names)
        record = replace(head.record, epoch=head.record.epoch + 1, mode="ingest", inserted=count)
        if topic:
            record = replace(record, offsets={topic: {"0": first + count}})
        staged = stage_rows(rows, table.path, record.epoch)
        digest = Digest.parse(head.record.digest) + tally.digest
        table.commit(head, replace(record, digest=str(digest)), RowChanges(staged))

    def add(self, events: int) -> None:
        """One commit of so many more events of `visit`."""
        self.fill("visit", self.visits, events)
        self.visits += events

    def levels(self) -> list[list[RefreshUnit]]:
        """The maintained tables and views: a level reads earlier levels only."""
        return maintained(self.interpreter.catalog.pipeline(PIPELINE), self.interpreter.catalog)

    def fill(self, table: str, first: int, events: int) -> None:
        """One commit of events of `info` or `visit`, from number `first` on."""
        source = self.interpreter.catalog.get(table)
        assert isinstance(source, Source)
        log = event_log(source)
        words = {**_PLACE, **_VALUES[table]}
        listed = [
            f'CAST({words[name].format(keys=self.keys)} AS {kind.duckdb()}) AS "{name}"' for name, kind in log.columns
        ]
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            rows = db.sql(f"SELECT {', '.join(listed)} FROM range({first}, {first + events}) AS events(n)")
            schema = pa.schema([(name, kind.arrow()) for name, kind in log.columns])
            write_deltalake(
                str(self.lake.table(log.name)),
                pa.RecordBatchReader.from_batches(schema, (b.cast(schema) for b in rows.to_arrow_reader())),
                mode="append",
                commit_properties=self._commit(events, first + events),
                configuration=None if self.lake.table(log.name).exists() else _properties(source),
            )
        _seal(self.lake.table(log.name))

    def _commit(self, events: int, total: int) -> CommitProperties:
        self.commits += 1
        # The count is what refreshes read of a log's digest; its hashes are read by nobody here.
        record = CommitRecord(epoch=self.commits, mode="ingest", inserted=events, digest=f"{0:032x}:{total}")
        return CommitProperties(custom_metadata={"userMetadata": record.to_json()})


def _seal(table: LakePath) -> None:
    """Give the newest commit, which delta-rs wrote, the checksum that one with our record has."""
    newest = newest_version(table)
    assert newest is not None
    file = commit_file(table, newest)
    replace_file(file, sealed(file.read_bytes(), CHECKSUM))


def _properties(source: Source) -> dict[str, str | None]:
    return dict(log_spec(source).properties)


Where = Literal["kernel", "task", "spark"]
"""Where a refresh is computed: by DuckDB in this process, by a worker's in a Spark task, by Spark's own plan."""
WHERE: tuple[Where, ...] = get_args(Where)


@dataclass(frozen=True)
class Engines:
    """The engines of a benchmark, all of them warm."""

    spark: SparkSession
    sessions: SparkSessions
    duckdb_engine: DuckDBEngine
    kept: dict[tuple[object, ...], RefreshTasks] = field(default_factory=dict)

    def refresh(self, history: History, levels: list[list[RefreshUnit]], where: Where = "task") -> float:
        """Bring these to the heads of what they read, as a pipeline does: in tasks, by one job; the seconds it took.

        Raises:
            StrandlineError: one of them failed.
        """
        began = time.monotonic()
        outcome = self._refreshed(history, levels, where)
        for failure in outcome.failures.values():
            raise failure
        return time.monotonic() - began

    def _refreshed(self, history: History, levels: list[list[RefreshUnit]], where: Where) -> Refreshed:
        bare = RunContext(None, history.lake, f"{PIPELINE}/1")
        match where:
            case "kernel":
                return refresh_all(
                    replace(bare, duckdb_engine=self.duckdb_engine, engine="duckdb"), levels, frozenset()
                )
            case "task":
                return self._tasks(history, levels).refresh(frozenset())
            case "spark":
                return refresh_all(replace(bare, sessions=self.sessions, engine="spark"), levels, frozenset())

    def _tasks(self, history: History, levels: list[list[RefreshUnit]]) -> RefreshTasks:
        """Those of a pipeline, which keeps them."""
        key = (history.lake.root, *(item.target for level in levels for item in level))
        if key not in self.kept:
            bare = RunContext(None, history.lake, f"{PIPELINE}/1", engine="duckdb")
            self.kept[key] = RefreshTasks(self.spark, bare, history.settings, levels)
        return self.kept[key]


@contextmanager
def engines(name: str) -> Iterator[Engines]:
    """A Spark session and a DuckDB engine, with the settings that a run would have."""
    settings = load_settings()
    with (
        spark_session(settings.spark, name) as spark,
        DuckDBEngine(
            *settings.kernel_size, arrangements_in(*settings.arrangements_space), BackgroundMerges()
        ) as duckdb_engine,
    ):
        yield Engines(spark, SparkSessions(lambda: spark), duckdb_engine)
