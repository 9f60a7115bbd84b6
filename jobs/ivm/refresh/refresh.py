"""One refresh of one stage, in one commit: of what has changed since its last one, or of all its rows.

A refresh goes from the version vector in the table's last commit to the present heads of the inputs:

    inputs ──changes(from, to)───> delta_…       ┐
    inputs ──read(from), read(to)─> old_…, new_…  ├─ rule (SQL) ──> rows or settled keys ──> one commit, vector `to`
    table  ──read(head)──────────> self_old      ┘

It is a pure function of the stage and the two vectors: it can be repeated, resumed after a kill at any point, or run by
hand. Nothing but the last commit says where it stands.

A stage can be computed anew, whatever its table holds, and stored as the difference:

    inputs ──read(heads)──> rule ──> fresh ──┐
    table as it stands, foreign rows too ────┴─> what differs ──> one commit, mode `rebuild`

What reads the table takes in the difference, as after any other epoch. A table that cannot be read, or whose rows are
only ever added, is set aside instead, and begun anew: what reads it must be rebuilt as well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.refresh import begun_logs, engines
from strandline.jobs.ivm.refresh.begun_logs import check_whole
from strandline.jobs.ivm.refresh.engines import duckdb_refusals, typed_fault
from strandline.jobs.ivm.refresh.epoch import Epoch, Mode, StageResult, missing_input, next_record, planned, spans_of
from strandline.jobs.ivm.refresh.on_duckdb import DuckDbRuntime
from strandline.jobs.ivm.refresh.runtime import Span
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.ivm.rules.stored import difference, spec_of, unmarked
from strandline.jobs.model.errors import RefreshFailed, RowFailed
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.model.stage_columns import storage_of, visible_columns
from strandline.jobs.model.tables import is_inner_stage
from strandline.state_store.commits import REBUILD, CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import note, set_aside
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.failpoints import failpoint
from strandline.state_store.storage_verbs import REQUESTS
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import duckdb
    import pyarrow as pa

    from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext
    from strandline.jobs.ivm.refresh.guarded_stage import StageDecision
    from strandline.jobs.model.definitions import Refresh
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout


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
    ready: Epoch | None = None,
) -> StageResult:
    """Bring a stage's table to the heads of its inputs, in at most one commit.

    The first refresh computes everything up to those versions. An input that has no table yet is nothing to do.
    A global aggregate has its one row from its first refresh on, also over empty inputs.

    Args:
        refresh: whether changes are taken in, everything is computed anew, or what is cheaper.
        upto: version per input's name, to stop there; inputs that are not named are read at their heads.
        untouched: it is known that no change of the inputs changes a row (`jobs.run.untouched`).
        ready: the epoch to be run, if it was planned (`jobs.ivm.refresh.together`).

    Raises:
        RefreshFailed: the table was made by another definition.
        NegativeWeight: a row was retracted that is not there; nothing is stored.
        VectorMismatch, CommitConflict: another writer was faster; plan again.
        VersionGone: an input's history no longer reaches back to the recorded version.
    """
    at, began = time.time(), time.monotonic()
    with REQUESTS.of_unit() as requests:
        result = missing_input(stage, heads) if ready is None else None
        planned_at = time.monotonic()
        if ready is not None:
            result = _run(context, heads, ready, untouched=untouched)
        elif result is None:
            head = _ensured(context, heads, stage, owner)
            epoch = planned(context, stage, owner, head, spans_of(stage, owner, heads, head, upto or {}), refresh)
            planned_at = time.monotonic()
            result = epoch if isinstance(epoch, StageResult) else _run(context, heads, epoch, untouched=untouched)
    seconds, planned_seconds = time.monotonic() - began, planned_at - began
    return replace(result, seconds=seconds, began=at, planned_seconds=planned_seconds, requests=requests)


def refresh_decided(
    context: RunContext,
    heads: Heads,
    decision: StageDecision,
    owner: Owner,
    refresh: Refresh = "auto",
    *,
    upto: Mapping[str, int] | None = None,
    untouched: bool = False,
    ready: Epoch | None = None,
) -> list[StageResult]:
    """Refresh the stages that the policy on errors names, one result each; those in their place when a row fails.

    Args:
        upto, untouched: as of `refresh_stage`.
        ready: that of the stage which is run while no row fails, if it was planned.

    Raises:
        RowFailed: a row fails under `stop`, or where it cannot be left out (a group's result, a sum).
    """

    def run(stage: Stage) -> StageResult:
        made = ready if ready is not None and ready.stage is stage else None
        return refresh_stage(context, heads, stage, owner, refresh, upto=upto, untouched=untouched, ready=made)

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
    elif not epoch.first and _may_lag(heads, epoch, untouched=untouched) and counted.late == epoch.head.record.late:
        return epoch.done("none", sentence("{}: no row changes", record.reason), None)
    else:
        record = replace(
            counted, mode="advance", reason=sentence("{}: no row changes, only the vector moves", record.reason)
        )
        heads.flush(epoch.spans)
        mode, made = "advance", table_of(context, stage).advance(record)
    heads.moved(stage.table, made)
    return epoch.done(mode, record.reason, made)


def _may_lag(heads: Heads, epoch: Epoch, *, untouched: bool) -> bool:
    """True if the vector may stay behind, where no row changes.

    The vectors of a view's stages together say by which versions its rows are. So those of a stage that another one
    reads must be right by the newest version of any table below it too: they are if one of them moved, and not if two
    did, which may have cancelled each other out (a row of a join goes as its partner comes). What passes no filter
    cancels nothing out.
    """
    if epoch.lag > _MAX_LAG:
        return False
    if untouched or not is_inner_stage(epoch.stage.table):
        return True
    return len(_below(heads, [span.relation.name for span in epoch.spans if span.after != span.upto])) < 2


def _below(heads: Heads, inputs: Iterable[str]) -> set[str]:
    """The tables that inputs are computed from, by way of inner stages; an input itself, if it is none."""
    found: set[str] = set()
    waiting, met = list(inputs), set[str]()
    while waiting:
        name = waiting.pop()
        head = heads.find(name) if is_inner_stage(name) else None
        if head is None:
            found.add(name)
        elif name not in met:
            met.add(name)
            waiting += head.record.vector
    return found


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


log = logging.getLogger("strandline")


def rebuild_decided(context: RunContext, heads: Heads, decision: StageDecision, owner: Owner) -> list[StageResult]:
    """Rebuild the stages that the policy on errors names: a stage, and the dead letters that belong to it.

    Raises:
        RowFailed: a row fails under `stop`, or where it cannot be left out (a group's result, a sum).
        StrandlineError: as of `rebuild_stage`.
    """
    return run_decided(heads, decision, lambda each: rebuild_stage(context, heads, each, owner))


def rebuild_stage(context: RunContext, heads: Heads, stage: Stage, owner: Owner) -> StageResult:
    """Compute a stage's rows from its inputs' heads, and bring its table to them.

    Raises:
        RowFailed: an expression fails on a row.
        EventsGone: retention has taken events from an input that the rows were computed from. Nothing was changed.
        CorruptState, ForeignWrite, VersionGone: an input is itself to be mended first.
    """
    began = time.monotonic()
    missing = missing_input(stage, heads)
    if missing is not None:
        return missing
    begun_logs.check_stage(context.lake, heads, stage, owner)
    try:
        head = current_head(context.lake, stage, owner)
    except (CorruptState, VersionGone) as error:
        log.warning("'%s' cannot be read, and is begun anew: %s", stage.table, error)
        head = None
    if head is None:
        moved = set_aside(context.lake, stage.table)
        if moved is not None:
            log.warning("what '%s' held is kept in %s", stage.table, moved)
        heads.forget(stage.table)
        return refresh_stage(context, heads, stage, owner)
    epoch = _epoch(context, heads, stage, owner, head)
    record, made = committed(context, epoch, anew=True)
    if made is None:
        made = table_of(context, stage).advance(record, after=head)
    heads.moved(stage.table, made)
    return replace(epoch.done("rebuild", epoch.record.reason, made), seconds=time.monotonic() - began)


def current_head(lake: LakeLayout, stage: Stage, owner: Owner) -> Head | None:
    """The table of a stage as it stands; None when there is none, or none that can be brought to other rows.

    Raises:
        CorruptState, VersionGone: it cannot be read.
    """
    head = reader.current_head(lake.table(stage.table)) if storage_of(stage) == "keyed" else None
    return None if head is None or _in_another_form(head, owner) else head


def _in_another_form(head: Head, owner: Owner) -> bool:
    """True if the same definition's rows are stored otherwise: the table's columns are not the stage's."""
    recorded, wanted = head.record.fingerprint, owner.fingerprint
    return owner.owns_table and recorded not in ("", wanted) and unmarked(recorded) == unmarked(wanted)


def _epoch(context: RunContext, heads: Heads, stage: Stage, owner: Owner, head: Head) -> Epoch:
    spans = []
    for name, relation in {each.relation.name: each.relation for each in inputs_of(stage)}.items():
        newest = heads.input(name)
        assert newest is not None
        spans.append(Span(relation, owner.entry(name), None, newest.at, newest))
    planned = next_record(context, owner, head, tuple(spans))
    reason = "rebuilt: all rows computed anew, whatever was stored"
    record = replace(planned, mode=REBUILD, reason=reason, since=begun_logs.since(context.lake, head.record, spans))
    return Epoch(stage, head, tuple(spans), record, first=False, few_changes=False)


# A part of a stage's rows computed anew, at the version vector where the table stands, and stored as the difference.
#
#     inputs ──read(vector)──> rule ──> rows of the part ──> proof ──┐
#     table  ──read(head)─────────────> rows of the part ────────────┴─> what differs ──> one commit, mode `rebuild`
#
# The vector does not move, so every other row stays what it is, and the next refresh goes on from there.

_FRESH: Final = "fresh"


@dataclass(frozen=True)
class RecomputedPart:
    """The rows of a stage that are computed anew.

    Attributes:
        condition: in DuckDB's SQL, over visible columns; it holds of all rows of a key or of none.
        said: the same for people.
        proof: told of the part's visible rows before they are stored; what it raises keeps them from it.
    """

    condition: str
    said: str
    proof: Callable[[pa.Table], None]


def backfill_decided(
    context: RunContext, heads: Heads, decision: StageDecision, owner: Owner, part: RecomputedPart
) -> StageResult:
    """Compute a part of a keyed stage's rows at its table's vector, by DuckDB, and store what differs.

    Its dead letters stay what they are. Where there are none yet, they are computed at the same vector when a row
    fails after all.

    Raises:
        RowFailed: a row fails under `stop`, or where it cannot be left out (a group's result, a sum).
        StrandlineError: as of `_backfill_stage`. Nothing is stored then.
    """

    def aside(stage: Stage) -> StageResult:
        head, standing = heads.find(stage.table), heads.find(decision.sound.table)
        if head is not None or standing is None:
            return StageResult(stage.table, {}, {}, "none", "dead letters are not backfilled")
        at = {name: version for name in _names(stage) if (version := standing.record.versions.get(owner.entry(name)))}
        return refresh_stage(context, heads, stage, owner, upto=at)

    done = run_decided(heads, decision, lambda each: _backfill_stage(context, heads, each, owner, part), aside)
    return done[-1]


def _names(stage: Stage) -> set[str]:
    return {each.relation.name for each in inputs_of(stage)}


def _backfill_stage(context: RunContext, heads: Heads, stage: Stage, owner: Owner, part: RecomputedPart) -> StageResult:
    """Compute a part of a keyed stage's rows at its table's vector, by DuckDB, and store what differs.

    Raises:
        RefreshFailed: the table has not taken in all of its inputs yet.
        EventsGone: retention has taken events from an input that the rows were computed from.
        InputReplaced, VersionGone, CorruptState, ForeignWrite: an input, or the table, is to be mended first.
        RowFailed, FunctionFailed: an expression fails on a row.
        EngineRefused: DuckDB cannot run the rule.
        CommitConflict: another writer committed first.
        StrandlineError: what the proof raises. Nothing is stored by any of these.
    """
    began = time.monotonic()
    epoch = _part_epoch(context, heads, stage, owner, part)
    assert context.duckdb_engine is not None, "a backfill is DuckDB's"
    with context.duckdb_engine.connection() as connection, duckdb_refusals(stage):
        try:
            committed = _stored(DuckDbRuntime(context, connection, epoch), connection, epoch, part)
        except Exception as error:
            typed = typed_fault(epoch, error)
            if typed is None:
                raise
            raise typed from error
    done = epoch.done("none" if committed is None else "rebuild", epoch.record.reason, committed)
    return replace(done, seconds=time.monotonic() - began)


def _part_epoch(context: RunContext, heads: Heads, stage: Stage, owner: Owner, part: RecomputedPart) -> Epoch:
    """The epoch in which every input is read as far as the table's vector says, and no further."""
    head = heads.find(stage.table)
    names = _names(stage)
    reached = {name: head.record.vector.get(owner.entry(name)) if head is not None else None for name in names}
    upto = {name: at.version for name, at in reached.items() if at is not None}
    if head is None or len(upto) < len(names):
        raise RefreshFailed(
            sentence(
                "'{}' has not taken in all of its inputs yet: there is nothing to compute anew", Name(stage.table)
            ),
            hint="run its pipeline first",
        )
    spans = tuple(replace(span, after=None) for span in spans_of(stage, owner, heads, head, upto))
    check_whole(stage, head.record, spans)
    record = replace(next_record(context, owner, head, spans), mode=REBUILD, reason=f"backfilled: {part.said}")
    return Epoch(stage, head, spans, record, first=False, few_changes=False)


def _stored(
    runtime: DuckDbRuntime, connection: duckdb.DuckDBPyConnection, epoch: Epoch, part: RecomputedPart
) -> Head | None:
    """The commit; None, and no commit, when the stored rows are those that were computed."""
    stage, engine = epoch.stage, engine_of(runtime.dialect)
    computed = runtime.run(maintenance(stage, runtime.dialect, None), stored=False)
    runtime.keep(_FRESH, f"SELECT * FROM ({computed}) WHERE {part.condition}")
    names = ", ".join(engine.name(name) for name, _ in visible_columns(stage))
    part.proof(connection.sql(f"SELECT {names} FROM {_FRESH}").to_arrow_table())
    settled = runtime.run(difference(stage, _FRESH, engine, part.condition))
    failpoint("inside-refresh")
    return runtime.settle(settled, epoch.record)
