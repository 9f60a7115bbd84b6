"""The runtime of a refresh on Spark and Delta: a rule's relations are temporary views over versions of tables.

Only the views that a text names are made: a version of a Delta table costs a snapshot, even when no row of it is read.
Columns kept in `__state` become plain ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import Dialect, engine_of, listed
from strandline.jobs.functions.python import register_elementary
from strandline.jobs.ivm.refresh.runtime import Runtime
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.ivm.rules.stored import consolidated, spec_of
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.state_store.commits import REBUILD
from strandline.state_store.digest import Digest
from strandline.state_store.spark.table import SparkTable
from strandline.state_store.tablespec import EXISTS, VERSION, WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.jobs.ivm.refresh.runtime import Span
    from strandline.jobs.ivm.rules.delta_join import Side
    from strandline.jobs.model.relation import Relation
    from strandline.jobs.model.stage import Input
    from strandline.state_store.commits import CommitRecord, Head


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
