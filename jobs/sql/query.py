"""A SELECT, understood: names resolved, types known, groups and aggregates told apart."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from jobs.errors import InvalidQuery, NotSupported, UnknownName
from jobs.ivm.stage import AggregateCall, Output, Relation
from jobs.sql.catalog import Catalog
from jobs.sql.dialect import needs_quotes, position_of, sql_of
from jobs.sql.grouping import Calls, check_group, over_groups
from jobs.sql.infer import condition, infer
from jobs.sql.relations import key_of, relation
from jobs.sql.scope import Scope, Typed, column
from jobs.sql.select_list import read_outputs

# Clauses of a SELECT that parse and are not maintained: argument of the tree -> what it is called.
_REFUSED = {
    "with_": "common table expressions (WITH)",
    "distinct": "SELECT DISTINCT",
    "joins": "joins",
    "laterals": "LATERAL",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "into": "SELECT INTO",
}


@dataclass(frozen=True)
class Grouping:
    """What GROUP BY makes of a query.

    Attributes:
        keys: the group expressions over the input. One that is selected has its output's name, another is `__k0`, ….
        calls: the aggregate calls over the input.
        outputs: the visible columns, over the names of keys and calls.
        having: the condition, over the same; None when there is none.
    """

    keys: tuple[Output, ...]
    calls: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    having: exp.Expression | None


@dataclass(frozen=True)
class Query:
    """One SELECT over one relation.

    Attributes:
        input_key: the visible key columns of the input; of a stream those from the record's key.
        outputs: the visible columns, elaborated, over the input; aggregate calls stand in them as written.
        where: elaborated.
        grouping: None for a filter and projection.
        partition_by: elaborated.
        explicit_group: GROUP BY was written; without it an aggregate makes one group of all rows.
        text: the whole, in our dialect, names resolved and conversions explicit.
    """

    input: Relation
    input_key: tuple[str, ...]
    outputs: tuple[Output, ...]
    where: exp.Expression | None
    grouping: Grouping | None
    partition_by: tuple[exp.Expression, ...]
    explicit_group: bool
    text: str

    @property
    def key(self) -> tuple[str, ...]:
        """The outputs that identify a row, when all that do are visible; of a stream, those from the record's key."""
        if self.grouping is not None:
            names = tuple(key.name for key in self.grouping.keys)
            visible = {output.name for output in self.outputs}
            return names if visible.issuperset(names) else ()
        if self.partition_by:
            wanted = [sql_of(each) for each in self.partition_by]
        else:
            wanted = [sql_of(column(name)) for name in self.input_key]
        chosen: dict[str, str] = {}
        for output in self.outputs:
            chosen.setdefault(sql_of(output.expression), output.name)
        names = tuple(chosen[text] for text in wanted if text in chosen)
        return names if len(names) == len(wanted) or self.input.kind == "append" else ()


def read_query(tree: exp.Query, catalog: Catalog) -> Query:
    """Understand a SELECT.

    Raises:
        UnknownName, TypeMismatch, InvalidQuery, NotSupported: with line and column where they are known.
    """
    select = _plain_select(tree)
    scope = _scope(select, catalog)
    calls = Calls(scope.relation)
    where = _clause(select, "where")
    outputs = read_outputs(select, scope, calls)
    found = condition(where, scope, "WHERE") if where is not None else None
    groups = _groups(select, scope, outputs)
    having_node = _clause(select, "having")
    having = condition(having_node, scope, "HAVING", calls.read) if having_node is not None else None
    grouping = None
    if groups is not None or calls.found or having is not None:
        grouping = _grouping(groups or (), outputs, having, calls)
    partition = select.args.get("partition_by")
    by = tuple(infer(each, scope).expression for each in partition.expressions) if partition else ()
    return Query(
        input=scope.relation,
        input_key=key_of(scope.relation.name, catalog),
        outputs=outputs,
        where=found,
        grouping=grouping,
        partition_by=by,
        explicit_group=groups is not None,
        text=_text(scope.relation.name, outputs, found, groups, having),
    )


def _plain_select(tree: exp.Query) -> exp.Select:
    if not isinstance(tree, exp.Select):
        line, place = position_of(tree)
        name = tree.key.upper() if isinstance(tree, exp.SetOperation) else "this form of query"
        raise NotSupported(f"{name} is not maintained yet", line=line, column=place)
    for argument, what in _REFUSED.items():
        clause = tree.args.get(argument)
        if clause:
            first = clause[0] if isinstance(clause, list) else clause
            line, place = position_of(first)
            raise NotSupported(
                f"{what} in a view is not maintained yet",
                line=line,
                column=place,
                hint="order and limit the rows where they are read"
                if argument in ("order", "limit", "offset")
                else None,
            )
    return tree


def _scope(select: exp.Select, catalog: Catalog) -> Scope:
    clause = select.args.get("from_")
    if clause is None:
        raise InvalidQuery("the query reads nothing", hint="SELECT … FROM a stream or table")
    table = clause.this
    line, place = position_of(table)
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise NotSupported("subqueries are not maintained yet", line=line, column=place)
    if table.args.get("db") is not None:
        raise UnknownName(
            f"unknown schema '{table.db}'", line=line, column=place, hint="names have no schema before them"
        )
    found = relation(table.name, catalog, line=line, column=place)
    return Scope(found, (table.alias or table.name,))


def _clause(select: exp.Select, name: str) -> exp.Expr | None:
    clause = select.args.get(name)
    return clause.this if clause is not None else None


def _groups(select: exp.Select, scope: Scope, outputs: tuple[Output, ...]) -> tuple[Typed, ...] | None:
    clause = select.args.get("group")
    if clause is None:
        return None
    extra = [name for name, value in clause.args.items() if value and name != "expressions"]
    if extra:
        line, place = position_of(clause)
        raise NotSupported(f"GROUP BY {extra[0].upper()} is not maintained yet", line=line, column=place)
    found: dict[str, Typed] = {}
    for node in clause.expressions:
        for each in node.expressions if isinstance(node, exp.Tuple) else [node]:
            group = _group(each, scope, outputs)
            check_group(group)
            found.setdefault(sql_of(group.expression), group)
    return tuple(found.values())


def _group(node: exp.Expr, scope: Scope, outputs: tuple[Output, ...]) -> Typed:
    try:
        found = infer(node, scope)
    except UnknownName as error:
        named = next((output for output in outputs if output.name == node.name), None)
        if named is None or not isinstance(node, exp.Column):
            raise
        hint = f"GROUP BY reads the input, not the SELECT list: GROUP BY {sql_of(named.expression)}"
        raise UnknownName(error.message, line=error.line, column=error.column, hint=hint) from error
    while isinstance(found.expression, exp.Paren):
        inner = found.expression.this
        found = Typed(inner, found.type)
    return found


def _grouping(
    groups: tuple[Typed, ...], outputs: tuple[Output, ...], having: exp.Expression | None, calls: Calls
) -> Grouping:
    shown: dict[str, str] = {}
    for output in outputs:
        shown.setdefault(sql_of(output.expression), output.name)
    keys, hidden = [], 0
    for group in groups:
        name = shown.get(sql_of(group.expression))
        if name is None:
            name, hidden = f"__k{hidden}", hidden + 1
        keys.append(Output(name, group.expression, group.type))
    names = {sql_of(key.expression): key.name for key in keys}
    return Grouping(
        keys=tuple(keys),
        calls=calls.found,
        outputs=tuple(Output(o.name, over_groups(o.expression, names, calls), o.type) for o in outputs),
        having=over_groups(having, names, calls) if having is not None else None,
    )


def _text(
    table: str,
    outputs: tuple[Output, ...],
    where: exp.Expression | None,
    groups: tuple[Typed, ...] | None,
    having: exp.Expression | None,
) -> str:
    items = [
        output.expression.copy()
        if isinstance(output.expression, exp.Column) and output.expression.name == output.name
        else exp.Alias(this=output.expression.copy(), alias=_identifier(output.name))
        for output in outputs
    ]
    select = exp.Select(expressions=items, from_=exp.From(this=exp.Table(this=_identifier(table))))
    if where is not None:
        select.set("where", exp.Where(this=where.copy()))
    if groups:
        select.set("group", exp.Group(expressions=[group.expression.copy() for group in groups]))
    if having is not None:
        select.set("having", exp.Having(this=having.copy()))
    return sql_of(select)


def _identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=needs_quotes(name))
