"""Subqueries where a value is wanted, rewritten as ones that give a single value.

    EXISTS (SELECT … WHERE p)        (SELECT COUNT(*) … WHERE p) > 0
    x IN (SELECT y FROM u WHERE p)   TRUE where a y equals x, else FALSE without y, else NULL where x or a y is NULL
    x > ANY (SELECT y …)             the same with x > y
    x > ALL (SELECT y …)             NOT x <= ANY (SELECT y …)
    (a, b) IN (SELECT c, d …)        TRUE where a = c AND b = d, else NULL where a pair could be equal, else FALSE
    (a, b) < (SELECT c, d …)         (a, b) < ((SELECT c …), (SELECT d …))
    ARRAY(SELECT y … ORDER BY z)     (SELECT ARRAY_AGG(y ORDER BY z) …)

In WHERE, where NULL counts as FALSE, the first case of IN is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import call, identifier
from strandline.jobs.sql.value_clauses import only_projects

_MEMBERS = "members"
_MEMBER = "member"
_OPPOSITE: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}
Condition = Callable[[list[exp.Expression]], exp.Expression]
"""A condition on the columns of a subquery."""


def is_quantified(node: exp.Expr) -> bool:
    """True for a comparison with ANY (SELECT …) or ALL (SELECT …)."""
    return type(node) in _OPPOSITE and isinstance(node.args.get("expression"), exp.Any | exp.All)


def quantified(node: exp.Expr, *values: exp.Expression) -> exp.Expression:
    """Rewrite a comparison with ANY or ALL to an expression that is TRUE, FALSE or NULL. The values are elaborated.
    Raises as `member`."""
    every = isinstance(node.expression, exp.All)
    assert isinstance(node, exp.Binary)
    operator = _OPPOSITE[type(node)] if every else type(node)
    query = _inner(node.expression.this)
    found = exp.false() if every else exp.true()
    not_found = exp.true() if every else exp.false()
    if len(values) > 1:
        return _rows_quantified(node, query, values, every=every)
    (value,) = values
    inside = exp.Paren(this=value.copy())
    nulls = _counted(query, lambda items: exp.Is(this=items[0], expression=exp.Null()), 1)
    nobody = exp.EQ(this=_counted(query, None), expression=exp.Literal.number(0))
    unknown: exp.Expression = exp.Or(
        this=exp.Is(this=inside.copy(), expression=exp.Null()), expression=_is_there(nulls)
    )
    branches = [
        exp.If(this=_met_by_one(operator, inside, query), true=found),
        exp.If(this=nobody, true=not_found),
        exp.If(this=unknown, true=exp.Null()),
    ]
    return exp.Case(ifs=branches, default=not_found.copy())


def _rows_quantified(
    node: exp.Binary, query: exp.Query, values: Sequence[exp.Expression], *, every: bool
) -> exp.Expression:
    """`(a, b) < ANY (SELECT c, d …)`: TRUE where it holds of a row, else NULL where it may, else FALSE; ALL alike."""

    def compared(items: list[exp.Expression]) -> exp.Expression:
        rows = [exp.Tuple(expressions=[each.copy() for each in side]) for side in (values, items)]
        return exp.Paren(this=type(node)(this=rows[0], expression=rows[1]))

    def decides(items: list[exp.Expression]) -> exp.Expression:
        return exp.Not(this=compared(items)) if every else compared(items)

    decided = _around_if_read(query, values, decides)
    unknown = _around_if_read(query, values, lambda items: exp.Is(this=compared(items), expression=exp.Null()))
    branches = [
        exp.If(this=_is_there(decided), true=exp.false() if every else exp.true()),
        exp.If(this=_is_there(unknown), true=exp.Null()),
    ]
    return exp.Case(ifs=branches, default=exp.true() if every else exp.false())


def _met_by_one(operator: type[exp.Binary], value: exp.Expression, query: exp.Query) -> exp.Expression:
    """The condition that the value is less, greater, … than one of the subquery: than its greatest, or its least."""
    if operator is exp.EQ:
        return _is_there(_around_if_read(query, [value], lambda items: _equal(items[0], value)))
    if operator is exp.NEQ:
        ends = [exp.NEQ(this=value.copy(), expression=_extreme(query, name)) for name in ("MIN", "MAX")]
        return exp.Paren(this=exp.Or(this=ends[0], expression=ends[1]))
    name = "MIN" if operator in (exp.GT, exp.GTE) else "MAX"
    made = operator(this=value.copy(), expression=_extreme(query, name))
    assert isinstance(made, exp.Expression)
    return made


def _extreme(query: exp.Query, name: str) -> exp.Subquery:
    """(SELECT MIN(x) …) of a query's one column."""
    made, (item,) = _rows_of(query, 1)
    made.set("expressions", [call(name, item)])
    return exp.Subquery(this=made)


def existing(node: exp.Exists) -> exp.Expression:
    """Rewrite EXISTS as a comparison of a count."""
    return _is_there(_counted(_inner(node.this), None))


def member(node: exp.In, *values: exp.Expression) -> exp.Expression:
    """Rewrite IN where NULL counts as FALSE: some row of the subquery equals the elaborated values.

    Raises:
        InvalidQuery: the subquery has another number of columns.
    """
    return _is_there(_members(node, values))


def membership(node: exp.In, *values: exp.Expression) -> exp.Expression:
    """Rewrite IN to an expression that is TRUE, FALSE or NULL. Raises as `member`."""
    query = _inner(node.args["query"])
    if len(values) > 1:
        possible = _around_if_read(query, values, lambda items: _all(map(_could_equal, items, values)))
        branches = [
            exp.If(this=_is_there(_members(node, values)), true=exp.true()),
            exp.If(this=_is_there(possible), true=exp.Null()),
        ]
        return exp.Case(ifs=branches, default=exp.false())
    (value,) = values
    nulls = _counted(query, lambda items: exp.Is(this=items[0], expression=exp.Null()), 1)
    nobody = exp.EQ(this=_counted(query, None), expression=exp.Literal.number(0))
    unknown: exp.Expression = exp.Or(this=exp.Is(this=value.copy(), expression=exp.Null()), expression=_is_there(nulls))
    branches = [
        exp.If(this=_is_there(_members(node, values)), true=exp.true()),
        exp.If(this=nobody, true=exp.false()),
        exp.If(this=unknown, true=exp.Null()),
    ]
    return exp.Case(ifs=branches, default=exp.false())


def _members(node: exp.In, values: Sequence[exp.Expression]) -> exp.Subquery:
    return _around_if_read(_inner(node.args["query"]), values, lambda items: _all(map(_equal, items, values)))


def _around_if_read(query: exp.Query, values: Sequence[exp.Expression], condition: Condition) -> exp.Subquery:
    """Add a condition on the values to `_counted`, outside of the query if that has an input of a name that they
    read."""
    inside = {table.alias_or_name for table in query.find_all(exp.Table)}
    outside = {column.table for value in values for column in value.find_all(exp.Column)}
    return _counted(query, condition, len(values), apart=bool(inside & outside))


def _equal(item: exp.Expression, value: exp.Expression) -> exp.Expression:
    return exp.EQ(this=item, expression=exp.Paren(this=value.copy()))


def _could_equal(item: exp.Expression, value: exp.Expression) -> exp.Expression:
    unknown = [exp.Is(this=exp.Paren(this=side.copy()), expression=exp.Null()) for side in (item, value)]
    return exp.Paren(this=exp.Or(this=exp.Or(this=_equal(item, value), expression=unknown[0]), expression=unknown[1]))


def _all(terms: Iterable[exp.Expression]) -> exp.Expression:
    first, *rest = terms
    for term in rest:
        first = exp.And(this=first, expression=term)
    return first


def _counted(query: exp.Query, condition: Condition | None, columns: int = 0, *, apart: bool = False) -> exp.Subquery:
    """(SELECT COUNT(*) …) of the rows of a query that meet a condition on its columns."""
    made, items = _rows_of(query, columns, apart=apart)
    made.set("expressions", [call("COUNT", exp.Star())])
    if condition is not None:
        term = condition(items)
        where = made.args.get("where")
        both = exp.And(this=exp.Paren(this=where.this.copy()), expression=term) if where is not None else term
        made.set("where", exp.Where(this=both))
    return exp.Subquery(this=made)


def _rows_of(query: exp.Query, columns: int, *, apart: bool = False) -> tuple[exp.Query, list[exp.Expression]]:
    """A SELECT over the rows of a query, whose list is still to be set, and its so many columns there.

    Args:
        columns: 0 where none is read.
        apart: the query's own inputs are not to be seen.

    Raises:
        InvalidQuery: it has another number of columns.
    """
    if columns and len(query.selects) != columns and not query.is_star:
        wanted = "one column" if columns == 1 else f"{columns} columns"
        raise InvalidQuery(f"IN takes a subquery with {wanted}, not {len(query.selects)}: {sql_of(query)}")
    if only_projects(query) and not apart and not query.is_star:
        made = query.copy()
        made.set("order", None)
        return made, [_value(each) for each in made.selects]
    names = [_MEMBER if columns == 1 else f"{_MEMBER}{place}" for place in range(1, columns + 1)]
    alias = exp.TableAlias(this=identifier(_MEMBERS), columns=[identifier(name) for name in names] or None)
    inner = exp.Subquery(this=query.copy(), alias=alias)
    read = [exp.Column(this=identifier(name), table=identifier(_MEMBERS)) for name in names]
    return exp.Select(from_=exp.From(this=inner)), list(read)


def _value(item: exp.Expr) -> exp.Expression:
    found = item.unalias().copy()
    assert isinstance(found, exp.Expression)
    return found


def _is_there(count: exp.Subquery) -> exp.Expression:
    return exp.GT(this=count, expression=exp.Literal.number(0))


def _inner(node: exp.Expr) -> exp.Query:
    while isinstance(node, exp.Subquery):
        node = node.this
    assert isinstance(node, exp.Query)
    return node
