"""Subqueries in expressions, turned into joins.

    WHERE a IN (SELECT b FROM t)                          __s0: semi, on a = __s0.b
    WHERE a NOT IN (SELECT b FROM t)                      __s0: anti, on a = __s0.b OR a IS NULL OR __s0.b IS NULL
    WHERE EXISTS (SELECT 1 FROM t WHERE t.x = s.x)        __s0: semi, on __s0.x = s.x
    (SELECT MAX(x) AS m FROM t)                           __s0: left, one row;  __s0.m
    (SELECT MAX(x) AS m FROM t WHERE t.k = s.k)           __s0: left, on __s0.__c0 = s.k, over GROUP BY t.k;  __s0.m
    (SELECT x FROM t WHERE t.k = s.k)                     SINGLE_VALUE((SELECT COUNT(*) …), (SELECT FIRST_VALUE(x) …))

A condition that joins a subquery with the outer query ("correlates" it) must stand between the ANDs of its WHERE, or
of ON where all its joins are inner; `jobs.query.clauses.correlation` lifts it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from sqlglot import exp

from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError
from strandline.jobs.model.stage import JoinType
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clauses.correlation import Lifted, grouped, lifted
from strandline.jobs.query.clauses.from_clause import Context
from strandline.jobs.query.expressions.infer import condition, infer
from strandline.jobs.query.expressions.scope import Infer, Typed, column
from strandline.jobs.query.inputs import FromItem, Inputs, columns_equated, conjoined, expressions_of, from_outside
from strandline.jobs.query.logical import Block, From, Query, grows_by_groups, one_row, outputs_of
from strandline.jobs.query.subquery_values import existing, is_quantified, member, membership, quantified
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import conjuncts, identifier, row_values, told_apart

_MEMBER = "__member"


class Subqueries:
    """The subqueries in the expressions of one SELECT, and the inputs (`froms`) that they become."""

    def __init__(self, inputs: Inputs, context: Context, padded: set[str], named: str = "__s") -> None:
        """Begin with none; `padded` are the inputs whose columns are NULL where an outer join finds nothing, `named` is
        how the names of the new ones begin."""
        self._named = named
        self._inputs = inputs
        self._context = context
        self._padded = padded
        self._scalars: dict[str, Typed] = {}
        self._not_null: set[str] = set()
        self.froms: list[From] = []

    @property
    def values(self) -> list[From]:
        """The inputs that stand for a value in an expression."""
        return [each for each in self.froms if each.join == "left"]

    def where(self, tree: exp.Expr) -> list[exp.Expression]:
        """Elaborate the terms of a WHERE. IN and EXISTS between its ANDs become inputs; the others are returned.

        Raises:
            SqlError: a condition that is not valid or not supported, with its position.
        """
        kept: list[exp.Expression] = []
        waiting = []
        for term in _terms(tree):
            # A SELECT without FROM has no rows that could be joined.
            predicate = _predicate(term) if self._inputs.parts else None
            if predicate is None:
                kept += conjuncts(condition(self._where_null_is_false(term), self._inputs, "WHERE", self.read))
            else:
                waiting.append((predicate, term))
        self._not_null = {sql_of(each.this.this) for each in kept if _tests_not_null(each)}
        for (node, negated), term in waiting:
            try:
                take = self._exists if isinstance(node, exp.Exists) else self._in
                take(node, negated)
            except SqlError as error:
                raise error.placed(*position_of(term)) from None
        return kept

    def on(self, tree: exp.Expr) -> list[exp.Expression]:
        """Elaborate the terms of the ON of an outer join, in which every subquery stands for a value.

        Raises:
            SqlError: a condition that is not valid or not supported, with its position.
        """
        found: list[exp.Expression] = []
        for term in _terms(tree):
            found += conjuncts(condition(self._where_null_is_false(term), self._inputs, "ON", self.read))
        return found

    def _where_null_is_false(self, tree: exp.Expr) -> exp.Expr:
        """A condition whose IN under AND and OR need not tell NULL from FALSE."""
        if isinstance(tree, exp.And | exp.Or | exp.Paren):
            made = tree.copy()
            for side in ("this", "expression"):
                if made.args.get(side) is not None:
                    made.set(side, self._where_null_is_false(tree.args[side]))
            return made
        if isinstance(tree, exp.In) and tree.args.get("query") is not None:
            return member(tree, *(each.expression for each in self._values_before(tree)))
        return tree

    def _values_before(self, node: exp.Expr) -> list[Typed]:
        """The values that IN looks for: one, or those of (a, b)."""
        return [infer(each, self._inputs, self.read) for each in row_values(node.this)]

    def value_of(self, node: exp.Column) -> Typed | None:
        """A column of the inputs that stand for a value; None for any other."""
        found = next((each.source for each in self.values if each.alias == node.table), None)
        if found is None:
            return None
        return Typed(node.copy(), dict(found.columns if isinstance(found, Relation) else outputs_of(found))[node.name])

    def read(self, node: exp.Expression, _typed: Infer) -> Typed | None:
        """Turn a subquery that stands for a value into a column of a new input; return None for any other node.

        Raises:
            NotSupported: it is not one aggregate.
        """
        if isinstance(node, exp.Exists):
            return infer(existing(node), self._inputs, self.read)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            values = self._values_before(node)
            self._check_star(node.args["query"], len(values))
            return infer(membership(node, *(each.expression for each in values)), self._inputs, self.read)
        if is_quantified(node):
            values = self._values_before(node)
            self._check_star(node.expression.this, len(values))
            return infer(quantified(node, *(each.expression for each in values)), self._inputs, self.read)
        if not isinstance(node, exp.Subquery):
            return None
        text = sql_of(node)
        if text not in self._scalars:
            self._scalars[text] = self._scalar(node)
        found = self._scalars[text]
        return Typed(found.expression.copy(), found.type)

    def _check_star(self, tree: exp.Expr, columns: int) -> None:
        """Check that `SELECT *` has as many columns as values are compared with them. Raises InvalidQuery."""
        query = tree.unnest()
        if isinstance(query, exp.Query) and query.is_star:
            found = len(outputs_of(self._query(query)))
            if found != columns:
                raise InvalidQuery(
                    f"{columns} value{'s are' if columns > 1 else ' is'} compared with the {found} columns of"
                    f" {sql_of(query)}"
                ).placed(*position_of(query))

    def _query(self, tree: exp.Expr, *, by_place: bool = False) -> Query:
        """A subquery; `by_place`: nobody reads its columns by their names."""
        while isinstance(tree, exp.Subquery):
            tree = tree.this
        if by_place and isinstance(tree, exp.Query):
            tree = told_apart(tree)
        return self._context.read(tree, self._context.within(self._inputs, self._padded))

    def _alias(self) -> str:
        return f"{self._named}{len(self.froms)}"

    def _exists(self, node: exp.Expr, negated: bool) -> None:
        inner = lifted(self._query(node.this, by_place=True), self._alias(), self._inputs, self._padded)
        self._join(inner, inner.on, "anti" if negated else "semi")

    def _in(self, node: exp.Expr, negated: bool) -> None:
        values = self._values_before(node)
        query = self._query(node.args["query"], by_place=True)
        if len(outputs_of(query)) != len(values):
            wanted = "one column" if len(values) == 1 else f"{len(values)} columns"
            raise InvalidQuery(f"IN takes a subquery with {wanted}, not {len(outputs_of(query))}: {sql_of(node)}")
        inner = lifted(query, self._alias(), self._inputs, self._padded)
        found = [
            self._matching(value, other, inner, negated) for value, other in zip(values, inner.outputs, strict=True)
        ]
        self._join(inner, (*found, *inner.on), "anti" if negated else "semi")

    def _matching(self, value: Typed, member: Typed, inner: Lifted, negated: bool) -> exp.Expression:
        """The condition that a value equals that of the subquery; of NOT IN, that it could."""
        equal = self._equal(value, member)
        unknown: list[exp.Expression] = []
        if negated:
            unknown = [value.expression] if not self._known(value.expression) else []
            unknown += [member.expression] if not self._known_inside(member.expression, inner) else []
        for side in unknown:
            equal = exp.Or(this=equal, expression=exp.Is(this=side.copy(), expression=exp.Null()))
        return exp.Paren(this=equal) if unknown else equal

    def _equal(self, value: Typed, member: Typed) -> exp.Expression:
        """The condition `value = member`, with the conversions that the comparison needs."""
        part = FromItem(_MEMBER, "the subquery", Relation("", (), "keyed"), ((_MEMBER, member.type),), {})
        inputs = replace(self._inputs, parts=(*self._inputs.parts, part))
        made = condition(exp.EQ(this=value.expression, expression=column(_MEMBER, _MEMBER)), inputs, "IN")
        for node in list(made.find_all(exp.Column)):
            if node.table == _MEMBER:
                node.replace(member.expression.copy())
        return made

    def _scalar(self, node: exp.Subquery) -> Typed:
        """The column of a subquery with one row at most; of one that may have several, the call that fails then."""
        tree = node.unnest()
        assert isinstance(tree, exp.Query)
        first = takes_first(tree)
        query = self._query(without_first(tree) if first else tree)
        made = single_of_limit(tree, query) if first else single_of_key(tree, query)
        if first or made is not tree:
            query = self._query(made)
        if not one_row(query) and not (isinstance(query, Block) and query.group == ()):
            many = single_of_many(tree, query)
            if many is not None:
                return infer(many, self._inputs, self.read)
        alias, outputs = self._alias(), outputs_of(query)
        if len(outputs) != 1:
            raise InvalidQuery(f"a subquery that stands for a value has one column, not {len(outputs)}")
        ((name, sql_type),) = outputs
        correlated = grouped(query, alias, self._inputs, self._padded)
        if correlated is not None:
            inner, value = correlated
            self._join(inner, inner.on, "left")
            return Typed(value, sql_type)
        if not one_row(query):
            raise NotSupported(
                f"a subquery that stands for a value is maintained when it is one aggregate: {sql_of(node)}",
                hint="(SELECT MAX(x) FROM …): one row, whatever there is",
            )
        self.froms.append(From(alias, query, "left", one_row=True))
        return Typed(column(name, alias), sql_type)

    def _join(self, inner: Lifted, on: Sequence[exp.Expression], join: JoinType) -> None:
        self.froms.append(From(inner.alias, inner.source, join, conjoined(on) if on else None))

    def _known(self, node: exp.Expression) -> bool:
        """True if a value is never NULL: a constant, a primary key, or tested by IS NOT NULL in WHERE."""
        if isinstance(node, exp.Literal) or sql_of(node) in self._not_null:
            return True
        part = self._inputs.part(node.table) if isinstance(node, exp.Column) else None
        return (
            part is not None and part.log is not None and node.name in part.row_key and part.alias not in self._padded
        )

    def _known_inside(self, node: exp.Expression, inner: Lifted) -> bool:
        """True if a subquery's value is never NULL, for the same reasons."""
        if isinstance(node, exp.Literal) or any(_tests_not_null(t) and t.this.this == node for t in inner.on):
            return True
        if not isinstance(node, exp.Column) or not isinstance(inner.source, Relation):
            return False
        source = self._context.catalog.find(inner.source.name)
        return isinstance(source, Source) and source.kind == "table" and node.name in source.key


def _terms(tree: exp.Expr) -> list[exp.Expr]:
    """The conditions as written, between the ANDs."""
    if isinstance(tree, exp.And):
        return [*_terms(tree.this), *_terms(tree.expression)]
    return [tree]


def _predicate(term: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """The IN or EXISTS of a condition, and whether it is negated; None for any other condition."""
    negated = False
    while isinstance(term, exp.Not | exp.Paren):
        negated ^= isinstance(term, exp.Not)
        term = term.this
    if isinstance(term, exp.Exists) or (isinstance(term, exp.In) and term.args.get("query") is not None):
        return term, negated
    return None


def _tests_not_null(node: exp.Expression) -> bool:
    return isinstance(node, exp.Not) and isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null)


# Subqueries that stand for a value and have one row at most, as one aggregate.
#
# (SELECT x FROM t ORDER BY y DESC LIMIT 1)
# (SELECT FIRST_VALUE(q.x ORDER BY q.x) FROM (…) AS q (x))
#
# (SELECT x FROM t WHERE t.k = s.k ORDER BY y DESC LIMIT 1)
# (SELECT FIRST_VALUE(x ORDER BY y DESC) FROM t WHERE t.k = s.k)
#
# (SELECT x FROM t WHERE t.id = s.id), id being the key
# (SELECT FIRST_VALUE(x ORDER BY x) FROM t WHERE t.id = s.id)

_INSIDE, _VALUE = "single", "value"
_MORE = ("group", "having", "qualify", "offset", "distinct", "time_window", "with_")


def takes_first(tree: exp.Expr) -> bool:
    """True if a query selects its first row alone: ORDER BY … LIMIT 1."""
    limit = tree.args.get("limit")
    count = limit.expression if isinstance(limit, exp.Limit) else None
    single = isinstance(count, exp.Literal) and count.name == "1" and tree.args.get("offset") is None
    return single and limit is not None and limit.args.get("limit_options") is None  # WITH TIES may be several


def without_first(tree: exp.Query) -> exp.Query:
    """Drop ORDER BY and LIMIT, so that the query gives all its rows."""
    made = tree.copy()
    made.set("order", None)
    made.set("limit", None)
    return made


def single_of_limit(tree: exp.Query, query: Query) -> exp.Query:
    """Rewrite a query with ORDER BY … LIMIT 1 as an aggregate; `query` is its meaning without both clauses."""
    if not isinstance(tree, exp.Select) or len(tree.selects) != 1:
        return tree
    if not _reads_outside(query):
        value, inner = _inside(tree)
        inner.set("expressions", [_first(value, [])])
        return inner
    if any(tree.args.get(clause) for clause in _MORE) or grows_by_groups(query):
        return tree
    made = without_first(tree)
    order = tree.args.get("order")
    made.set("expressions", [_first(tree.selects[0].unalias(), order.expressions if order is not None else [])])
    return made


def single_of_key(tree: exp.Query, query: Query) -> exp.Query:
    """Rewrite a query whose WHERE names the whole key of its one table as an aggregate; leave others as they are."""
    if not isinstance(tree, exp.Select) or not isinstance(query, Block) or grows_by_groups(query):
        return tree
    if len(query.inputs) != 1 or query.where is None or query.expand or len(tree.selects) != 1:
        return tree
    (part,) = query.inputs
    if not isinstance(part.source, Relation) or part.source.storage != "keyed" or not part.source.key:
        return tree
    if any(tree.args.get(clause) for clause in (*_MORE, "limit")):
        return tree
    if not columns_equated(query.where, part.alias).issuperset(part.source.key):
        return tree
    made = without_first(tree)
    made.set("expressions", [_first(tree.selects[0].unalias(), [])])
    return made


def single_of_many(tree: exp.Query, query: Query) -> exp.Expr | None:
    """Rewrite a query of one column as SINGLE_VALUE(its number of rows, its first value); None where it has several
    columns, or reads the query around it in another way than by the WHERE of a plain SELECT.

    PostgreSQL and the standard have an error where such a subquery gives a second row: here the row fails that asks.
    """
    if len(outputs_of(query)) != 1:
        return None
    value: exp.Expr
    bare: exp.Query
    if not _reads_outside(query):
        value, bare = _inside(tree)
    elif isinstance(tree, exp.Select) and not any(tree.args.get(clause) for clause in (*_MORE, "limit")):
        value, bare = tree.selects[0].unalias(), without_first(tree)
    else:
        return None
    parts = []
    for shown in (exp.Anonymous(this="COUNT", expressions=[exp.Star()]), _first(value, [])):
        made = bare.copy()
        made.set("expressions", [shown])
        parts.append(exp.Subquery(this=made))
    return exp.Anonymous(this="SINGLE_VALUE", expressions=parts)


def _reads_outside(query: Query) -> TypeGuard[Block]:
    return isinstance(query, Block) and any(map(from_outside, expressions_of(query)))


def _inside(tree: exp.Query) -> tuple[exp.Column, exp.Select]:
    """The one value of a query's rows, and a SELECT over them without a list."""
    alias = exp.TableAlias(this=identifier(_INSIDE), columns=[identifier(_VALUE)])
    value = exp.Column(this=identifier(_VALUE), table=identifier(_INSIDE))
    return value, exp.Select(from_=exp.From(this=exp.Subquery(this=tree.copy(), alias=alias)))


def _first(value: exp.Expr, order: list[exp.Expr]) -> exp.Anonymous:
    """FIRST_VALUE(x ORDER BY …); where nothing is said, by the value itself."""
    items = [each.copy() for each in order] or [exp.Ordered(this=value.copy(), nulls_first=True)]
    return exp.Anonymous(this="FIRST_VALUE", expressions=[exp.Order(this=value.copy(), expressions=items)])
