"""One refresh of one stage: from the version vector in its table's last commit to the present heads of its inputs.

    inputs ──changes(from, to)───> delta_…       ┐
    inputs ──read(from), read(to)─> old_…, new_…  ├─ rule (SQL) ──> rows or settled keys ──> one commit, vector `to`
    table  ──read(head)──────────> self_old      ┘

It is a pure function of the stage and the two vectors: it can be repeated, resumed after a kill at any point, or run by
hand. Nothing but the last commit says where it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from jobs.engines.engine import NEGATIVE_WEIGHT, engine_of
from jobs.ivm.refresh import choose
from jobs.ivm.refresh.on_spark import InputViews, Span
from jobs.ivm.rules.maintenance import maintenance
from jobs.ivm.rules.recompute_diff import difference
from jobs.ivm.rules.stored import spec_of
from jobs.model.errors import FunctionFailed, RefreshFailed, RowFailed, revive
from jobs.model.stage import inputs_of
from jobs.model.stage_columns import storage_of
from state_store import reader
from state_store.columns import EXISTS
from state_store.commits import CommitRecord, Head
from state_store.digest import Digest
from state_store.errors import NegativeWeight, StrandlineError
from state_store.failpoints import failpoint
from state_store.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from jobs.functions.python.register import Library
    from jobs.model.stage import Stage
    from jobs.model.view_options import Refresh
    from state_store.layout import Lake

# A stage whose inputs change without touching it commits nothing, so that it stays idle, but reads all versions since
# its vector each time. Listing and reading that many small commits costs about as much as one commit of its own.
_MAX_LAG = 20

# Spark's conditions for an expression that has no value for a row, with their first line.
_FAILS_ON_A_ROW = re.compile(
    r"\[(?:ARITHMETIC_OVERFLOW|BINARY_ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|CAST_INVALID_INPUT"
    r"|CAST_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION)[A-Z_.]*\][^\n]*"
)

Mode = Literal["none", "full", "delta", "advance"]


@dataclass(frozen=True)
class StageResult:
    """What a refresh did.

    Attributes:
        from_vector: the vector of the table's last commit before; empty for a table that had none.
        to_vector: the vector that its rows reflect now.
        mode: `none` nothing to do or to say, `full` all rows of the inputs, `delta` their changes, `advance` only the
            vector moved.
        inserted, deleted: visible rows given and taken away.
        version: of the commit that was made; None when there was none.
    """

    table: str
    from_vector: dict[str, int]
    to_vector: dict[str, int]
    mode: Mode
    reason: str
    inserted: int = 0
    deleted: int = 0
    version: int | None = None


@dataclass(frozen=True)
class _Epoch:
    """A refresh that is to be done."""

    stage: Stage
    head: Head
    spans: tuple[Span, ...]
    record: CommitRecord
    first: bool
    functions: Library | None

    @property
    def moved(self) -> frozenset[str] | None:
        """The aliases of the inputs that moved; None: every row is new to the stage."""
        if self.first or self.record.mode == "full":
            return None
        names = {span.relation.name for span in self.spans if span.after != span.upto}
        return frozenset(each.alias for each in inputs_of(self.stage) if each.relation.name in names)

    def done(self, mode: Mode, reason: str, committed: Head | None) -> StageResult:
        before = self.head.record.vector
        record = committed.record if committed else replace(self.record, vector=before, inserted=0, deleted=0)
        version = committed.version if committed else None
        return StageResult(
            self.stage.table, before, record.vector, mode, reason, record.inserted, record.deleted, version
        )


def refresh_stage(
    spark: SparkSession,
    lake: Lake,
    stage: Stage,
    fingerprint: str,
    writer: str,
    *,
    upto: Mapping[str, int] | None = None,
    vector_prefix: str | None = None,
    option: Refresh = "auto",
    functions: Library | None = None,
) -> StageResult:
    """Bring a stage's table to `upto` (default: the heads) of its inputs, in at most one commit.

    The first refresh computes everything up to those versions. An input that has no table yet is nothing to do.
    A global aggregate has its one row from its first refresh on, also over empty inputs.

    Args:
        fingerprint: of the definition; the table's last commit must carry the same.
        writer: `pipeline/incarnation`, for the commit's record.
        upto: version per input's name; inputs that are not there are read at their heads.
        vector_prefix: for one of several queries that feed one stream: its entries in the vector are
            `prefix/input`. The stream has a fingerprint of its own then, which is left as it is.
        option: the view's REFRESH: whether changes are taken in, everything is computed anew, or what is cheaper.
        functions: those that users wrote, when the stage may call them.

    Raises:
        RefreshFailed: the table was made by another definition.
        NegativeWeight: a row was taken away that is not there; nothing is stored.
        VectorMismatch, CommitConflict: another writer was faster; plan again.
        VersionGone: an input's history no longer reaches back to the recorded version.
    """
    # Temporary views have fixed names: a session of its own keeps refreshes in parallel threads apart.
    session = spark.newSession()
    table = Table(session, lake.table(stage.table), spec_of(stage))
    relations = {each.relation.name: each.relation for each in inputs_of(stage)}
    heads = {name: reader.head(lake.table(name)) for name in relations}
    missing = next((name for name, head in heads.items() if head is None), None)
    if missing is not None:
        return StageResult(stage.table, {}, {}, "none", f"input '{missing}' has no table yet")
    owner = vector_prefix is None
    head = table.ensure(CommitRecord(epoch=0, fingerprint=fingerprint if owner else "", writer=writer))
    if owner:
        _check_fingerprint(stage, head, fingerprint)
    vector = head.record.vector
    spans = tuple(
        Span(relation, _entry(name, vector_prefix), vector.get(_entry(name, vector_prefix)), _target(name, heads, upto))
        for name, relation in relations.items()
    )
    if all(span.after is not None and span.after >= span.upto for span in spans):
        at = ", ".join(f"'{span.relation.name}' is at version {span.after} still" for span in spans)
        return StageResult(stage.table, vector, vector, "none", at)
    first = any(span.after is None for span in spans)
    choice = choose.first_refresh(spans) if first else choose.choose(lake, stage, spans, head, option)
    record = replace(
        head.record,
        epoch=head.record.epoch + 1,
        vector={**vector, **{span.entry: span.upto for span in spans}},
        fingerprint=fingerprint if owner else head.record.fingerprint,
        writer=writer,
        mode=choice.mode,
        reason=choice.reason,
    )
    epoch = _Epoch(stage, head, spans, record, first, functions)
    return _run(table, InputViews(session, lake, stage, spans, few=choice.few_changes), epoch)


def _entry(name: str, prefix: str | None) -> str:
    return name if prefix is None else f"{prefix}/{name}"


def _target(name: str, heads: Mapping[str, Head | None], upto: Mapping[str, int] | None) -> int:
    head = heads[name]
    assert head is not None
    return head.version if upto is None else upto.get(name, head.version)


def _check_fingerprint(stage: Stage, head: Head, fingerprint: str) -> None:
    # Empty: a query that inserts into this stream was first, and left the place free.
    if head.record.fingerprint not in ("", fingerprint):
        raise RefreshFailed(
            f"the rows of '{stage.table}' were made by another definition",
            where=stage.table,
            hint=f"type: DROP it and create it again, so that '{stage.table}' is computed anew",
        )


def _run(table: Table, inputs: InputViews, epoch: _Epoch) -> StageResult:
    """Compute the epoch and commit it; no commit when no row changes and the vector is not far behind."""
    record = epoch.record
    rows = _rows(table, inputs, epoch)
    failpoint("inside-refresh")
    try:
        committed = _store(table, rows, epoch)
    except Exception as error:
        typed = _typed(epoch, str(error))
        if typed is None:
            raise
        raise typed from error
    if committed is not None:
        failpoint("after-refresh-commit")
        return epoch.done("full" if record.mode == "full" else "delta", record.reason, committed)
    if not epoch.first and max(span.lag for span in epoch.spans) <= _MAX_LAG:
        return epoch.done("none", f"{record.reason}: no row changes", None)
    reason = f"{record.reason}: no row changes, only the vector moves"
    return epoch.done("advance", reason, table.advance(replace(record, mode="advance", reason=reason)))


def _typed(epoch: _Epoch, text: str) -> StrandlineError | None:
    """What a fault inside the rule's query means; None when it says nothing about the rows."""
    where = f"{epoch.stage.table}, {epoch.record.reason}"
    if FunctionFailed.code in text:
        return revive(text)
    if NEGATIVE_WEIGHT in text:
        return NegativeWeight(
            f"a row was taken away from '{epoch.stage.table}' that is not there",
            where=where,
            hint=f"verify its inputs; then drop '{epoch.stage.table}' and create it again",
        )
    found = _FAILS_ON_A_ROW.search(text)
    if found is None:
        return None
    return RowFailed(
        # Spark goes on with advice on its own settings.
        f"an expression of '{epoch.stage.table}' fails on a row: {found.group().split('. ')[0]}",
        where=where,
        hint="leave such rows out with WHERE, or TRY_CAST and NULLIF; ERRORS = 'dead_letter' keeps them aside",
    )


def _rows(table: Table, inputs: InputViews, epoch: _Epoch) -> DataFrame:
    """The rows to append, or the settled keys."""
    stage, session = epoch.stage, table.spark
    text = maintenance(stage, "spark", epoch.moved)
    inputs.register(text)
    if epoch.functions is not None:
        epoch.functions.register_spark(session, text)
    if storage_of(stage) == "append":
        return session.sql(text)
    stored = _stored_rows(session, table, epoch.head)
    if epoch.first or epoch.record.mode != "full":
        stored.createOrReplaceTempView("self_old")
        return session.sql(text)
    session.createDataFrame([], table.spec.ddl).createOrReplaceTempView("self_old")
    session.sql(text).where(EXISTS).createOrReplaceTempView("fresh")
    stored.createOrReplaceTempView("self_old")
    return session.sql(difference(stage, "fresh", engine_of("spark")))


def _stored_rows(session: SparkSession, table: Table, head: Head) -> DataFrame:
    """The rows before the epoch. Those of an empty table are no plan at all: Spark then leaves the joins out."""
    if Digest.parse(head.record.digest).count == 0:
        return session.createDataFrame([], table.spec.ddl)
    return table.read(head.version)


def _store(table: Table, rows: DataFrame, epoch: _Epoch) -> Head | None:
    """One commit, or None when no row changes."""
    if storage_of(epoch.stage) == "keyed":
        return table.apply(rows, epoch.record)
    return table.append_if_any(rows, epoch.record)
