"""The grand total of GROUPING SETS, ROLLUP and CUBE: the set `()` is one row, also over no rows.

SELECT area, COUNT(*) AS n FROM s GROUP BY ROLLUP (area) HAVING …

    GROUP BY area        area, COUNT(*)   ┐
                                          ├ UNION ALL    HAVING, OVER (…), SELECT
    all rows, no group   NULL, COUNT(*)   ┘

Any other group is there while rows fall into it. Below WINDOW there is no grand total: its groups are of a window each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from jobs.ivm.plan.builder import Stages
from jobs.ivm.plan.trees import Place, named, replaced
from jobs.model.calls import AnalyticCall
from jobs.model.stage import Output
from jobs.query.clauses.logical import Block, From, SetOperation

_OVER = "groups"
"""Alias of the groups and totals in the block above them."""


def totals_apart(block: Block, stages: Stages) -> Block:
    """The same rows, each set `()` being a query without groups; a block without such a set as it is."""
    others = tuple(each for each in block.sets if each)
    if len(others) == len(block.sets) or block.window is not None:
        return block
    assert block.group is not None
    stages.note("GROUPING SETS with (): an inner stage keeps the grand total, which is a row also over no rows")
    groups = [replace(each, expression=named(each.name)) for each in block.group]
    calls = [Output(each.name, named(each.name), each.type) for each in block.calls]
    below = replace(
        block, having=None, partition=(), analytic=(), qualify=None, distinct=False, key=(), outputs=(*groups, *calls)
    )
    # ksqlDB's semantics leave out rows with a null in the group, but not in grouping sets: one that is left stays one.
    whole = stages.semantics == "sql" and others == (tuple(range(len(groups))),)
    branches = [replace(below, sets=() if whole else others)] if others else []
    absent = tuple(replace(each, expression=exp.Null()) for each in groups)
    total = replace(below, group=(), sets=(), outputs=(*absent, *calls))
    branches += [total] * (len(block.sets) - len(others))
    names = {("", each.name): named(each.name, _OVER) for each in below.outputs}
    made = SetOperation("union all", tuple(branches), tuple((each.name, each.type) for each in below.outputs))
    return Block(
        inputs=(From(_OVER, made),),
        where=_over(block.having, names),
        outputs=tuple(replace(each, expression=replaced(each.expression, names)) for each in block.outputs),
        partition=tuple(replaced(each, names) for each in block.partition),
        analytic=tuple(_call_over(each, names) for each in block.analytic),
        qualify=_over(block.qualify, names),
        distinct=block.distinct,
        key=block.key,
    )


def _over(node: exp.Expression | None, names: Mapping[Place, exp.Expression]) -> exp.Expression | None:
    return replaced(node, names) if node is not None else None


def _call_over(call: AnalyticCall, names: Mapping[Place, exp.Expression]) -> AnalyticCall:
    return replace(
        call,
        arguments=tuple(replaced(each, names) for each in call.arguments),
        order=tuple((replaced(each, names), down, first) for each, down, first in call.order),
    )
