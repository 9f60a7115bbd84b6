"""A stage computed anew, whatever its table holds, and stored as the difference, in one commit.

    inputs ──read(heads)──> rule ──> fresh ──┐
    table as it stands, foreign rows too ────┴─> what differs ──> one commit, mode `rebuild`

What reads the table takes in the difference, as after any other epoch. A table that cannot be read, or whose rows are
only ever added, is set aside instead, and begun anew: what reads it must be rebuilt as well.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.ivm.refresh import begun_logs
from strandline.jobs.ivm.refresh.epoch import Epoch, StageResult, missing_input, next_record
from strandline.jobs.ivm.refresh.refresh import committed, refresh_stage, run_decided, table_of
from strandline.jobs.ivm.refresh.span import Span
from strandline.jobs.ivm.rules.stored import unmarked
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.state_store.commits import REBUILD
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.errors import CorruptState, VersionGone

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext
    from strandline.jobs.ivm.refresh.error_policy import Decision
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import Head
    from strandline.state_store.layout import Lake

log = logging.getLogger("strandline")


def rebuild_decided(context: RunContext, heads: Heads, decision: Decision, owner: Owner) -> list[StageResult]:
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


def current_head(lake: Lake, stage: Stage, owner: Owner) -> Head | None:
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
