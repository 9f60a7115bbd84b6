"""The grand total of GROUPING SETS, ROLLUP and CUBE: the set `()` is one row, even over no input.

SELECT area, COUNT(*) AS n FROM s GROUP BY ROLLUP (area) HAVING …

    GROUP BY area        area, COUNT(*)   ┐
                                          ├ UNION ALL    HAVING, OVER (…), SELECT
    all rows, no group   NULL, COUNT(*)   ┘

A row on which a group column fails is not in the total either. Any other group exists while rows fall into it. Under
WINDOW there is no grand total: each group belongs to a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.trees import named
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AggregateCall, Output
from strandline.jobs.query.inputs import mark_outputs, mark_value
from strandline.jobs.query.logical import Block, From, SetOperation
from strandline.jobs.sql.places import Place, replaced, replaced_call

_OVER = "groups"
"""Alias of the groups and totals in the block above them."""


def totals_apart(block: Block, stages: Stages) -> Block:
    """The block with each set `()` as a query of its own without groups; unchanged when there is no such set."""
    others = tuple(each for each in block.sets if each)
    if len(others) == len(block.sets) or block.window is not None:
        return block
    assert block.group is not None
    stages.note("GROUPING SETS with (): an inner stage keeps the grand total, which is a row also over no rows")
    groups = [replace(each, expression=named(each.name)) for each in block.group]
    calls, marks = [Output(each.name, named(each.name), each.type) for each in block.calls], mark_outputs(block)
    shown = (*groups, *calls, *marks)
    below = replace(block, having=None, partition=(), analytic=(), qualify=None, distinct=False, key=(), outputs=shown)
    # ksqlDB's semantics leave out rows with a null in the group, but not in grouping sets: a single one stays a set.
    whole = stages.semantics == "sql" and others == (tuple(range(len(groups))),)
    inside, outside = (tuple(replace(each, expression=mark_value(value)) for each in marks) for value in (0, 1))
    plain = replace(below, sets=(), outputs=(*groups, *calls, *inside))
    branches = [plain if whole else replace(below, sets=others)] if others else []
    absent = tuple(replace(each, expression=exp.Null()) for each in groups)
    total = replace(
        below, group=(), sets=(), calls=(*block.calls, *_read(block.group)), outputs=(*absent, *calls, *outside)
    )
    branches += [total] * (len(block.sets) - len(others))
    names = {("", each.name): named(each.name, _OVER) for each in below.outputs}
    made = SetOperation("union all", tuple(branches), tuple((each.name, each.type) for each in below.outputs))
    return Block(
        inputs=(From(_OVER, made),),
        where=_over(block.having, names),
        outputs=tuple(replace(each, expression=replaced(each.expression, names)) for each in block.outputs),
        partition=tuple(replaced(each, names) for each in block.partition),
        analytic=tuple(replaced_call(each, names) for each in block.analytic),
        qualify=_over(block.qualify, names),
        distinct=block.distinct,
        key=block.key,
    )


def _read(group: Sequence[Output]) -> Iterator[AggregateCall]:
    """Calls of nobody's that read the group columns which can fail: a row on which one does is in no set."""
    for place, each in enumerate(group):
        if can_fail(each.expression):
            yield AggregateCall(f"__read{place}", "COUNT", (each.expression,), (each.type,), t.BIGINT)


def _over(node: exp.Expression | None, names: Mapping[Place, exp.Expression]) -> exp.Expression | None:
    return replaced(node, names) if node is not None else None
