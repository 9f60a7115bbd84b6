"""Types a resolved query and makes its meaning explicit, so that DuckDB answers as a view would.

`jobs.query.expressions.infer` does it for an expression over one relation. This module adds what only queries have:
columns of several relations, DuckDB's aggregates, window functions, subqueries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.optimizer.scope import Scope as Names
from sqlglot.optimizer.scope import traverse_scope

from jobs.functions.aggregates.registry import FUNCTIONS
from jobs.functions.python.declared import function_at
from jobs.model import types as t
from jobs.model.errors import InvalidQuery, NotSupported, UnknownName
from jobs.model.relation import Relation
from jobs.query.expressions.infer import condition, infer
from jobs.query.expressions.scope import Scope, Typed
from jobs.serve.resolve import VARIABLE
from jobs.sql.dialect import position_of, sql_of
from jobs.sql.types_text import data_type

if TYPE_CHECKING:
    from jobs.model.types import SqlType
    from jobs.serve.resolve import Resolved

Outputs = list[tuple[str, "SqlType"]]

# Aggregates for which DuckDB has one function with the value that a view would have.
_AGGREGATES = {name: name for name in ("COUNT", "SUM", "AVG", "MIN", "MAX")} | {"STDDEV_SAMPLE": "STDDEV_SAMP"}
_RANKINGS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_NEIGHBOURS = ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE")
_NOWHERE = Scope(Relation("", (), "keyed"), ())
"""The scope given to `infer`; empty, since columns are resolved here before `infer` looks them up."""


def elaborate(resolved: Resolved) -> Outputs:
    """Elaborate every expression of the query, in place.

    Returns:
        The names and types of the query's columns.

    Raises:
        SqlError: a type or function does not fit; with line and column.
    """
    outputs: dict[int, Outputs] = {}
    # Subqueries come before the queries that contain them.
    for names in traverse_scope(resolved.query):
        outputs[id(names.expression)] = _Elaboration(names, resolved, outputs).run()
    return outputs[id(resolved.query)]


class _Elaboration:
    """One SELECT, or one UNION of SELECTs already done."""

    def __init__(self, names: Names, resolved: Resolved, outputs: dict[int, Outputs]) -> None:
        self._names = names
        self._resolved = resolved
        self._outputs = outputs
        self._aliases: dict[str, SqlType] = {}

    def run(self) -> Outputs:
        query = self._names.expression
        if isinstance(query, exp.Select):
            return self._select(query)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query)
        raise NotSupported(f"{sql_of(query)} is not a SELECT")

    def _select(self, select: exp.Select) -> Outputs:
        for join in select.args.get("joins") or ():
            if join.args.get("on") is not None:
                join.set("on", condition(join.args["on"], _NOWHERE, "ON", self._read))
        for clause in ("where", "having", "qualify"):
            node = select.args.get(clause)
            if node is not None:
                node.set("this", condition(node.this, _NOWHERE, clause.upper(), self._read))
        group = select.args.get("group")
        if group is not None:
            group.set("expressions", [self._typed(item).expression for item in group.expressions])
        outputs: Outputs = []
        items = []
        for item in select.expressions:
            found = self._typed(item.unalias())
            items.append(exp.alias_(found.expression, item.output_name, copy=False))
            outputs.append((item.output_name, found.type))
        select.set("expressions", items)
        self._order(select, outputs)
        return outputs

    def _set_operation(self, query: exp.SetOperation) -> Outputs:
        left, right = (self._outputs[id(side.unnest())] for side in (query.left, query.right))
        if len(left) != len(right):
            raise InvalidQuery(f"one side of the {query.key.upper()} has {len(left)} columns, the other {len(right)}")
        outputs: Outputs = []
        for (name, one), (_, other) in zip(left, right, strict=True):
            shared = t.common_type(one, other)
            if shared is None:
                raise InvalidQuery(
                    f"column '{name}' is {one} on one side of the {query.key.upper()}, {other} on the other"
                )
            outputs.append((name, shared))
        self._order(query, outputs)
        return outputs

    def _order(self, query: exp.Query, outputs: Outputs) -> None:
        self._aliases = dict(outputs)
        order = query.args.get("order")
        for item in order.expressions if order is not None else ():
            item.set("this", self._typed(item.this).expression)

    def _typed(self, node: exp.Expr) -> Typed:
        return infer(node, _NOWHERE, self._read)

    def _read(self, node: exp.Expression, _plain: object) -> Typed | None:
        """The typed form of a node that `infer` does not know, else None. `infer` asks here first, for every node."""
        match node:
            case exp.Column() if not (isinstance(node.this, exp.Star) or VARIABLE in node.meta):
                return Typed(node, self._type_of(node))
            case exp.Subquery():
                return Typed(node, self._only_column(node.this))
            case exp.Exists():
                return Typed(node, t.BOOLEAN)
            case exp.Coalesce():  # a column of JOIN … USING
                return self._typed(exp.Anonymous(this="COALESCE", expressions=[node.this, *node.expressions]))
            case exp.In() if node.args.get("query") is not None:
                return self._in_query(node)
            case exp.Filter() if isinstance(node.this, exp.Anonymous) and node.this.name in _AGGREGATES:
                return self._filtered(node)
            case exp.Anonymous() if node.name in FUNCTIONS:
                return self._aggregate(node)
            case exp.Anonymous() if (written := function_at(node)) is not None and written.aggregate:
                raise _not_computed(node)
            case exp.Window():
                return self._window(node)
            case _:
                return None

    def _type_of(self, column: exp.Column) -> SqlType:
        if not column.table:
            if column.name not in self._aliases:
                line, place = position_of(column)
                raise UnknownName.among("column", column.name, self._aliases, line=line, column=place)
            return self._aliases[column.name]
        names: Names | None = self._names
        while names is not None and column.table not in names.sources:
            names = names.parent
        source = names.sources[column.table] if names is not None else None
        if isinstance(source, exp.Table):
            return self._resolved.relations[source.name].type_of(column.name)
        assert source is not None
        return dict(self._outputs[id(source.expression)])[column.name]

    def _only_column(self, query: exp.Expr) -> SqlType:
        columns = self._outputs[id(query.unnest())]
        if len(columns) != 1:
            raise InvalidQuery(f"a subquery that stands for a value has one column, not {len(columns)}")
        return columns[0][1]

    def _in_query(self, node: exp.In) -> Typed:
        sql_type = self._only_column(node.args["query"].unnest())
        this = self._typed(node.this)
        if t.common_type(this.type, sql_type) is None:
            raise InvalidQuery(f"cannot look for {this.type} among {sql_type}: {sql_of(node)}")
        node.set("this", this.expression)
        return Typed(node, t.BOOLEAN)

    def _filtered(self, node: exp.Filter) -> Typed:
        call = self._bound(node.this)
        where = node.expression
        where.set("this", condition(where.this, _NOWHERE, "FILTER", self._read))
        return _cast(exp.Filter(this=call.expression, expression=where), call.type)

    def _aggregate(self, call: exp.Anonymous) -> Typed:
        found = self._bound(call)
        return _cast(found.expression, found.type)

    def _bound(self, call: exp.Anonymous) -> Typed:
        """An aggregate call as a DuckDB function, with the type that a view would give it."""
        if call.name not in _AGGREGATES:
            raise _not_computed(call)
        distinct = call.expressions[0] if call.expressions and isinstance(call.expressions[0], exp.Distinct) else None
        written = distinct.expressions if distinct else call.expressions
        stars = [isinstance(item, exp.Star) for item in written]
        typed = [Typed(item, t.NULL) if star else self._typed(item) for item, star in zip(written, stars, strict=True)]
        parts = [item.expression for item in typed]
        types = tuple(item.type for item in typed)
        bound = FUNCTIONS[call.name].bind(tuple(parts), types, distinct=distinct is not None)
        if distinct and len(parts) > 1:
            raise _refused(
                call,
                f"{call.name}(DISTINCT …) of several values is not computed by pull queries",
                "SELECT COUNT(*) FROM (SELECT DISTINCT … FROM … WHERE none of them IS NULL)",
            )
        arguments = [exp.Distinct(expressions=parts)] if distinct else parts
        return Typed(exp.Anonymous(this=_AGGREGATES[call.name], expressions=arguments), bound.type)

    def _window(self, node: exp.Window) -> Typed:
        call = node.this
        if not isinstance(call, exp.Anonymous) or call.name not in (*_RANKINGS, *_NEIGHBOURS, *_AGGREGATES):
            known = (*_RANKINGS, *_NEIGHBOURS, *_AGGREGATES)
            line, column = position_of(node)
            raise UnknownName.among("window function", sql_of(call), known, line=line, column=column)
        if call.name in _AGGREGATES:
            found = self._bound(call)
        else:
            items = [self._typed(item) for item in call.expressions]
            sql_type = t.BIGINT if call.name in _RANKINGS or not items else items[0].type
            found = Typed(exp.Anonymous(this=call.name, expressions=[item.expression for item in items]), sql_type)
        node.set("this", found.expression)
        node.set("partition_by", [self._typed(item).expression for item in node.args.get("partition_by") or ()])
        order = node.args.get("order")
        for item in order.expressions if order is not None else ():
            item.set("this", self._typed(item.this).expression)
        return _cast(node, found.type)


def _not_computed(call: exp.Anonymous) -> NotSupported:
    """The refusal of an aggregate that only views have."""
    hint = "define a view with it, and read that"
    found = FUNCTIONS.get(call.name)
    if found is not None and found.needs_order:
        # The rows of a query with joins and groups have none.
        return _refused(call, f"{call.name} needs the order of events: a pull query does not have it", hint)
    return _refused(call, f"{call.name} is not computed by pull queries", hint)


def _refused(call: exp.Anonymous, message: str, hint: str) -> NotSupported:
    line, column = position_of(call)
    return NotSupported(message, line=line, column=column, hint=hint)


def _cast(node: exp.Expression, sql_type: SqlType) -> Typed:
    """The node cast to our type: DuckDB sums BIGINT to HUGEINT. A value out of range is an error."""
    return Typed(exp.Cast(this=node, to=data_type(sql_type)), sql_type)
