"""Joins in brackets, without them.

    FROM (t JOIN u ON p) JOIN v ON q      FROM t JOIN u ON p JOIN v ON q
    FROM t JOIN (u JOIN v ON p) ON q      FROM t, u, v WHERE p AND q

Brackets after an outer join, or around one, change what is padded: those stay, and are refused.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.dialect import position_of, sql_of


def without_brackets(select: exp.Select) -> exp.Select:
    """The same SELECT without brackets around joins; itself when it has none.

    Raises:
        NotSupported: an outer join is in such brackets, or before them.
    """
    clause = select.args.get("from_")
    if clause is None or not any(_bracketed(each) for each in (clause, *(select.args.get("joins") or ()))):
        return select
    made = select.copy()
    clause, joins = made.args["from_"], list(made.args.get("joins") or ())
    while (inner := _bracketed(clause)) is not None:
        joins = [*_taken(inner), *joins]
        clause.set("this", inner)
    flat: list[exp.Expr] = []
    terms: list[exp.Expression] = []
    for join in joins:
        flat += _flattened(join, terms)
    made.set("joins", flat)
    where = made.args.get("where")
    for term in terms:
        both = exp.And(this=exp.Paren(this=where.this), expression=term) if where is not None else term
        where = exp.Where(this=both)
    made.set("where", where)
    return made


def _bracketed(node: exp.Expr) -> exp.Table | None:
    """The first table of the joins that a FROM or JOIN has in the place of one table; None: it has one table.

    Brackets may be missing: FROM t JOIN u JOIN v ON p ON q.
    """
    inside = node.this
    if isinstance(inside, exp.Subquery) and not inside.alias and isinstance(inside.this, exp.Table):
        return inside.this
    return inside if isinstance(inside, exp.Table) and inside.args.get("joins") else None


def _taken(table: exp.Expr) -> list[exp.Expr]:
    """The joins of a table, taken from it."""
    joins = list(table.args.get("joins") or ())
    table.set("joins", None)
    return joins


def _flattened(join: exp.Expr, terms: list[exp.Expression]) -> list[exp.Expr]:
    """A join, or those of its brackets as joins without a condition; their conditions are added to `terms`."""
    inner = _bracketed(join)
    if inner is None:
        return [join]
    inside = _taken(inner)
    if any(each.args.get("side") or each.args.get("using") for each in (join, *inside)):
        line, column = position_of(join)
        raise NotSupported(
            f"a join in brackets is maintained where it and its join are inner ones, with ON: {sql_of(join)}",
            line=line,
            column=column,
            hint="put it into a subquery: (SELECT … FROM … JOIN …) AS name",
        )
    terms += [each.args["on"].copy() for each in (join, *inside) if each.args.get("on") is not None]
    found: list[exp.Expr] = [exp.Join(this=inner)]
    for each in inside:
        each.set("on", None)
        found += _flattened(each, terms)
    return found
