"""Row-by-row queries of one table: the predicate pushed down to its reader, and the order of its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from strandline.jobs.model.relation import EVENT_ORDER, Relation
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.logical import Block, OrderItem
from strandline.jobs.query.pulled import HIDDEN

if TYPE_CHECKING:
    from strandline.jobs.query.logical import PullQuery
    from strandline.state_store.delta.statistics import Predicate

_BITS = {BaseType.INT: 32, BaseType.BIGINT: 64}


def key_predicate(pull: PullQuery) -> Predicate | None:
    """A condition that every row of the answer meets, for the reader of the only table; None when there is none.

    It is made of the terms `column = constant` and `column IN (constants)` of WHERE, joined with AND and OR, over whole
    numbers and text: there the reader compares as DuckDB does. DuckDB applies the whole WHERE again.
    """
    relation = only_relation(pull)
    if relation is None or not isinstance(pull.query, Block):
        return None
    return _met(pull.query.where, relation, None)


def part_predicate(pull: PullQuery, name: str) -> Predicate | None:
    """The same of the rows of one table among those that a query joins; None too where it is read more than once."""
    if not isinstance(pull.query, Block) or pull.nested:
        return None
    parts = [part for part in pull.query.inputs if isinstance(part.source, Relation) and part.source.name == name]
    if len(parts) != 1 or not all(isinstance(part.source, Relation) for part in pull.query.inputs):
        return None
    (part,) = parts
    assert isinstance(part.source, Relation)
    return _met(pull.query.where, part.source, part.alias)


def _met(condition: exp.Expr | None, relation: Relation, alias: str | None) -> Predicate | None:
    """{column: the values that it may have} where a condition is true; None where it says nothing of that.

    Args:
        alias: of the columns that are meant; None: all are.
    """
    node = condition.unnest() if condition is not None else None
    if isinstance(node, exp.And):
        found: dict[str, list[Any]] = {}
        for side in (_met(node.left, relation, alias), _met(node.right, relation, alias)):
            for name, values in (side or {}).items():
                found[name] = [value for value in values if name not in found or value in found[name]]
        return found or None
    if isinstance(node, exp.Or):
        left, right = (_met(side, relation, alias) or {} for side in (node.left, node.right))
        return {name: list(dict.fromkeys((*left[name], *right[name]))) for name in left if name in right} or None
    compared = _comparison(node, relation, alias) if node is not None else None
    return None if compared is None else dict([compared])


def row_by_row(pull: PullQuery) -> bool:
    """True if each row of the answer comes from one row of one table, in any order."""
    block = pull.query
    if only_relation(pull) is None or not isinstance(block, Block) or pull.order or pull.offset:
        return False
    combined = block.group is not None or block.calls or block.analytic or block.distinct
    return not (combined or block.having is not None or block.expand)


def in_natural_order(pull: PullQuery) -> PullQuery:
    """A row-by-row query in the order of its table: a stream's order of events, a table's key (maybe none)."""
    block, order = pull.query, natural_order(pull)
    assert isinstance(block, Block)
    items = tuple(OrderItem(each.name, descending=False, nulls_first=False) for each in order)
    return replace(pull, query=replace(block, outputs=(*block.outputs, *order)), order=items)


def natural_order(pull: PullQuery) -> tuple[Output, ...]:
    """The columns that order a row-by-row query's table, as further outputs; none when its key is not visible."""
    assert isinstance(pull.query, Block)
    (part,) = pull.query.inputs
    relation = part.source
    assert isinstance(relation, Relation)
    types = dict(relation.columns)
    names = EVENT_ORDER if relation.storage == "append" else relation.key
    if not types.keys() >= set(names):
        return ()
    return tuple(
        Output(f"{HIDDEN}{number}", column(name, part.alias), types[name]) for number, name in enumerate(names)
    )


def only_relation(pull: PullQuery) -> Relation | None:
    """The table of a query that reads one, once."""
    if not isinstance(pull.query, Block) or len(pull.query.inputs) != 1 or pull.nested:
        return None
    (part,) = pull.query.inputs
    return part.source if isinstance(part.source, Relation) else None


def _comparison(node: exp.Expr, relation: Relation, alias: str | None) -> tuple[str, list[Any]] | None:
    column, constants = node.this, node.expressions if isinstance(node, exp.In) else [node.args.get("expression")]
    if not isinstance(node, exp.EQ | exp.In) or not isinstance(column, exp.Column) or not constants:
        return None
    if alias is not None and column.table != alias:
        return None
    base = relation.type_of(column.name).base
    values = [_constant(constant, base) for constant in constants]
    return None if None in values else (column.name, values)


def _constant(node: exp.Expr | None, base: BaseType) -> int | str | None:
    """The value of a literal of the column's own type; None for any other."""
    negated = isinstance(node, exp.Neg)
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal):
        return None
    if literal.is_string:
        return literal.name if base is BaseType.VARCHAR and not negated else None
    if base not in _BITS or not literal.is_int:
        return None
    value, most = int(literal.name) * (-1 if negated else 1), 1 << (_BITS[base] - 1)
    return value if -most <= value < most else None
