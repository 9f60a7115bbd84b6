"""The columns of a block: the scope of its inputs, the types of what its clauses can read, and what they do read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from strandline.jobs.model.columns import ITEM, META_COLUMNS
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.types import INT, SqlType
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.logical.group_columns import BOUNDS, mark_outputs
from strandline.jobs.query.logical.inputs import OUTER, Inputs, Part
from strandline.jobs.query.logical.keys import identity, outputs_of
from strandline.jobs.query.logical.query import Block, From
from strandline.jobs.sql.places import Place, columns_in


def inputs_of(block: Block) -> Inputs:
    """The scope of a block's inputs, for expressions that are elaborated already."""
    return Inputs(tuple(_part(each) for each in block.inputs))


def _part(each: From) -> Part:
    source = each.source
    if isinstance(source, Relation):
        return Part(each.alias, source.name, source, (*source.columns, *source.hidden), {})
    return Part(each.alias, each.alias, source, outputs_of(source), dict(META_COLUMNS))


def expressions_of(block: Block) -> Iterator[exp.Expression]:
    """The expressions of all clauses of a block, but for those that only streams have."""
    singles = (block.where, block.having, block.qualify, *(each.on for each in block.inputs), *block.partition)
    yield from (node for node in singles if node is not None)
    for output in (*block.outputs, *block.expand, *(block.group or ())):
        yield output.expression
    for call in block.calls:
        yield from call.arguments
        if call.filter is not None:
            yield call.filter
    for analytic in block.analytic:
        yield from (*analytic.arguments, *(node for node, _, _ in analytic.order))


class ReadableColumns:
    """The scope of a block's clauses after WHERE and grouping, for expressions that are elaborated already."""

    def __init__(self, block: Block) -> None:
        self._inputs = inputs_of(block)
        plain = (*(block.group or ()), *block.expand, *mark_outputs(block), *BOUNDS)
        types = {ITEM: INT, **{each.name: each.type for each in plain}}
        self._plain: dict[str, SqlType] = types | {call.name: call.type for call in block.calls}

    def resolve(self, column: exp.Column) -> Typed:
        """The column, which is there, with its type."""
        return self._inputs.resolve(column) if column.table else Typed(column, self._plain[column.name])


def told_apart(block: Block) -> list[exp.Expression]:
    """The columns that tell the block's rows apart, after grouping if it groups; as far as they can be read."""
    if block.group is None:
        return identity(block)
    bounds = BOUNDS if block.window is not None else ()
    return [column(each.name) for each in (*block.group, *bounds)]


def places_in(trees: Iterable[exp.Expression]) -> list[Place]:
    """The columns of this query, not of one around it, that some expressions read: in the order of the text."""
    found = (node for tree in trees for node in columns_in(tree) if OUTER not in node.meta)
    return list(dict.fromkeys((node.table, node.name) for node in found))
