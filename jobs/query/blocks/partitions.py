"""Functions OVER windows with different PARTITION BYs: a query for each, one around the other.

SELECT id, RANK() OVER (PARTITION BY a ORDER BY v) AS x, SUM(v) OVER (PARTITION BY b) AS y FROM t QUALIFY x < 3

    __over   SELECT t.id AS __o0, t.v AS __o1, t.b AS __o2, RANK() … AS __w0 FROM t         partition  t.a
    outside  SELECT __over.__o0 AS id, __over.__w0 AS x, __w1 AS y FROM __over QUALIFY …    partition  __over.__o2

A stage computes the partitions again that a change touches, so it has one PARTITION BY. The columns that tell the rows
apart come along, so that rows that tie are ordered alike outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.model.calls import AnalyticCall
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import Output
from strandline.jobs.query.blocks.block_columns import ReadableColumns, places_in, told_apart
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.logical.inputs import from_outside
from strandline.jobs.query.logical.query import Block, From
from strandline.jobs.sql.places import Place, replaced, replaced_call

_ALIAS = "__over"


@dataclass(frozen=True)
class Partition:
    """The calls of one query that have one PARTITION BY.

    Attributes:
        begin, end: the places of its expressions among those of all partitions.
        calls: the names of the calls.
    """

    begin: int
    end: int
    calls: frozenset[str]


def partitions_apart(block: Block, partitions: Sequence[Partition]) -> Block:
    """The block with one PARTITION BY in each query; itself when it has one.

    Args:
        block: its `partition` holds the expressions of all partitions, one after the other.

    Raises:
        NotSupported: it is a subquery that reads the query around it.
    """
    if len(partitions) < 2:
        return block
    if any(from_outside(node) for node in (block.where, *(each.on for each in block.inputs)) if node is not None):
        raise NotSupported(
            "several PARTITION BY in a subquery that reads the query around it are not maintained",
            hint="put the functions over one of them into a subquery in FROM",
        )
    first, *others = partitions
    rest = tuple(call for call in block.analytic if call.name not in first.calls)
    inner, names = _inner(block, first, rest)
    outer = Block(
        inputs=(From(_ALIAS, inner),),
        where=None,
        outputs=tuple(replace(each, expression=replaced(each.expression, names)) for each in block.outputs),
        partition=tuple(replaced(each, names) for each in block.partition[first.end :]),
        analytic=tuple(replaced_call(each, names) for each in rest),
        qualify=replaced(block.qualify, names) if block.qualify is not None else None,
        distinct=block.distinct,
        key=block.key,
        unseen_key=block.unseen_key,
    )
    moved = [replace(each, begin=each.begin - first.end, end=each.end - first.end) for each in others]
    return partitions_apart(outer, moved)


def _inner(block: Block, first: Partition, rest: Sequence[AnalyticCall]) -> tuple[Block, dict[Place, exp.Expression]]:
    """The query of the first partition, and where the outer one finds each column that it reads."""
    own = tuple(call for call in block.analytic if call.name in first.calls)
    apart = told_apart(block)
    trees = [*(each.expression for each in block.outputs), *block.partition[first.end :], *apart]
    trees += [node for call in rest for node in (*call.arguments, *(by for by, _, _ in call.order))]
    trees += [block.qualify] if block.qualify is not None else []
    scope = ReadableColumns(block)
    made = {("", call.name): Output(call.name, column(call.name), call.type) for call in own}
    later = {("", call.name) for call in rest}
    for place in places_in(trees):
        if place not in made and place not in later:
            found = column(place[1], place[0] or None)
            made[place] = Output(f"__o{len(made) - len(own)}", found, scope.resolve(found).type)
    inner = replace(
        block,
        outputs=tuple(made.values()),
        partition=block.partition[: first.end],
        analytic=own,
        qualify=None,
        distinct=False,
        key=tuple(made[place].name for place in places_in(apart)),
        unseen_key="",
    )
    return inner, {place: column(output.name, _ALIAS) for place, output in made.items()}
