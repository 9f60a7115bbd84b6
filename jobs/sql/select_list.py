"""The SELECT list: what its columns are called, and which names they cannot have."""

from __future__ import annotations

from sqlglot import exp

from jobs.errors import InvalidQuery
from jobs.ivm.stage import Output
from jobs.sql.dialect import position_of
from jobs.sql.grouping import Calls
from jobs.sql.infer import infer
from jobs.sql.model import META_COLUMNS, PSEUDO_COLUMNS
from jobs.sql.scope import Scope, Typed, column
from jobs.sql.types import Kind

RESERVED = frozenset({*PSEUDO_COLUMNS, *(name for name, _ in META_COLUMNS)})
"""Names that no column of a source or view can have; nor those that begin with two underscores."""


def read_outputs(select: exp.Select, scope: Scope, calls: Calls) -> tuple[Output, ...]:
    """The visible columns of a SELECT, elaborated; an expression without a name is `ksql_col_0`, …, as in ksqlDB.

    Raises:
        InvalidQuery: a column without a type, or with a name that is reserved or there already; and as `infer`.
    """
    outputs: list[Output] = []
    unnamed = 0
    for item in select.expressions:
        if _is_star(item):
            if isinstance(item, exp.Column):
                scope.check_qualifier(item)
            outputs += [Output(name, column(name), scope.relation.type_of(name)) for name in scope.visible]
            continue
        node = item.this if isinstance(item, exp.Alias) else item
        name = _name_of(item)
        if name is None:
            name, unnamed = f"ksql_col_{unnamed}", unnamed + 1
        found = infer(node, scope, calls.read)
        _check_output(name, found, item, outputs)
        outputs.append(Output(name, found.expression, found.type))
    return tuple(outputs)


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def _name_of(item: exp.Expr) -> str | None:
    """The alias, the column's or the field's own name; None for any other expression."""
    if isinstance(item, exp.Alias):
        return item.alias
    if isinstance(item, exp.Column):
        return item.name
    return item.expression.name if isinstance(item, exp.Dot) else None


def _check_output(name: str, found: Typed, item: exp.Expr, earlier: list[Output]) -> None:
    message, hint = None, "give it a name with AS"
    if name in RESERVED or name.startswith("__"):
        message = f"'{name}' is reserved: it cannot be the name of a column"
    elif any(output.name == name for output in earlier):
        message = f"two columns are named '{name}'"
    elif found.type.kind is Kind.NULL:
        message, hint = f"column '{name}' is NULL and has no type", "CAST(NULL AS …)"
    if message is not None:
        line, place = position_of(item)
        raise InvalidQuery(message, line=line, column=place, hint=hint)
