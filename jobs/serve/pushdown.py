"""Row-by-row queries of one table: the predicate pushed down to its reader, and the order of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from jobs.functions.aggregates.registry import FUNCTIONS
from jobs.model.columns import EVENT_ORDER
from jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.model.relation import Relation
    from jobs.serve.resolve import Resolved
    from state_store.delta.statistics import Predicate

_BITS = {BaseType.INT: 32, BaseType.BIGINT: 64}


def key_predicate(resolved: Resolved) -> Predicate | None:
    """A condition that every row of the answer meets, for the reader of the only table; None when there is none.

    It holds the terms `column = constant` and `column IN (constants)` of WHERE, joined with AND, over whole numbers and
    text: there the reader compares as DuckDB does. DuckDB applies the whole WHERE again.
    """
    relation = _only_relation(resolved)
    where = resolved.query.args.get("where")
    if relation is None or where is None:
        return None
    conditions = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    found: dict[str, list[Any]] = {}
    for name, values in filter(None, (_comparison(node, relation) for node in conditions)):
        found[name] = [value for value in values if name not in found or value in found[name]]
    return found or None


def row_by_row(resolved: Resolved) -> bool:
    """True if each row of the answer comes from one row of one table, in any order."""
    select = resolved.query
    if _only_relation(resolved) is None or any(select.args.get(arg) for arg in _WHOLE_TABLE_CLAUSES):
        return False
    calls = (node.name for node in select.find_all(exp.Anonymous))
    return select.find(exp.Window) is None and not any(name in FUNCTIONS for name in calls)


def natural_order(resolved: Resolved) -> list[exp.Column]:
    """The columns that order a row-by-row query's table: a stream's order of events, a table's key (maybe none)."""
    (relation,) = resolved.relations.values()
    table = resolved.query.find(exp.Table)
    assert table is not None
    names = EVENT_ORDER if relation.storage == "append" else relation.key
    return [exp.column(name, table=table.alias_or_name) for name in names]


def order_by(columns: Iterable[exp.Column]) -> exp.Order:
    """The ORDER BY clause over these columns."""
    return exp.Order(expressions=[exp.Ordered(this=column.copy()) for column in columns])


_WHOLE_TABLE_CLAUSES = ("joins", "group", "having", "distinct", "order", "offset", "with_")


def _only_relation(resolved: Resolved) -> Relation | None:
    """The table of a SELECT that reads one, once."""
    select = resolved.query
    if not isinstance(select, exp.Select) or len(list(select.find_all(exp.Select))) > 1:
        return None
    tables = list(select.find_all(exp.Table))
    return resolved.relations[tables[0].name] if len(tables) == 1 else None


def _comparison(node: exp.Expr, relation: Relation) -> tuple[str, list[Any]] | None:
    node = node.unnest()
    column, constants = node.this, node.expressions if isinstance(node, exp.In) else [node.args.get("expression")]
    if not isinstance(node, exp.EQ | exp.In) or not isinstance(column, exp.Column) or not constants:
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
