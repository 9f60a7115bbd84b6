"""From a stage to the SQL that maintains it: the one entry to the rules, and what `EXPLAIN` prints."""

from __future__ import annotations

from jobs.ivm.aggregate_rule import aggregate_rule
from jobs.ivm.engine import Dialect, engine
from jobs.ivm.latest_rule import latest_rule
from jobs.ivm.map_rule import append_rule, keyed_rule
from jobs.ivm.stage import AggregateStage, LatestStage, MapStage, Stage


def maintenance(stage: Stage, dialect: Dialect) -> str:
    """One SELECT over the relations `delta` and `self_old` (see `jobs.ivm.rule_text`).

    It gives the rows to append for a map over an append-only input, else the settled form.

    Raises:
        NotSupported: the stage asks for something that has no rule yet.
    """
    writer = engine(dialect)
    match stage:
        case MapStage() if stage.input.kind == "append":
            return append_rule(stage, writer)
        case MapStage():
            return keyed_rule(stage, writer)
        case LatestStage():
            return latest_rule(stage, writer)
        case AggregateStage():
            return aggregate_rule(stage, writer)
