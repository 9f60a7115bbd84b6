"""Resolves the names of a query: the tables it reads, which of their columns, and the meaning of `*`.

FROM takes streams, tables and views; the event log of a keyed source; dead letters. `*` stands for the declared
columns; the meta columns (`_offset`, …) and pseudo columns (ROWTIME, …) of a stream can be named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema

from jobs.model.columns import META_COLUMNS, PSEUDO_COLUMNS
from jobs.model.errors import InvalidQuery, NotSupported, UnknownName
from jobs.model.relation import Relation
from jobs.query.desugar.joins_in_brackets import without_brackets
from jobs.serve.readable import readable
from jobs.sql.dialect import Strandline, position_of

if TYPE_CHECKING:
    from jobs.catalog.catalog import Catalog

_META = tuple(name for name, _ in META_COLUMNS)
VARIABLE: Final = "lambda variable"
"""Marks a variable of a lambda function, in its `meta`, which sqlglot copies with a node."""


@dataclass(frozen=True)
class Resolved:
    """A query in which every column names its table.

    Attributes:
        relations: those it reads, by name.
        columns: the stored columns it needs of each.
    """

    query: exp.Query
    relations: dict[str, Relation]
    columns: dict[str, set[str]] = field(default_factory=dict)


def resolve(query: exp.Query, catalog: Catalog) -> Resolved:
    """Resolve the names of a SELECT.

    Raises:
        UnknownName: a table or column is not there; the nearest names are proposed.
        InvalidQuery: several tables have a column of that name, or the query has no meaning otherwise.
        NotSupported: FROM reads something other than a name, or EMIT is inside a query.
    """
    query = query.transform(lambda node: without_brackets(node) if isinstance(node, exp.Select) else node)
    query = _named(query)
    _mark_variables(query)
    relations = _relations(query, catalog)
    _check_qualified(query, relations)
    schema = MappingSchema(
        {name: dict.fromkeys(_known(relation), "UNKNOWN") for name, relation in relations.items()},
        visible={name: _visible(relation) for name, relation in relations.items()},
        dialect=Strandline,
        normalize=False,
    )
    try:
        named = qualify(
            query, dialect=Strandline, schema=schema, validate_qualify_columns=False, quote_identifiers=False
        )
    except OptimizeError as error:
        raise InvalidQuery(str(error).splitlines()[0]) from error
    _free_variables(named)
    resolved = Resolved(named, relations)
    for scope in traverse_scope(resolved.query):
        _check_unqualified(scope, relations)
        _note_columns(scope, resolved)
    return resolved


def _named(query: exp.Query) -> exp.Query:
    """Name the columns without a name as a view names them. In place."""
    _check_defined(query)
    for select in query.find_all(exp.Select):
        if select.args.get("emit") is not None:
            raise NotSupported("EMIT stands at the end of a query over one stream or table, not inside another")
        _check_maintained(select)
        named = (exp.Alias, exp.Column, exp.Dot, exp.Star)
        for number, item in enumerate([item for item in select.expressions if not isinstance(item, named)]):
            item.replace(exp.alias_(item.copy(), f"ksql_col_{number}"))
    return query


def _mark_variables(query: exp.Query) -> None:
    """Mark the variables of lambda functions, which hide the columns of their name. In place."""
    for function in query.find_all(exp.Lambda):
        names = {each.name for each in function.expressions}
        for column in function.this.find_all(exp.Column):
            if not column.table and column.name in names:
                column.meta[VARIABLE] = True


def _free_variables(query: exp.Query) -> None:
    """Take back what qualification made of marked variables: they have no table. In place."""
    for column in query.find_all(exp.Column):
        if VARIABLE in column.meta:
            column.set("table", None)


def _check_defined(query: exp.Query) -> None:
    """Refuse the clauses that are computed in the definition of a view alone."""
    for node in query.walk():
        grouped = isinstance(node, exp.Group) and (node.args.get("rollup") or node.args.get("cube"))
        named = isinstance(node, exp.Table) and node.args.get("alias") and node.args["alias"].args.get("columns")
        for word, there in (
            ("WITH ROLLUP or CUBE", grouped),
            ("a list of columns after the name of a table", named),
            ("IGNORE NULLS or RESPECT NULLS", isinstance(node, exp.IgnoreNulls | exp.RespectNulls)),
            ("BY NAME", isinstance(node, exp.SetOperation) and node.args.get("by_name")),
        ):
            if there:
                line, place = position_of(node)
                hint = "define a view with it, and read that"
                raise NotSupported(f"{word} is not computed by pull queries", line=line, column=place, hint=hint)


def _check_maintained(select: exp.Select) -> None:
    """Refuse the clauses that only a view has: they concern changes over time."""
    joins = [join.this for join in select.args.get("joins") or ()]
    within = next((table.args["within"] for table in joins if table.args.get("within") is not None), None)
    for word, node in (
        ("WINDOW", select.args.get("time_window")),
        ("WITHIN", within),
        ("PARTITION BY", select.args.get("partition_by")),
    ):
        if node is not None:
            line, place = position_of(select)
            raise NotSupported(
                f"{word} is for views, and a pull query reads what is there now",
                line=line,
                column=place,
                hint="define a view with it, and read that",
            )


def _relations(query: exp.Query, catalog: Catalog) -> dict[str, Relation]:
    found: dict[str, Relation] = {}
    for scope in _scopes(query):
        for source in scope.sources.values():
            if isinstance(source, exp.Table):
                found[source.name] = readable(source, catalog)
    return found


def _scopes(query: exp.Query) -> list[Scope]:
    try:
        return traverse_scope(query)
    except OptimizeError as error:
        raise InvalidQuery(str(error).splitlines()[0]) from error


def _visible(relation: Relation) -> list[str]:
    return [name for name, _ in relation.columns if relation.storage == "keyed" or name not in _META]


def _known(relation: Relation) -> list[str]:
    """Every name by which a query can read a column of the relation."""
    names = [name for name, _ in relation.columns]
    return names if relation.storage == "keyed" else [*names, *PSEUDO_COLUMNS]


def _check_qualified(query: exp.Query, relations: dict[str, Relation]) -> None:
    """Check that table and column of every `table.column` exist."""
    for scope in _scopes(query):
        for column in scope.columns:
            if not column.table:
                continue
            line, place = position_of(column)
            source = _source(scope, column.table)
            if source is None:
                raise UnknownName.among("table or alias", column.table, scope.sources, line=line, column=place)
            if isinstance(source, exp.Table):
                relation = relations[source.name]
                if column.name not in _known(relation):
                    raise UnknownName.among("column", column.name, _visible(relation), line=line, column=place)


def _source(scope: Scope | None, name: str) -> exp.Expr | Scope | None:
    """The source that `name` stands for, in a scope or one around it."""
    while scope is not None:
        if name in scope.sources:
            return scope.sources[name]
        scope = scope.parent
    return None


def _check_unqualified(scope: Scope, relations: dict[str, Relation]) -> None:
    """Refuse columns left without a table by qualification: unless they are aliases, they are unknown or ambiguous."""
    for column in scope.unqualified_columns:
        if column.find_ancestor(exp.Order) and column.name in _aliases(scope):
            continue
        if VARIABLE in column.meta:
            continue
        line, place = position_of(column)
        offered = {name: _offered(source, relations) for name, source in scope.sources.items()}
        holders = [name for name, names in offered.items() if column.name in names]
        if len(holders) > 1:
            raise InvalidQuery(
                f"column '{column.name}' is in {' and '.join(repr(h) for h in holders)}",
                line=line,
                column=place,
                hint=f"write {holders[0]}.{column.name}",
            )
        known = [name for names in offered.values() for name in names if name not in _META]
        raise UnknownName.among("column", column.name, known, line=line, column=place)


def _offered(source: exp.Expr | Scope, relations: dict[str, Relation]) -> list[str]:
    if isinstance(source, exp.Table):
        return _known(relations[source.name])
    return _aliases(source) if isinstance(source, Scope) else []


def _aliases(scope: Scope) -> list[str]:
    return list(scope.expression.named_selects) if isinstance(scope.expression, exp.Query) else []


def _note_columns(scope: Scope, resolved: Resolved) -> None:
    """Note the columns read of each table, and replace pseudo columns by the stored ones they are computed from."""
    for source in scope.sources.values():
        if isinstance(source, exp.Table):
            resolved.columns.setdefault(source.name, set())
    for column in scope.columns:
        table = scope.sources.get(column.table)
        if not isinstance(table, exp.Table):
            continue
        stored = column.name
        if stored not in dict(resolved.relations[table.name].columns):
            stored = PSEUDO_COLUMNS[stored][0]
            column.replace(_pseudo(column, stored))
        resolved.columns[table.name].add(stored)


def _pseudo(column: exp.Column, stored: str) -> exp.Expr:
    moved = exp.column(stored, table=column.table)
    return exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[moved]) if column.name == "rowtime" else moved
