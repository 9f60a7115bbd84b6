"""One refresh of one stage: from the version vector in its table's last commit to the present heads of its inputs.

    inputs ──changes(from, to)───> delta_…       ┐
    inputs ──read(from), read(to)─> old_…, new_…  ├─ rule (SQL) ──> rows or settled keys ──> one commit, vector `to`
    table  ──read(head)──────────> self_old      ┘

It is a pure function of the stage and the two vectors: it can be repeated, resumed after a kill at any point, or run by
hand. Nothing but the last commit says where it stands.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.ivm.refresh import engines
from strandline.jobs.ivm.refresh.epoch import Epoch, Mode, StageResult, missing_input, planned, spans_of
from strandline.jobs.ivm.refresh.faults import typed_fault
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.jobs.model.errors import RowFailed
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta.heads import note
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.failpoints import failpoint
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext
    from strandline.jobs.ivm.refresh.guarded_stage import StageDecision
    from strandline.jobs.model.definitions import Refresh
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import Head

# A stage whose inputs change without touching it commits nothing, so that it stays idle, but reads all versions since
# its vector each time. Listing and reading that many small commits costs about as much as one commit of its own.
_MAX_LAG = 20


def refresh_stage(
    context: RunContext,
    heads: Heads,
    stage: Stage,
    owner: Owner,
    refresh: Refresh = "auto",
    *,
    upto: Mapping[str, int] | None = None,
    untouched: bool = False,
) -> StageResult:
    """Bring a stage's table to the heads of its inputs, in at most one commit.

    The first refresh computes everything up to those versions. An input that has no table yet is nothing to do.
    A global aggregate has its one row from its first refresh on, also over empty inputs.

    Args:
        refresh: whether changes are taken in, everything is computed anew, or what is cheaper.
        upto: version per input's name, to stop there; inputs that are not named are read at their heads.
        untouched: it is known that no change of the inputs changes a row (`jobs.ivm.refresh.passing`).

    Raises:
        RefreshFailed: the table was made by another definition.
        NegativeWeight: a row was retracted that is not there; nothing is stored.
        VectorMismatch, CommitConflict: another writer was faster; plan again.
        VersionGone: an input's history no longer reaches back to the recorded version.
    """
    at, began = time.time(), time.monotonic()
    result = missing_input(stage, heads)
    planned_at = time.monotonic()
    if result is None:
        head = _ensured(context, heads, stage, owner)
        epoch = planned(context, stage, owner, head, spans_of(stage, owner, heads, head, upto or {}), refresh)
        planned_at = time.monotonic()
        result = epoch if isinstance(epoch, StageResult) else _run(context, heads, epoch, untouched=untouched)
    seconds, planned_seconds = time.monotonic() - began, planned_at - began
    return replace(result, seconds=seconds, began=at, planned_seconds=planned_seconds)


def refresh_decided(
    context: RunContext,
    heads: Heads,
    decision: StageDecision,
    owner: Owner,
    refresh: Refresh = "auto",
    *,
    upto: Mapping[str, int] | None = None,
    untouched: bool = False,
) -> list[StageResult]:
    """Refresh the stages that the policy on errors names, one result each; those in their place when a row fails.

    Args:
        upto, untouched: as of `refresh_stage`.

    Raises:
        RowFailed: a row fails under `stop`, or where it cannot be left out (a group's result, a sum).
    """

    def run(stage: Stage) -> StageResult:
        return refresh_stage(context, heads, stage, owner, refresh, upto=upto, untouched=untouched)

    return run_decided(heads, decision, run)


def run_decided(
    heads: Heads,
    decision: StageDecision,
    run: Callable[[Stage], StageResult],
    run_aside: Callable[[Stage], StageResult] | None = None,
) -> list[StageResult]:
    """Run the stages of a decision: the dead letters first, those in their place when a row fails.

    Args:
        run: brings a stage's table to its rows.
        run_aside: the same for dead letters; default: `run`.

    Raises:
        RowFailed: a row fails under `stop`, or where it cannot be left out.
    """
    done: list[StageResult] = []
    if decision.aside is not None:
        done.append((run_aside or run)(decision.aside))
        if decision.stops:
            _stop_at_rows(heads, decision.aside, decision.sound)
    try:
        return [*done, run(decision.sound)]
    except RowFailed:
        if decision.instead is None:
            raise
    return run_decided(heads, decision.instead, run, run_aside)


def _stop_at_rows(heads: Heads, aside: Stage, stage: Stage) -> None:
    """Raise RowFailed if any row is kept aside."""
    head = heads.find(aside.table)
    rows = head.record.rows if head is not None else 0
    if rows:
        raise RowFailed(
            sentence(
                "{} {} in '{}': '{}' has them and why",
                rows,
                "row fails" if rows == 1 else "rows fail",
                Name(stage.table),
                Name(aside.table),
            ),
            where=Text(Name(stage.table)),
            hint="correct the rows; or replace the view with one that leaves them out: WHERE, TRY_CAST, NULLIF",
        )


def table_of(context: RunContext, stage: Stage) -> StoredTable:
    """The table that a stage is stored in."""
    return StoredTable(context.lake.table(stage.table), spec_of(stage))


def _ensured(context: RunContext, heads: Heads, stage: Stage, owner: Owner) -> Head:
    """The head of the stage's table, which is made when it is not there."""
    head = heads.find(stage.table)
    if head is None:
        fingerprint = owner.fingerprint if owner.owns_table else ""
        head = table_of(context, stage).ensure(CommitRecord(epoch=0, fingerprint=fingerprint, writer=context.writer))
        note(context.lake, stage.table, head.record.table)
        heads.moved(stage.table, head)
    return head


def _run(context: RunContext, heads: Heads, epoch: Epoch, *, untouched: bool) -> StageResult:
    """Compute the epoch and commit it; no commit when no row changes or is late, and the vector is not far behind."""
    record, stage = epoch.record, epoch.stage
    if untouched and epoch.moved is not None:
        counted, made = record, None
    else:
        heads.flush(epoch.spans)
        counted, made = committed(context, epoch, anew=epoch.anew)
    mode: Mode = "full" if record.mode == "full" else "delta"
    if made is not None:
        failpoint("after-refresh-commit")
    elif not epoch.first and epoch.lag <= _MAX_LAG and counted.late == epoch.head.record.late:
        return epoch.done("none", sentence("{}: no row changes", record.reason), None)
    else:
        record = replace(
            counted, mode="advance", reason=sentence("{}: no row changes, only the vector moves", record.reason)
        )
        heads.flush(epoch.spans)
        mode, made = "advance", table_of(context, stage).advance(record)
    heads.moved(stage.table, made)
    return epoch.done(mode, record.reason, made)


def committed(context: RunContext, epoch: Epoch, *, anew: bool) -> tuple[CommitRecord, Head | None]:
    """The record and the commit of an epoch; see `engines.run`.

    Raises:
        StrandlineError: what a fault says of rows or files.
    """
    try:
        return engines.run(context, epoch, anew=anew)
    except Exception as error:
        typed = typed_fault(epoch, error)
        if typed is None:
            raise
        raise typed from error
