"""The stage that maintains a query; the stages below it are added to the plan on the way.

| query | stage |
| --- | --- |
| FROM, WHERE, SELECT | map |
| GROUP BY | aggregate |
| GROUPING SETS with `()` | two aggregates, and a map over the UNION ALL of both |
| GROUP BY … HAVING, EMIT FINAL | an inner aggregate, and a map over its groups |
| SELECT DISTINCT | aggregate: the outputs are the groups, nothing is computed |
| OVER (…) | analytic |
| UNION ALL | map with several branches |
| UNION, INTERSECT [ALL], EXCEPT [ALL] | aggregate over the branches, and a map over its groups but for UNION |
"""

from __future__ import annotations

from dataclasses import replace

from strandline.jobs.ivm.plan.analytic import analytic_stage, fused
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.grand_total import totals_apart
from strandline.jobs.ivm.plan.group import distinct_stage, grouped_stage, over_groups
from strandline.jobs.ivm.plan.inputs import is_plain, rows_of_block, selected
from strandline.jobs.ivm.plan.map import map_stage
from strandline.jobs.ivm.plan.rows import Selected
from strandline.jobs.ivm.plan.sets import set_stage
from strandline.jobs.model.stage import Stage
from strandline.jobs.query.logical import Block, Query, SetOperation


def stage_of_query(query: Query, stages: Stages) -> Stage:
    """The stage that holds the query's rows; its table has no name yet.

    Raises:
        NotSupported: no stage can maintain it; the message says why.
    """
    if isinstance(query, SetOperation):
        if query.operation == "union all":
            return map_stage(selected(query, stages), with_places=stages.places)
        return set_stage(query, stages)
    block = totals_apart(fused(query), stages)
    if block.distinct:
        return distinct_stage(selected(replace(block, distinct=False), stages.placed(False)))
    if is_plain(block):
        return map_stage(selected(block, stages), with_places=stages.places)
    if block.group is None:
        return analytic_stage(rows_of_block(block, stages), block, stages)
    return _grouped(block, stages)


def _grouped(block: Block, stages: Stages) -> Stage:
    final = block.window is not None and block.window.final
    if block.having is None and not block.analytic and not final:
        return grouped_stage(block, stages)
    rows = over_groups(block, stages)
    if block.analytic:
        return analytic_stage((rows,), block, stages)
    return map_stage((Selected(rows, tuple(rows.output(each) for each in block.outputs)),))
