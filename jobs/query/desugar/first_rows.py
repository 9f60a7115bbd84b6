"""ORDER BY with LIMIT, and DISTINCT ON, as conditions on a row's number.

    SELECT a FROM t ORDER BY b DESC LIMIT 3 OFFSET 1
    SELECT a FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY b DESC) BETWEEN 2 AND 4

    SELECT DISTINCT ON (k) k, a FROM t ORDER BY k, b
    SELECT k, a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY k, b) = 1

A query that numbers rows already, or gives each row once, is numbered from outside: SELECT * FROM (…) QUALIFY ….
Rows that ORDER BY does not tell apart are ordered by their keys, so that the view is a function of its inputs.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import call, conjuncts, identifier

_OUTSIDE = "rows"
_CLAUSES = ("order", "limit", "offset")


def has_first_rows(query: exp.Query) -> bool:
    """True if a query asks for its first rows: by LIMIT, OFFSET or DISTINCT ON. ORDER BY alone asks for nothing."""
    return any(query.args.get(clause) is not None for clause in ("limit", "offset")) or _on(query) is not None


def first_rows(query: exp.Query) -> exp.Query:
    """The same query, in which a row's number says whether it is one of the first.

    Raises:
        InvalidQuery: LIMIT or OFFSET is no number; ORDER BY names a position that is not there.
    """
    made = query.copy()
    on = _on(made)
    if on is not None:
        return _first_of_each(made, on)
    order, limit, offset = (made.args.get(clause) for clause in _CLAUSES)
    for clause in _CLAUSES:
        made.set(clause, None)
    numbered = isinstance(made, exp.Select) and not made.find(exp.Window) and made.args.get("distinct") is None
    target = made if isinstance(made, exp.Select) and numbered else _around(made)
    items = target.expressions if numbered else []
    ordered = [_ordered(item, items) for item in (order.expressions if order is not None else ())]
    skipped = _count(offset) if offset is not None else 0
    number = _row_number([], ordered)
    terms: list[exp.Expression] = []
    if skipped:
        terms.append(exp.GT(this=number, expression=exp.Literal.number(skipped)))
    if limit is not None:
        terms.append(exp.LTE(this=number.copy(), expression=exp.Literal.number(skipped + _count(limit))))
    return _qualified(target, terms)


def _first_of_each(select: exp.Query, on: exp.Expr) -> exp.Query:
    order = select.args.get("order")
    rest = {clause: select.args.get(clause) for clause in ("limit", "offset")}
    for clause in ("distinct", *_CLAUSES):
        select.set(clause, None)
    items = select.expressions
    groups = [_meant(item, items) for item in on.expressions]
    ordered = [_ordered(item, items) for item in (order.expressions if order is not None else ())]
    for node in (*groups, *(item.this for item in ordered)):
        if node.find(exp.Query) is not None:
            line, column = position_of(on)
            hint = "compute it in a subquery in FROM"
            raise NotSupported("DISTINCT ON by a subquery is not supported", line=line, column=column, hint=hint)
    first = exp.LTE(this=_row_number(groups, ordered), expression=exp.Literal.number(1))
    made = _qualified(select, [first])
    if rest["limit"] is None and rest["offset"] is None:
        return made
    outside = _around(made)
    for clause, node in {"order": order, **rest}.items():
        outside.set(clause, node)
    return first_rows(outside)


def _on(query: exp.Query) -> exp.Expr | None:
    distinct = query.args.get("distinct")
    on = distinct.args.get("on") if isinstance(distinct, exp.Distinct) else None
    return on if isinstance(on, exp.Expr) else None


def _around(query: exp.Query) -> exp.Select:
    inner = exp.Subquery(this=query, alias=exp.TableAlias(this=identifier(_OUTSIDE)))
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))


def _qualified(query: exp.Query, terms: list[exp.Expression]) -> exp.Query:
    """The query with more conditions in its QUALIFY."""
    there = query.args.get("qualify")
    every = [*(conjuncts(there.this) if there is not None else []), *terms]
    condition = every[0]
    for term in every[1:]:
        condition = exp.And(this=condition, expression=term)
    query.set("qualify", exp.Qualify(this=condition))
    return query


def _row_number(groups: list[exp.Expr], ordered: list[exp.Expr]) -> exp.Window:
    order = exp.Order(expressions=ordered) if ordered else None
    return exp.Window(this=call("ROW_NUMBER"), partition_by=groups, order=order, over="OVER")


def _ordered(item: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    made = item.copy()
    made.set("this", _meant(item.this, items))
    return made


def _meant(node: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    """The expression of ORDER BY or DISTINCT ON: a position or a name of the SELECT list stands for its item."""
    if isinstance(node, exp.Literal) and node.is_int:
        place = int(node.name)
        if not 1 <= place <= len(items):
            line, column = position_of(node)
            raise InvalidQuery(f"ORDER BY {place}: the SELECT list has {len(items)} items", line=line, column=column)
        return items[place - 1].unalias().copy()
    if isinstance(node, exp.Column) and not node.table:
        for item in items:
            if isinstance(item, exp.Alias) and item.alias == node.name:
                return item.unalias().copy()
    return node.copy()


def _count(clause: exp.Expr) -> int:
    number = clause.expression
    if not isinstance(number, exp.Literal) or not number.is_int:
        line, column = position_of(clause)
        raise InvalidQuery(f"{clause.key.upper()} takes a number, not {sql_of(number)}", line=line, column=column)
    return int(number.name)
