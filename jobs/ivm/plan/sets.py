"""UNION, INTERSECT and EXCEPT: rows of all branches, grouped by all their columns.

a INTERSECT b      group (all columns), __a0 = rows of a, __a1 = rows of b      kept: __a0 > 0 AND __a1 > 0
a EXCEPT b                                                                      kept: __a0 > 0 AND __a1 = 0
a INTERSECT ALL b    LEAST(__a0, __a1) times
a EXCEPT ALL b       __a0 - __a1 times, if that is more than 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.group import distinct_stage
from strandline.jobs.ivm.plan.inputs import selected
from strandline.jobs.ivm.plan.map import map_stage
from strandline.jobs.ivm.plan.rows import Rows, Selected, apart, of_relation
from strandline.jobs.ivm.plan.trees import named, number
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AggregateCall, AggregateStage, Output, Stage
from strandline.jobs.query.logical import SetOperation
from strandline.jobs.sql.trees import all_of, call
from strandline.jobs.sql.types_text import data_type

_TAG = "__tag"
_COPY = "__copy"
_OVER = "rows"
"""Alias of the inner stage that counts, in the stage above it."""


def set_stage(query: SetOperation, stages: Stages) -> Stage:
    """The stage of a set operation that gives every row once."""
    if query.operation == "union":
        return distinct_stage(selected(replace(query, operation="union all"), stages))
    relation = stages.add(_counted(query, stages))
    stages.note(f"{query.operation.upper()}: an inner stage counts each row in each branch")
    calls = [named(_count(place), _OVER) for place in range(len(query.branches))]
    outputs = tuple(Output(name, named(name, _OVER), of) for name, of in query.outputs)
    if query.operation in ("intersect all", "except all"):
        return map_stage((Selected(_repeated(of_relation(relation, _OVER), query.operation, calls), outputs),))
    first = exp.GT(this=calls[0], expression=number(0))
    comparison = exp.GT if query.operation == "intersect" else exp.EQ
    others = [comparison(this=each, expression=number(0)) for each in calls[1:]]
    return map_stage((Selected(of_relation(relation, _OVER).filtered(all_of(first, *others)), outputs),))


def _repeated(rows: Rows, operation: str, counts: Sequence[exp.Expression]) -> Rows:
    """Each of the rows as often as INTERSECT ALL or EXCEPT ALL gives it."""
    first, *others = counts
    times: exp.Expression = call("LEAST", *counts)
    if operation == "except all":
        times = first
        for each in others:
            times = exp.Sub(this=times.copy(), expression=each.copy())
    rows = rows.filtered(exp.GT(this=exp.Paren(this=times.copy()), expression=number(0)))
    copies = call("GENERATE_SERIES", exp.Cast(this=number(1), to=data_type(t.BIGINT)), times)
    return replace(rows, expand=(Output(_COPY, copies, t.BIGINT),))


def _counted(query: SetOperation, stages: Stages) -> AggregateStage:
    parts = [
        Selected(
            part.rows,
            (
                *(
                    Output(name, output.expression, sql_type)
                    for output, (name, sql_type) in zip(part.outputs, query.outputs, strict=True)
                ),
                Output(_TAG, number(place), t.INT),
            ),
        )
        for place, branch in enumerate(query.branches)
        for part in selected(branch, stages)
    ]
    group = tuple(Output(name, named(name), sql_type) for name, sql_type in query.outputs)
    calls = tuple(
        AggregateCall(
            _count(place), "COUNT", (), (), t.BIGINT, filter=exp.EQ(this=named(_TAG), expression=number(place))
        )
        for place in range(len(query.branches))
    )
    return AggregateStage(
        table="",
        body=tuple(part.rows.core(part.outputs) for part in apart(parts)),
        group=group,
        aggregates=calls,
        outputs=(*group, *(Output(each.name, named(each.name), each.type) for each in calls)),
        key=tuple(each.name for each in group),
    )


def _count(place: int) -> str:
    return f"__a{place}"
