"""The subqueries that are one with the query around them: what they compute, it computes of the rows that they read.

    SELECT x FROM (SELECT id, 10 / n AS x FROM s WHERE n > 0) WHERE id > 5       one row of s decides both WHEREs
    SELECT x FROM (SELECT DISTINCT 10 / n AS x FROM s) WHERE x > 5               the inner rows are there by themselves

Of the first, an expression that nobody reads does not fail, nor one of a row that the outer WHERE leaves out. Of the
second the subquery's rows are complete before the outer query begins; those that fail in it are its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.model.relation import Relation
from strandline.jobs.query.logical.query import Block, From, Query, SetOperation


def is_read_through(block: Block, place: int, *, shared: bool) -> bool:
    """True if the input at that place is a subquery that is one with the block.

    Args:
        shared: joins have tables of their own, as with STATE = 'shared'.
    """
    source = block.inputs[place].source
    if isinstance(source, Relation):
        return False
    later = block.inputs[place + 1 :]
    if place == 0:
        return _first(source, later, shared)
    return _joined(block.inputs[place], source, later, shared)


def is_plain(query: Query) -> bool:
    """True if the query only joins, filters, projects and explodes."""
    return isinstance(query, Block) and query.group is None and not query.analytic and not query.distinct


def _first(source: Query, others: Sequence[From], shared: bool) -> bool:
    if not (is_plain(source) or (isinstance(source, SetOperation) and source.operation == "union all")):
        return False
    branches = _branches(source)
    if any(isinstance(each, Block) and is_plain(each) and each.expand for each in branches):
        return False
    if others and (isinstance(source, SetOperation) or _sets_of_rows(source, shared) > 1):
        return False
    padded = any(each.join in ("right", "full") for each in others)
    return not padded or all(isinstance(each, Block) and _is_bare(each, shared) for each in branches)


def _joined(part: From, source: Query, later: Sequence[From], shared: bool) -> bool:
    if not isinstance(source, Block) or not is_plain(source) or source.expand:
        return False
    if _sets_of_rows(source, shared) != 1 or _number_of_inputs(source, shared) != 1:
        return False
    if part.join in ("right", "full") and _filters(source, shared):
        return False
    padded = part.join in ("left", "full") or any(each.join in ("right", "full") for each in later)
    return not padded or _gives_columns(source, shared)


def _branches(query: Query) -> list[Query]:
    if isinstance(query, SetOperation) and query.operation == "union all":
        return [each for branch in query.branches for each in _branches(branch)]
    return [query]


def _sets_of_rows(query: Query, shared: bool) -> int:
    """The branches of UNION ALL that a query is read as."""
    if isinstance(query, SetOperation) and query.operation == "union all":
        return sum(_sets_of_rows(branch, shared) for branch in query.branches)
    if isinstance(query, Block) and is_plain(query) and query.inputs and is_read_through(query, 0, shared=shared):
        source = query.inputs[0].source
        assert not isinstance(source, Relation)
        return _sets_of_rows(source, shared)
    return 1


def _number_of_inputs(block: Block, shared: bool) -> int:
    """The relations that the rows of a plain block are joined from."""
    if not block.inputs:
        return 0
    first = 1
    if is_read_through(block, 0, shared=shared):
        source = block.inputs[0].source
        first = _number_of_inputs(source, shared) if isinstance(source, Block) and is_plain(source) else 1
    number = first + len(block.inputs) - 1
    return min(number, 1) if shared else number


def _filters(block: Block, shared: bool) -> bool:
    """True if a plain block has a WHERE, or a subquery that is one with it has."""
    if block.where is not None:
        return True
    if not block.inputs or not is_read_through(block, 0, shared=shared):
        return False
    source = block.inputs[0].source
    return isinstance(source, Block) and is_plain(source) and _filters(source, shared)


def _gives_columns(block: Block, shared: bool) -> bool:
    """True if every output of a plain block is a column of a relation or of a subquery with a table of its own."""
    return all(_is_column(output.expression, block, shared) for output in block.outputs)


def _is_bare(query: Query, shared: bool) -> bool:
    """True if a query gives columns as they are, and all rows."""
    if not isinstance(query, Block) or not is_plain(query):
        return True
    return not _filters(query, shared) and _gives_columns(query, shared)


def _is_column(node: exp.Expression, block: Block, shared: bool) -> bool:
    if not isinstance(node, exp.Column):
        return False
    place = next((place for place, each in enumerate(block.inputs) if each.alias == node.table), None)
    if place is None or not is_read_through(block, place, shared=shared):
        return True
    source = block.inputs[place].source
    if not isinstance(source, Block) or not is_plain(source):
        return True
    output = next((each for each in source.outputs if each.name == node.name), None)
    return output is None or _is_column(output.expression, source, shared)
