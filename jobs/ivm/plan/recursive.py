"""The stage of WITH RECURSIVE: its rows have a table of their own, which the query around it reads like any other.

WITH RECURSIVE r (a, b) AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a) SELECT * FROM r

v__stage_1   seed  e.a, e.b        steps  r.a, e_2.b of __itself AS r JOIN e AS e_2 ON r.b = e_2.a
v            the rows of v__stage_1
"""

from __future__ import annotations

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.inputs import Unarranged, rows_of_block, selected
from strandline.jobs.ivm.plan.rows import PlannedRows, Selected, apart, named, of_relation
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.relation import ITSELF, LEVEL
from strandline.jobs.model.stage import Core, Output, RecursiveStage
from strandline.jobs.model.types import INT
from strandline.jobs.query.logical import Block, Query, Recursion, outputs_of
from strandline.jobs.sql.dialect import sql_of

_SEED = "seed"


def recursive_stage(query: Recursion, stages: Stages) -> RecursiveStage:
    """The stage of a query that reads itself.

    Raises:
        NotSupported: an ON of it can fail on a row.
    """
    stages = stages.placed(False)
    seed = _seed(query.seed, stages)
    # A join of it must not get a table of its own: what it holds depends on what is being computed.
    inner, counted = Unarranged(stages), query.levels is not None
    steps = [each for step in query.steps for each in _steps(step, inner, counted=counted)]
    parts = apart([*seed, *steps])
    cores = tuple(part.rows.core(part.outputs) for part in parts)
    for core in cores[len(seed) :]:
        _check_joins(core)
    stages.note("WITH RECURSIVE: an inner stage holds all rounds; a change computes them again, the difference goes on")
    outputs = tuple(Output(name, named(name), sql_type) for name, sql_type in query.outputs)
    begin, following = cores[: len(seed)], cores[len(seed) :]
    return RecursiveStage("", begin, following, query.distinct, query.levels, outputs)


def _seed(query: Query, stages: Stages) -> list[Selected]:
    """The rows to begin with. Where one of them can fail, an inner stage computes them, which keeps such rows aside."""
    parts = selected(query, stages)
    trees = [each.expression for part in parts for each in (*part.outputs, *part.rows.expand)]
    trees += [each.on for part in parts for each in part.rows.inputs if each.on is not None]
    trees += [part.rows.where for part in parts if part.rows.where is not None]
    if not any(map(can_fail, trees)):
        return list(parts)
    relation = stages.stored(query)
    outputs = tuple(Output(name, named(name, _SEED), sql_type) for name, sql_type in outputs_of(query))
    return [Selected(of_relation(relation, _SEED), outputs)]


def _steps(step: Block, inner: Unarranged, *, counted: bool) -> list[Selected]:
    return [
        Selected(rows, (*(rows.output(each) for each in step.outputs), *([_level(rows)] if counted else [])))
        for rows in rows_of_block(step, inner)
    ]


def _level(rows: PlannedRows) -> Output:
    itself = next(each.alias for each in rows.inputs if each.relation.name == ITSELF)
    return Output(LEVEL, named(LEVEL, itself), INT)


def _check_joins(core: Core) -> None:
    for each in core.inputs:
        if each.on is not None and can_fail(each.on):
            raise NotSupported(
                f"an ON inside of WITH RECURSIVE that can fail on a row is not supported: {sql_of(each.on)}",
                hint="put it into WHERE, or TRY_CAST and NULLIF around what can fail",
            )
