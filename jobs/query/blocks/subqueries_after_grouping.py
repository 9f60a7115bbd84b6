"""Scalar subqueries in HAVING and the clauses after it, joined with the groups.

SELECT k, COUNT(*) AS c FROM s GROUP BY k HAVING COUNT(*) > (SELECT AVG(n) AS a FROM t)

__g      SELECT k, COUNT(*) AS __a0 FROM s GROUP BY k          the groups, as a query of their own
outside  SELECT __g.k, __g.__a0 AS c FROM __g, __s0 WHERE __g.__a0 > __s0.a
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.stage import Output
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.logical.conditions import aliases
from strandline.jobs.query.logical.group_columns import BOUNDS, mark_outputs
from strandline.jobs.query.logical.query import Block, From

GROUPS = "__g"


def after_groups(block: Block, values: Sequence[From]) -> Block:
    """A grouped block whose HAVING, outputs or functions over windows read `values`, as a query over its groups.

    Args:
        block: its clauses after grouping are over the names of groups and calls and the columns of `values`; so are
            the conditions of `values`.
    """
    assert block.group is not None
    shown = [*block.group, *(Output(call.name, column(call.name), call.type) for call in block.calls)]
    shown += (*(BOUNDS if block.window is not None else ()), *mark_outputs(block))
    early = tuple(each for each in block.inputs if each.alias not in {value.alias for value in values})
    read_before = _read_before(block, early)
    early = tuple(each for each in block.inputs if each in early or each.alias in read_before)
    groups = Block(
        inputs=early,
        where=block.where,
        outputs=tuple(replace(each, expression=column(each.name)) for each in shown),
        expand=block.expand,
        window=block.window,
        time=block.time,
        group=block.group,
        sets=block.sets,
        calls=block.calls,
        key=() if block.sets or block.window is not None else tuple(key.name for key in block.group),
    )
    return Block(
        inputs=(From(GROUPS, groups), *(replace(each, on=_outside_or_none(each.on)) for each in values)),
        where=_outside_or_none(block.having),
        outputs=tuple(replace(each, expression=_outside(each.expression)) for each in block.outputs),
        partition=tuple(_outside(node) for node in block.partition),
        analytic=tuple(
            replace(
                call,
                arguments=tuple(_outside(node) for node in call.arguments),
                order=tuple((_outside(node), down, first) for node, down, first in call.order),
            )
            for call in block.analytic
        ),
        qualify=_outside_or_none(block.qualify),
        distinct=block.distinct,
        key=block.key,
        unseen_key=block.unseen_key,
    )


def _read_before(block: Block, early: Sequence[From]) -> set[str]:
    """The aliases of the values that WHERE, or the condition of another input, reads as well."""
    nodes = [block.where, *(each.on for each in early)]
    return {alias for node in nodes if node is not None for alias in aliases(node)}


def _outside_or_none(node: exp.Expression | None) -> exp.Expression | None:
    return _outside(node) if node is not None else None


def _outside(node: exp.Expression) -> exp.Expression:
    """An expression over groups and calls, rewritten over the columns of `__g`; analytic calls keep their names."""

    def qualified(each: exp.Expr) -> exp.Expr:
        plain = isinstance(each, exp.Column) and not each.table and not each.name.startswith("__w")
        return column(each.name, GROUPS) if plain else each

    made = node.copy().transform(qualified)
    assert isinstance(made, exp.Expression)
    return made
