"""The two ways to run a refresh on Spark: by Spark's own plans, or in its tasks, in each of which DuckDB runs the rule.

By Spark's own plans a rule's relations are temporary views over versions of Delta tables.

Only the views that a text names are made: a version of a Delta table costs a snapshot, even when no row of it is read.
Columns kept in `__state` become plain ones.

In tasks: a first refresh that they share, by parts of the input, a shuffle by key, buckets, and one commit.

    driver   texts ── parts ──────────────────────────────────────────────────────────────> commit
    task              └─> files of a part ── part's text ──> Arrow by bucket ─┐
    Spark                                                      its shuffle ───┤
    task                                                                      └─> bucket's text ── files of new rows

Spark schedules the tasks, moves what parts give to where it meets, and runs again what is lost. In a task DuckDB runs
the rule (`jobs.ivm.rules.spread`) and writes the files of new rows; no row passes through the JVM but as bytes of a
shuffle. A task that runs twice leaves files that nothing names. The driver makes the one commit, or none.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import duckdb
import numpy as np
import pyarrow as pa

from strandline.jobs.engines.engine import Dialect, engine_of, listed
from strandline.jobs.functions.python import register_elementary
from strandline.jobs.ivm.refresh.on_duckdb import DuckDbRuntime
from strandline.jobs.ivm.refresh.runtime import Runtime
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.ivm.rules.spread import PARTS
from strandline.jobs.ivm.rules.stored import consolidated, spec_of
from strandline.jobs.model.stage_columns import spec_of_input, storage_of
from strandline.state_store.commits import REBUILD
from strandline.state_store.digest import Digest
from strandline.state_store.duckdb.engine import process_engine
from strandline.state_store.duckdb.rows import Part, quoted
from strandline.state_store.duckdb.table import DuckDBTable, WrittenRows, streamed, write_rows
from strandline.state_store.errors import StrandlineError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.spark.table import SparkTable
from strandline.state_store.tablespec import EXISTS, VERSION, WEIGHT
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.jobs.ivm.refresh.runtime import Span
    from strandline.jobs.ivm.rules.delta_join import Side
    from strandline.jobs.ivm.rules.spread import SpreadRule
    from strandline.jobs.model.stage import Input
    from strandline.jobs.model.tables import Relation
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.duckdb.engine import DuckDBEngine


class SparkRuntime(Runtime["DataFrame"]):
    """One epoch, in a session that is its own meanwhile: its views have fixed names. `close` drops them."""

    dialect: Dialect = "spark"

    def __init__(self, session: SparkSession, context: RunContext, epoch: Epoch) -> None:
        self._session = session
        self._views: set[str] = set()
        self._lake = context.lake
        self._functions = context.functions
        self._stage = epoch.stage
        self._head = epoch.head
        self._spans = {span.relation.name: span for span in epoch.spans}
        self._table = SparkTable(self._session, context.lake.table(epoch.stage.table), spec_of(epoch.stage))
        self._engine = engine_of("spark")
        # The rules' hints broadcast the changes: they are followed where those are few.
        self._session.conf.set("spark.sql.optimizer.disableHints", str(not epoch.few_changes).lower())

    def run(self, text: str, *, stored: bool = True) -> DataFrame:
        for name, side, each in relations(self._stage, text, self._engine):
            self._name(name, self._side(side, each))
        register_elementary(self._session, text)
        if self._functions is not None:
            self._functions.register_spark(self._session, text)
        if self._table.spec.storage == "keyed":
            self._name("self_old", self._stored(stored=stored))
        return self._session.sql(text)

    def keep(self, name: str, settled: DataFrame) -> None:
        self._name(name, settled.where(EXISTS))

    def number(self, text: str) -> int:
        [row] = self.run(text, stored=False).collect()
        return int(row[0])

    def append(self, rows: DataFrame, record: CommitRecord) -> Head | None:
        return self._table.append_if_any(rows, record)

    def settle(self, settled: DataFrame, record: CommitRecord) -> Head | None:
        return self._table.apply(settled, record, self._head if record.mode == REBUILD else None)

    def close(self) -> None:
        """Let go of what the epoch read, so that the session can serve another."""
        for name in self._views:
            self._session.catalog.dropTempView(name)

    def _name(self, name: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(name)
        self._views.add(name)

    def _stored(self, *, stored: bool) -> DataFrame:
        """The rows before the epoch. Those of an empty table are no plan at all: Spark then leaves the joins out."""
        if not stored or Digest.parse(self._head.record.digest).count == 0:
            return self._session.createDataFrame([], self._table.spec.placed_ddl)
        return self._table.read(self._head.version)

    def _side(self, side: Side, each: Input) -> DataFrame:
        span = self._spans[each.relation.name]
        source = SparkTable(self._session, self._lake.table(each.relation.name), spec_of_input(each.relation))
        if side == "delta":
            return self._changes(source, each, span)
        version = span.upto if side == "new" else span.after
        if version is None:
            return self._flat(self._session.createDataFrame([], source.spec.ddl), each.relation)
        return self._flat(source.read(version), each.relation)

    def _changes(self, source: SparkTable, each: Input, span: Span) -> DataFrame:
        changes = self._flat(source.changes(span.after, span.upto), each.relation, WEIGHT, VERSION)
        if each.relation.storage == "append" or span.lag <= 1 or span.after is None:
            return changes.drop(VERSION)
        raw = self._engine.name(f"raw_{each.alias}")
        self._name(raw, changes)
        return self._session.sql(consolidated(each.relation, raw, self._engine))

    def _flat(self, rows: DataFrame, relation: Relation, *more: str) -> DataFrame:
        return rows.selectExpr(*listed(relation, self._engine), *(name for name in more if name in rows.columns))


ROWS_PER_TASK: Final = 20_000_000
"""Rows that one task reads, or gets at most: at two hundred bytes each, twice the memory of a task's engine by default,
so that it puts as much aside again."""
_PIECE_ROWS: Final = 1_000_000
"""Rows of a part that are cut into buckets at once: of a hundred buckets each gets 10,000, and Arrow's kilobyte of
schema is nothing beside them."""
_MOST_BUCKETS: Final = 1 << 16
"""A bucket's number has 16 bits: a trillion rows."""
_LEAST_MEMORY_MB: Final = 256
"""DuckDB needs it for the buffers of a scan and a sort."""
_BUCKET: Final = "__bucket"
_RECEIVED: Final = "spread_received"


@dataclass(frozen=True)
class _Work:
    """What all tasks of a refresh are told.

    Attributes:
        context: without session and engine, which a worker has its own of.
        memory_mb: of a worker's engine.
        arrangements: folder and bytes, see `state_store.arrangements.arrangements_in`.
    """

    context: RunContext
    memory_mb: int
    arrangements: tuple[Path | None, int]
    epoch: Epoch
    rule: SpreadRule
    parts: int
    buckets: int

    def runtime(self, connection: duckdb.DuckDBPyConnection, part: int | None) -> DuckDbRuntime:
        """The epoch on a connection, over a part of the rows that are dealt out; None: of a bucket."""
        engine = _engine(self)
        read = {} if part is None else dict.fromkeys(self.rule.dealt, Part(part, self.parts))
        return DuckDbRuntime(replace(self.context, duckdb_engine=engine), connection, self.epoch, read)

    def write(self, connection: duckdb.DuckDBPyConnection, text: str) -> WrittenRows | None:
        """Write the rows of a SELECT to files that no commit names yet; None when there are none."""
        stage = self.epoch.stage
        spec, path = spec_of(stage), self.context.lake.table(stage.table)
        return write_rows(streamed(connection, text), spec, path, self.epoch.record.epoch)


@dataclass(frozen=True)
class _Piece:
    """What a part gives to one bucket.

    Attributes:
        rows: an Arrow stream; None beside an error.
        late: rows of the part that came too late; of one piece of each part.
    """

    rows: bytes | None
    late: int = 0
    failed: Exception | None = None


@dataclass
class _Outcome:
    """What became of a bucket; or of a part, where nothing has to meet."""

    written: WrittenRows | None = None
    late: int = 0
    failed: Exception | None = None


def refresh(
    spark: SparkSession, context: RunContext, epoch: Epoch, rule: SpreadRule
) -> tuple[CommitRecord, Head | None]:
    """Compute the rows of a table that has none yet, in tasks, and commit them; see `engines.run`.

    Raises:
        duckdb.Error: a text fails over some rows. Nothing is stored.
        StrandlineError: files of an input are gone or broken, or another writer committed first.
    """
    assert context.spread is not None
    slots, beside = _slots(spark)
    parts, buckets = sizes(slots, rows_of(epoch), context.spread.most_parts(rule.rows, rule.whole))
    buckets = buckets if rule.meet else 1
    met = f", {buckets} buckets" if rule.bucket is not None else ""
    how = f"by DuckDB in Spark's tasks: {parts} parts{met}, {rows_of(epoch):,} rows"
    reason = sentence("{}; {}", epoch.record.reason, how)
    epoch = replace(epoch, record=replace(epoch.record, reason=reason))
    bare = replace(context, sessions=None, duckdb_engine=None)
    memory_mb = max(_LEAST_MEMORY_MB, context.spread.memory_mb // beside)
    work = _Work(bare, memory_mb, context.spread.arrangements, epoch, rule, parts, buckets)
    dealt = spark.sparkContext.parallelize(range(parts), parts)
    if rule.bucket is None:
        outcomes = dealt.map(partial(_write_part, work)).collect()
    else:
        pieces = dealt.flatMap(partial(_pieces_of, work))
        outcomes = pieces.partitionBy(buckets, int).mapPartitionsWithIndex(partial(_write_bucket, work)).collect()
    return _committed(context, epoch, rule, outcomes)


def _slots(spark: SparkSession) -> tuple[int, int]:
    """The tasks that run side by side, of all executors and of one."""
    context = spark.sparkContext
    found = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - the only way to it
    executors = max(1, len(found) - 1)  # the driver is one of them
    return context.defaultParallelism, -(-context.defaultParallelism // executors)


def rows_of(epoch: Epoch) -> int:
    """The rows of all inputs of an epoch."""
    return sum(span.head.record.rows for span in epoch.spans)


def sizes(slots: int, rows: int, most_parts: float) -> tuple[int, int]:
    """How many parts and buckets a refresh has.

    Args:
        slots: tasks that run side by side.
        rows: of all inputs.
        most_parts: see `Spread.most_parts`.
    """
    tasks = min(max(slots, -(-rows // ROWS_PER_TASK)), _MOST_BUCKETS)
    return int(max(1, min(tasks, most_parts))), tasks


def _committed(
    context: RunContext, epoch: Epoch, rule: SpreadRule, outcomes: Sequence[_Outcome]
) -> tuple[CommitRecord, Head | None]:
    written = [each.written for each in outcomes if each.written is not None]
    failed = next((each.failed for each in outcomes if each.failed is not None), None)
    if failed is not None:
        for each in written:
            each.staged.discard()
        raise failed
    record = epoch.record if rule.late is None else replace(epoch.record, late=sum(each.late for each in outcomes))
    if not written:
        return record, None
    assert context.duckdb_engine is not None
    failpoint("inside-refresh")
    stage = epoch.stage
    with context.duckdb_engine.connection() as connection:
        path = context.lake.table(stage.table)
        table = DuckDBTable(connection, context.duckdb_engine.kept, path, spec_of(stage), "spread")
        return record, table.append_written(written, record)


def _engine(work: _Work) -> DuckDBEngine:
    return process_engine(work.context.writer, work.memory_mb, 1, work.arrangements)


# In a worker. What goes wrong over the rows comes back as what it is: Spark would run the task again, and end with a
# text of four tracebacks.


def _write_part(work: _Work, number: int) -> _Outcome:
    """Write the rows that a part gives, where nothing has to meet."""
    with _engine(work).connection() as connection:
        try:
            runtime = work.runtime(connection, number)
            late = _late_rows(work, runtime)
            return _Outcome(work.write(connection, runtime.run(work.rule.part, stored=False)), late)
        except (duckdb.Error, StrandlineError) as error:
            return _Outcome(failed=error)


def _pieces_of(work: _Work, number: int) -> Iterator[tuple[int, _Piece]]:
    """What a part gives, by bucket."""
    with _engine(work).connection() as connection:
        try:
            runtime = work.runtime(connection, number)
            late = _late_rows(work, runtime)
            text = runtime.run(work.rule.part, stored=False)
            first = True
            for rows in _in_turn(connection, f"SELECT *, {_bucket(work)} AS {_BUCKET} FROM ({text}) AS __part"):
                for bucket, each in _by_bucket(rows):
                    yield bucket, _Piece(_as_bytes(each), late if first else 0)
                    first = False
            failpoint("inside-part")
            if first:
                # Who waits for it must know the columns: a count over no rows is one row.
                columns = connection.sql(f"SELECT * FROM ({text}) LIMIT 0").to_arrow_table()
                yield 0, _Piece(_as_bytes(columns), late)
        except (duckdb.Error, StrandlineError) as error:
            yield 0, _Piece(None, failed=error)


def _late_rows(work: _Work, runtime: DuckDbRuntime) -> int:
    return 0 if work.rule.late is None else runtime.number(work.rule.late)


def _bucket(work: _Work) -> str:
    """The number of a row's bucket. Values that GROUP BY takes for equal have equal hashes."""
    number = f"hash({', '.join(work.rule.meet)}) % {work.buckets}" if work.rule.meet else "0"
    return f"CAST({number} AS USMALLINT)"


def _in_turn(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[pa.Table]:
    """The rows of a SELECT, so many at once as are cut into buckets together."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    with closing(streamed(connection, text)) as batches:
        for batch in batches:
            waiting.append(batch)
            count += batch.num_rows
            if count >= _PIECE_ROWS:
                yield pa.Table.from_batches(waiting)
                waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _by_bucket(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    numbers = rows[_BUCKET].to_numpy()
    columns = rows.drop_columns([_BUCKET])
    order = np.argsort(numbers, kind="stable")  # of numbers of 16 bits, by their digits
    start = 0
    for bucket, count in enumerate(np.bincount(numbers).tolist()):
        if count:
            yield bucket, columns.take(pa.array(order[start : start + count]))
            start += count


def _as_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def _write_bucket(work: _Work, _number: int, pieces: Iterable[tuple[int, _Piece]]) -> Iterator[_Outcome]:
    """Write the rows that come of all that the parts gave to a bucket."""
    assert work.rule.bucket is not None
    outcome = _Outcome()
    batches = _received(pieces, outcome)
    first = next(batches, None)
    if first is None:
        yield outcome
        return
    with _engine(work).connection() as connection:
        try:
            # A table: a stream of Arrow is read once, and a text may name it more often.
            connection.register(_RECEIVED, pa.RecordBatchReader.from_batches(first.schema, chain([first], batches)))
            connection.execute(f"CREATE TEMP TABLE {PARTS} AS SELECT * FROM {_RECEIVED}")
            connection.unregister(_RECEIVED)
            if outcome.failed is None:
                failpoint("inside-bucket")
                outcome.written = work.write(connection, _new_rows(work, connection))
        except (duckdb.Error, StrandlineError) as error:
            outcome.failed = error
    yield outcome


def _received(pieces: Iterable[tuple[int, _Piece]], outcome: _Outcome) -> Iterator[pa.RecordBatch]:
    """The rows of all pieces; what is said beside them is noted."""
    for _, piece in pieces:
        outcome.late += piece.late
        if piece.failed is not None:
            outcome.failed = outcome.failed or piece.failed
        elif piece.rows is not None:
            with pa.ipc.open_stream(piece.rows) as stream:
                batches = list(stream)
            yield from batches or [pa.RecordBatch.from_pylist([], schema=stream.schema)]


def _new_rows(work: _Work, connection: duckdb.DuckDBPyConnection) -> str:
    """SELECT of the rows to be stored: the table has none yet, so nothing goes."""
    assert work.rule.bucket is not None
    text = work.runtime(connection, None).run(work.rule.bucket, stored=False)
    if storage_of(work.epoch.stage) == "append":
        return text
    listed = ", ".join(quoted(name) for name, _ in spec_of(work.epoch.stage).stored)
    return f"SELECT {listed} FROM ({text}) AS __settled WHERE {EXISTS}"
