"""Event logs that a test appends to, and stages that are refreshed over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext
from strandline.jobs.ivm.refresh.epoch import StageResult
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.refresh.refresh import refresh_decided, refresh_stage
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import ErrorPolicy
from strandline.jobs.model.stage import LatestStage, Output, Stage
from strandline.jobs.model.stage_columns import spec_of_input, visible_columns
from strandline.jobs.model.tables import META_COLUMNS, Relation
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest, digest_of_table
from tests.support.aggregate_cases import BEGIN
from tests.support.rule_harness import append_log, multiset, output

EVENTS = append_log([("id", t.INT), ("k", t.VARCHAR), ("v", t.BIGINT), ("_tombstone", t.BOOLEAN)], "t__log")
VISIBLE = (output("id", "id", t.INT), output("k", "k", t.VARCHAR), output("v", "v", t.BIGINT))
KEYED = LatestStage("t", EVENTS, VISIBLE, ("id",))
TABLE = Relation("t", tuple((column.name, column.type) for column in VISIBLE), "keyed", ("id",))


class Bench:
    """A lake with event logs that a test appends to, and the stages over them."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.lake = context.lake
        self.offset = 0

    def append(self, log: Relation, rows: Iterable[Mapping[str, Any]]) -> None:
        """One commit of events to an event log; the order columns are filled in where they are missing."""
        table = StoredTable(self.lake.table(log.name), spec_of_input(log))
        head = table.ensure(CommitRecord(epoch=0))
        values = []
        for row in rows:
            self.offset += 1
            values.append({"_partition": 0, "_offset": self.offset, "_stream_time": BEGIN, **row})
        given = pa.Table.from_pylist(values, pa.schema([(name, sql_type.arrow()) for name, sql_type in log.columns]))
        digest = Digest.parse(head.record.digest) + digest_of_table(given.to_batches())
        record = CommitRecord(epoch=head.record.epoch + 1, mode="ingest", inserted=len(values), digest=str(digest))
        table.commit(head, record, RowChanges(stage_rows(given, table.path, record.epoch, table.spec.indexed)))

    def refresh(self, stage: Stage, **options: Any) -> StageResult:
        owner = Owner(options.pop("fingerprint", "f1"), options.pop("vector_prefix", None))
        return refresh_stage(self.context, Heads(self.lake), stage, owner, options.pop("refresh", "auto"), **options)

    def refresh_under(self, stage: Stage, policy: ErrorPolicy, letters: str) -> list[StageResult]:
        """A refresh under the view's ERRORS policy."""
        heads = Heads(self.lake)
        return refresh_decided(self.context, heads, decide(stage, policy, letters, heads), Owner("f1"))

    def versions(self, name: str) -> int:
        head = reader.head(self.lake.table(name))
        return -1 if head is None else head.version

    def rows(self, stage: Stage) -> Counter[tuple[Any, ...]]:
        """The rows a reader sees."""
        names = [name for name, _ in visible_columns(stage)]
        return multiset(list(row.values()) for row in self._arrow(stage.table, names).to_pylist())

    def duckdb(self, log: Relation, query: str) -> Counter[tuple[Any, ...]]:
        """The query's answer over all rows of a log, as `history`."""
        with duckdb.connect(config={"threads": 1}) as db:
            db.execute("SET TimeZone = 'UTC'")
            db.register("history", self._arrow(log.name, [name for name, _ in log.columns]))
            return multiset(db.execute(query).fetchall())

    def _arrow(self, name: str, columns: list[str]) -> pa.Table:
        rows = reader.read_rows(self.lake.table(name), columns=columns)
        table = rows if isinstance(rows, pa.Table) else rows.read_all()
        return table.select(columns)


def meta_outputs() -> list[Output]:
    return [output(name, name, kind) for name, kind in META_COLUMNS]
