"""IN and EXISTS where a value is wanted: as counts of what the subquery gives.

    EXISTS (SELECT … WHERE p)        (SELECT COUNT(*) … WHERE p) > 0
    x IN (SELECT y FROM u WHERE p)   TRUE where a y equals x, else FALSE without any y, else NULL where x or a y is NULL

In WHERE, where NULL counts as FALSE, the first of these cases is enough.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.model.errors import InvalidQuery, NotSupported
from jobs.sql.dialect import sql_of
from jobs.sql.trees import call, identifier

_MEMBERS = "members"
_MEMBER = "member"


def existing(node: exp.Exists) -> exp.Expression:
    """EXISTS as a comparison."""
    return _is_there(_counted(_inner(node.this), None))


def member(node: exp.In, value: exp.Expression) -> exp.Expression:
    """IN where NULL counts as FALSE: some row of the subquery equals the value, which is elaborated.

    Raises:
        InvalidQuery: the subquery has several columns.
        NotSupported: it reads an input by the name of one that the value reads.
    """
    return _is_there(_members(node, value))


def membership(node: exp.In, value: exp.Expression) -> exp.Expression:
    """IN with its three answers. Raises as `member`."""
    query = _inner(node.args["query"])
    nulls = _counted(query, lambda item: exp.Is(this=item, expression=exp.Null()))
    nobody = exp.EQ(this=_counted(query, None), expression=exp.Literal.number(0))
    unknown: exp.Expression = exp.Or(this=exp.Is(this=value.copy(), expression=exp.Null()), expression=_is_there(nulls))
    branches = [
        exp.If(this=_is_there(_members(node, value)), true=exp.true()),
        exp.If(this=nobody, true=exp.false()),
        exp.If(this=unknown, true=exp.Null()),
    ]
    return exp.Case(ifs=branches, default=exp.false())


def _members(node: exp.In, value: exp.Expression) -> exp.Subquery:
    query = _inner(node.args["query"])
    inside = {table.alias_or_name for table in query.find_all(exp.Table)}
    outside = {column.table for column in value.find_all(exp.Column)}
    if inside & outside:
        raise NotSupported(
            f"IN reads '{min(inside & outside)}' inside and outside of its subquery: {sql_of(node)}",
            hint="give the inner one another name: FROM t AS other",
        )
    return _counted(query, lambda item: exp.EQ(this=item, expression=exp.Paren(this=value.copy())))


def _counted(query: exp.Query, condition: object) -> exp.Subquery:
    """(SELECT COUNT(*) …) of the rows of a query that meet a condition on its one column."""
    if callable(condition) and len(query.selects) != 1:
        raise InvalidQuery(f"IN takes a subquery with one column, not {len(query.selects)}: {sql_of(query)}")
    if _is_plain(query):
        made = query.copy()
        item = made.selects[0].unalias()
    else:
        names = exp.TableAlias(
            this=identifier(_MEMBERS), columns=[identifier(_MEMBER)] if callable(condition) else None
        )
        inner = exp.Subquery(this=query.copy(), alias=names)
        made = exp.Select(from_=exp.From(this=inner))
        item = exp.Column(this=identifier(_MEMBER), table=identifier(_MEMBERS))
    made.set("expressions", [call("COUNT", exp.Star())])
    made.set("distinct", None)
    if callable(condition):
        term = condition(item.copy())
        where = made.args.get("where")
        both = exp.And(this=exp.Paren(this=where.this.copy()), expression=term) if where is not None else term
        made.set("where", exp.Where(this=both))
    return exp.Subquery(this=made)


def _is_plain(query: exp.Query) -> bool:
    """True if the query filters and projects rows, so that another list of SELECT gives as many."""
    more = ("group", "having", "qualify", "limit", "offset", "distinct", "time_window", "with_")
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in more):
        return False
    return not any(isinstance(node, exp.Anonymous | exp.Window) for item in query.selects for node in item.walk())


def _is_there(count: exp.Subquery) -> exp.Expression:
    return exp.GT(this=count, expression=exp.Literal.number(0))


def _inner(node: exp.Expr) -> exp.Query:
    while isinstance(node, exp.Subquery):
        node = node.this
    assert isinstance(node, exp.Query)
    return node
