"""Functions OVER windows with different PARTITION BYs: a query for each, one around the other.

SELECT id, RANK() OVER (PARTITION BY a ORDER BY v) AS x, SUM(v) OVER (PARTITION BY b) AS y FROM t QUALIFY x < 3

    __over   SELECT t.id AS __o0, t.v AS __o1, t.b AS __o2, RANK() … AS __w0 FROM t         partition  t.a
    outside  SELECT __over.__o0 AS id, __over.__w0 AS x, __w1 AS y FROM __over QUALIFY …    partition  __over.__o2

A stage computes the partitions again that a change touches, so it has one PARTITION BY. The columns that tell the
rows apart come along, so that rows that tie are ordered alike outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.functions.scalars.domains import REACH
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import AnalyticCall, Output
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import ReadableColumns, from_outside, places_in, row_identity
from strandline.jobs.query.logical import Block, From
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import Place, columns_in, replaced, replaced_call

_ALIAS = "__over"
_EARLY = "__early"


@dataclass(frozen=True)
class Partition:
    """The calls of one query that share a PARTITION BY.

    Attributes:
        begin, end: the places of its expressions among those of all partitions.
        calls: the names of the calls.
    """

    begin: int
    end: int
    calls: frozenset[str]


def partitions_apart(block: Block, partitions: Sequence[Partition]) -> Block:
    """Split a block into nested queries with one PARTITION BY each; a block with one stays as it is.

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
    block, early = _early(block, first)
    rest = tuple(call for call in block.analytic if call.name not in first.calls)
    inner, names = _inner(block, first, rest, early)
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


def _early(block: Block, first: Partition) -> tuple[Block, dict[Place, Output]]:
    """The block with what can fail of a row by itself as columns, and those columns: the query of the first partition
    computes them, so that a row on which one fails is in no window."""
    calls, scope = {call.name for call in block.analytic}, ReadableColumns(block)
    found: dict[str, Output] = {}

    def read(node: exp.Expression, sql_type: SqlType | None = None) -> exp.Expression:
        # The bound of a frame stands in its call alone.
        if (isinstance(node, exp.Anonymous) and node.name == REACH) or not can_fail(node):
            return node
        if any(not each.table and each.name in calls for each in columns_in(node)):
            return node
        made = Output(f"__e{len(found)}", node, sql_type or infer(node, scope).type)
        return column(found.setdefault(sql_of(node), made).name, _EARLY)

    def read_call(call: AnalyticCall) -> AnalyticCall:
        if call.name in first.calls:
            return call
        order = tuple((read(by), down, nulls_first) for by, down, nulls_first in call.order)
        return replace(call, arguments=tuple(map(read, call.arguments)), order=order)

    made = replace(
        block,
        outputs=tuple(replace(each, expression=read(each.expression, each.type)) for each in block.outputs),
        partition=(*block.partition[: first.end], *map(read, block.partition[first.end :])),
        analytic=tuple(map(read_call, block.analytic)),
    )
    return made, {(_EARLY, each.name): each for each in found.values()}


def _inner(
    block: Block, first: Partition, rest: Sequence[AnalyticCall], early: Mapping[Place, Output]
) -> tuple[Block, dict[Place, exp.Expression]]:
    """The query of the first partition, and where the outer one finds each column that it reads.

    Args:
        early: what it computes for the others.
    """
    own = tuple(call for call in block.analytic if call.name in first.calls)
    row = row_identity(block)
    trees = [*(each.expression for each in block.outputs), *block.partition[first.end :], *row]
    trees += [node for call in rest for node in (*call.arguments, *(by for by, _, _ in call.order))]
    trees += [block.qualify] if block.qualify is not None else []
    scope = ReadableColumns(block)
    made = {("", call.name): Output(call.name, column(call.name), call.type) for call in own} | dict(early)
    later = {("", call.name) for call in rest}
    for place in places_in(trees):
        if place not in made and place not in later:
            found = column(place[1], place[0] or None)
            made[place] = Output(f"__o{len(made) - len(own) - len(early)}", found, scope.resolve(found).type)
    inner = replace(
        block,
        outputs=tuple(made.values()),
        partition=block.partition[: first.end],
        analytic=own,
        qualify=None,
        distinct=False,
        key=tuple(made[place].name for place in places_in(row)),
        unseen_key="",
    )
    return inner, {place: column(output.name, _ALIAS) for place, output in made.items()}
