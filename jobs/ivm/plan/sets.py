"""UNION, INTERSECT and EXCEPT: rows of all branches, grouped by all their columns.

a INTERSECT b      group (all columns), __a0 = rows of a, __a1 = rows of b      kept: __a0 > 0 AND __a1 > 0
a EXCEPT b                                                                      kept: __a0 > 0 AND __a1 = 0
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from jobs.ivm.plan.builder import Stages
from jobs.ivm.plan.group import distinct_stage
from jobs.ivm.plan.inputs import selected
from jobs.ivm.plan.map import map_stage
from jobs.ivm.plan.rows import Selected, apart, of_relation
from jobs.ivm.plan.trees import all_of, named, number
from jobs.model import types as t
from jobs.model.calls import AggregateCall
from jobs.model.stage import AggregateStage, Output, Stage
from jobs.query.clauses.logical import SetOperation

_TAG = "__tag"
_OVER = "rows"
"""Alias of the inner stage that counts, in the stage above it."""


def set_stage(query: SetOperation, stages: Stages) -> Stage:
    """The stage of a set operation that gives every row once."""
    if query.operation == "union":
        return distinct_stage(selected(replace(query, operation="union all"), stages))
    relation = stages.add(_counted(query, stages))
    stages.note(f"{query.operation.upper()}: an inner stage counts each row in each branch")
    calls = [named(_count(place), _OVER) for place in range(len(query.branches))]
    first = exp.GT(this=calls[0], expression=number(0))
    kind = exp.GT if query.operation == "intersect" else exp.EQ
    others = [kind(this=each, expression=number(0)) for each in calls[1:]]
    outputs = tuple(Output(name, named(name, _OVER), of) for name, of in query.outputs)
    return map_stage((Selected(of_relation(relation, _OVER).filtered(all_of(first, *others)), outputs),))


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
