"""Cases on Spark and Delta, the way production goes: many cases are one pipeline, and one epoch serves them all.

The cases of a chunk live in one lake under names of their own (`c17_input`). Each epoch appends the next records of
every case to the event logs, refreshes all views, and reads what the watched ones hold. A view that fails stops its
own case only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log, relation_of
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
from strandline.jobs.model import tables
from strandline.jobs.model.settings import SparkSettings
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import RefreshUnit, maintained
from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.spark.table import SparkTable
from tests.conformance.cases import Case
from tests.conformance.compare import Unreadable
from tests.conformance.decode_inputs import InputDecoder
from tests.conformance.on_duckdb import compared, failed
from tests.conformance.program import Stopped, build
from tests.conformance.report import Outcome
from tests.conformance.run_case import Batches, PreparedCase, Snapshots, prepared, produced, verdict, ways_to_cut
from tests.support.lake_tables import UNKNOWN, seal
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.jobs.model.definitions import Source

# Enough that the fixed cost of an epoch is shared, few enough that one lake's catalog stays quick to read.
_CHUNK = 40
_WRITER = "conformance/1"


def run(cases: Sequence[Case], modes: Sequence[str], cuts: int) -> Iterator[Outcome]:
    """The outcomes of the cases; one Spark session for all."""
    from strandline.jobs.run.spark import spark_session

    with spark_session(SparkSettings(master="local[2]", shuffle_partitions=1), "conformance") as spark:
        for start in range(0, len(cases), _CHUNK):
            for mode in modes:
                yield from run_chunk(spark, cases[start : start + _CHUNK], mode, cuts)


def run_chunk(spark: SparkSession, cases: Sequence[Case], mode: str, cuts: int) -> list[Outcome]:
    """Some cases side by side; each run of theirs in a lake of its own."""
    done: dict[int, Outcome] = {}
    rounds = [ways_to_cut(case, mode, cuts, singly=False) for case in cases]
    for number in range(max(map(len, rounds), default=0)):
        todo = {
            place: (case, rounds[place][number])
            for place, case in enumerate(cases)
            if place not in done and number < len(rounds[place])
        }
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            done |= _Chunk(spark, LakeLayout(Path(folder)), mode).run_batches(todo)
    passed = (done.get(place) or compared(case, mode, None) for place, case in enumerate(cases))
    return list(passed)


@dataclass
class _Run:
    """One case of a chunk."""

    ready: PreparedCase
    batches: Batches
    inputs: InputDecoder
    seen: Snapshots = field(default_factory=list)


class _Chunk:
    """One run of many cases in one lake."""

    def __init__(self, spark: SparkSession, lake: LakeLayout, mode: str) -> None:
        self._spark = spark
        self._sessions = SparkSessions(lambda: spark)
        self._lake = lake
        self._mode = mode
        self._catalog = Catalog(lake)
        self._heads: dict[str, Head] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._failed: dict[int, Outcome] = {}

    def run_batches(self, todo: dict[int, tuple[Case, Batches]]) -> dict[int, Outcome]:
        """{place: outcome} of the cases that failed."""
        runs = {place: run for place, (case, batches) in todo.items() if (run := self._ready(place, case, batches))}
        definitions = [d for run in runs.values() for d in run.ready.program.definitions]
        for run in runs.values():
            for source in run.ready.program.sources:
                self._create(source)
        self._refresh(runs, maintained(definitions, self._catalog))
        for place, run in runs.items():
            problem = None if place in self._failed else verdict(run.ready, self._mode, run.batches, run.seen)
            if problem is not None:
                cut = [len(batch) for batch in run.batches]
                self._failed[place] = compared(run.ready.case, self._mode, f"with cuts {cut}: {problem}")
        return self._failed

    def _refresh(self, runs: dict[int, _Run], levels: list[list[RefreshUnit]]) -> None:
        """Epoch after epoch, until the case with the most batches is through."""
        stopped: set[str] = set()
        for epoch in range(max((len(run.batches) for run in runs.values()), default=0)):
            for run in runs.values():
                if epoch < len(run.batches):
                    for log, rows in run.inputs.rows(run.batches[epoch]).items():
                        self._append(log, rows)
            failures = refresh_all(RunContext(self._sessions, self._lake, _WRITER), levels, frozenset(stopped)).failures
            stopped |= set(failures)
            for place, run in runs.items():
                self._look(place, run, epoch, failures)

    def _ready(self, place: int, case: Case, batches: Batches) -> _Run | None:
        try:
            ready = prepared(case, build(case, self._catalog, self._lake, f"c{place}_"))
        except Stopped as error:
            self._failed[place] = failed(case, self._mode, error.stage, error.error)
        except Unreadable as error:
            self._failed[place] = failed(case, self._mode, "compare", error)
        else:
            return _Run(ready, batches or [[]], InputDecoder(ready.program))
        return None

    def _look(self, place: int, run: _Run, epoch: int, failures: dict[str, Any]) -> None:
        names = set(run.ready.program.names)
        error = next((each for target, each in failures.items() if target in names), None)
        if error is not None:
            self._failed.setdefault(place, failed(run.ready.case, self._mode, "run", error))
        if place in self._failed or epoch >= len(run.batches):
            return
        program = run.ready.program
        run.seen.append({name: produced(program, name, self._rows(name)) for name in run.ready.watched})

    def _rows(self, name: str) -> list[dict[str, Any]]:
        path = self._lake.table(name)
        return list(reader.read_rows(path).to_pylist()) if reader.head(path) else []

    def _create(self, source: Source) -> None:
        """The source's event log, empty, as ingest leaves it before the first record."""
        name = tables.event_log(source)
        log = event_log(source) if source.kind == "table" else relation_of(source)
        self._schemas[name] = pa.schema([(column, kind.arrow()) for column, kind in log.columns])
        self._heads[name] = SparkTable(self._spark, self._lake.table(name), log_spec(source)).ensure(
            CommitRecord(epoch=0)
        )

    def _append(self, log: str, rows: Sequence[dict[str, Any]]) -> None:
        if not rows:
            return
        head = self._heads[log]
        count = head.record.rows + len(rows)
        record = replace(head.record, epoch=head.record.epoch + 1, mode="ingest", inserted=len(rows))
        # Only the count of the digest is read here, by `CommitRecord.rows`.
        record = replace(record, digest=f"{0:032x}:{count}")
        commit = CommitProperties(custom_metadata={"userMetadata": replace(record, digest=UNKNOWN).to_json()})
        table = pa.Table.from_pylist(list(rows), self._schemas[log])
        write_deltalake(on_disk(self._lake.table(log)), table, mode="append", commit_properties=commit)
        seal(self._lake.table(log))
        self._heads[log] = Head(head.version + 1, record)
