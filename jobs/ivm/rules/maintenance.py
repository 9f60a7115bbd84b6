"""The SQL that maintains a stage: the one entry to the rules, and the text that EXPLAIN MAINTENANCE prints."""

from __future__ import annotations

from collections.abc import Collection

from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.ivm.rules.aggregate import aggregate_rule
from strandline.jobs.ivm.rules.analytic import analytic_rule
from strandline.jobs.ivm.rules.latest import latest_rule
from strandline.jobs.ivm.rules.map import append_rule, keyed_rule
from strandline.jobs.ivm.rules.session import session_rule
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, LatestStage, MapStage, Stage, inputs_of
from strandline.jobs.model.stage_columns import storage_of


def maintenance(stage: Stage, dialect: Dialect, changed: Collection[str] | None = ()) -> str:
    """One SELECT over the relations `delta_…`, `old_…`, `new_…` of the stage's inputs and `self_old`.

    It gives the rows to append for an append stage, else the settled form (see `jobs.ivm.rules.settled`).

    Args:
        changed: the aliases of the inputs that moved; empty, the default, stands for all of them. None: the first
            refresh, which takes in all rows there are.
    """
    engine = engine_of(dialect)
    moved = changed if changed is None else frozenset(changed) or {each.alias for each in inputs_of(stage)}
    match stage:
        case MapStage() if storage_of(stage) == "append":
            return append_rule(stage, engine, moved)
        case MapStage():
            return keyed_rule(stage, engine, moved)
        case LatestStage():
            return latest_rule(stage, engine, moved)
        case AggregateStage() if stage.session is not None:
            return session_rule(stage, engine, moved)
        case AggregateStage():
            return aggregate_rule(stage, engine, moved)
        case AnalyticStage():
            return analytic_rule(stage, engine, moved)
