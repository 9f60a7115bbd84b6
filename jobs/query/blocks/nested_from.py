"""What FROM has so far, as a query of its own, in which the inputs keep their names.

    FROM a JOIN b ON a.x = b.x, UNNEST(a.tags) AS u (tag) JOIN c ON c.id = u.tag

    __from0  SELECT a.x AS __n0, …, __u0 AS __n5 FROM a JOIN b ON a.x = b.x     with the items of a.tags
    outside  FROM __from0 JOIN c ON c.id = __from0.__n5                         a.x reads __from0.__n0

In a stage joins come before the items of an array, and both before functions OVER a window: what is joined with those
reads them from a stage below.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.stage import Output
from strandline.jobs.query.blocks.block_columns import ReadableColumns, expressions_of, places_in, told_apart
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.logical.inputs import Inputs
from strandline.jobs.query.logical.query import Block, From
from strandline.jobs.sql.places import Place, replaced

_ALIAS = "__from"


def nested(block: Block, inputs: Inputs, number: int) -> tuple[From, Inputs]:
    """A block as the only input so far, and the names of what it joins, which are read from it.

    Args:
        block: without outputs; it gets all columns that a name of `inputs` means, and those that tell its rows apart.
        number: of the query among those of one FROM.
    """
    alias = f"{_ALIAS}{number}"
    columns = [(part, name) for part in inputs.parts for name in (*dict(part.columns), *part.hidden)]
    apart = places_in(told_apart(block))
    scope = ReadableColumns(block)
    made: dict[Place, Output] = {}
    for place in (*places_in(part.column(name) for part, name in columns), *apart):
        found = column(place[1], place[0] or None)
        made.setdefault(place, Output(f"__n{len(made)}", found, scope.resolve(found).type))
    read = {place: column(output.name, alias) for place, output in made.items()}
    inner = replace(block, outputs=tuple(made.values()), key=tuple(made[place].name for place in apart))
    return From(alias, inner), _moved(inputs, read)


def _moved(inputs: Inputs, read: dict[Place, exp.Column]) -> Inputs:
    parts = []
    for part in inputs.parts:
        names = (*dict(part.columns), *part.hidden)
        found = {name: part.column(name) for name in names}
        parts.append(replace(part, read={name: read[node.table, node.name] for name, node in found.items()}))
    merged = {name: Typed(replaced(each.expression, read), each.type) for name, each in inputs.merged.items()}
    return replace(inputs, parts=tuple(parts), merged=merged, rowkey=None)


def without_unread(block: Block) -> Block:
    """The block whose nested FROM gives nothing that is not read: every column is stored by a stage."""
    trees = [*expressions_of(block), *block.partition_by, *([block.time] if block.time is not None else [])]
    read = set(places_in(trees))
    return replace(block, inputs=tuple(_pruned(each, read) for each in block.inputs))


def _pruned(source: From, read: set[Place]) -> From:
    if not source.alias.startswith(_ALIAS) or not isinstance(source.source, Block):
        return source
    inner = source.source
    kept = tuple(each for each in inner.outputs if (source.alias, each.name) in read or each.name in inner.key)
    return replace(source, source=without_unread(replace(inner, outputs=kept)))
