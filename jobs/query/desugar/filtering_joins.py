"""SEMI JOIN and ANTI JOIN, as conditions.

    FROM t SEMI JOIN u ON t.id = u.id       FROM t WHERE EXISTS (SELECT 1 FROM u WHERE t.id = u.id)
    FROM t ANTI JOIN u USING (id)           FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id)

LEFT SEMI JOIN and LEFT ANTI JOIN, Spark's words, are the same.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.join_clauses import FILTERING
from strandline.jobs.sql.trees import identifier


def without_filtering_joins(select: exp.Select) -> exp.Select:
    """The same SELECT with EXISTS in the place of such joins; itself when it has none.

    Raises:
        NotSupported: a RIGHT or FULL JOIN follows one, or it does not say which columns are equal.
    """
    joins = select.args.get("joins") or ()
    if not any(join.kind in FILTERING for join in joins):
        return select
    made = select.copy()
    kept: list[exp.Expr] = []
    where: exp.Expression | None = None
    for join in made.args["joins"]:
        if join.kind not in FILTERING:
            if where is not None and join.side in ("RIGHT", "FULL"):
                raise _refused(join, f"{join.side} JOIN after SEMI or ANTI JOIN")
            kept.append(join)
            continue
        term = _exists(join, [made.args["from_"].this, *(each.this for each in kept)])
        where = term if where is None else exp.And(this=where, expression=term)
    made.set("joins", kept)
    there = made.args.get("where")
    if there is not None:
        where = exp.And(this=exp.Paren(this=there.this), expression=where)
    made.set("where", exp.Where(this=where))
    return made


def _exists(join: exp.Join, before: list[exp.Expr]) -> exp.Expression:
    if join.side not in ("", "LEFT") or join.method:
        raise _refused(join, f"{join.side or join.method} {join.kind} JOIN")
    condition = join.args.get("on")
    using = join.args.get("using")
    if using:
        if len(before) > 1:
            raise _refused(join, f"{join.kind} JOIN … USING after other joins")
        sides = [each.alias_or_name for each in (join.this, before[0])]
        for each in using:
            left, right = (exp.Column(this=identifier(each.name), table=identifier(side)) for side in sides)
            equal = exp.EQ(this=left, expression=right)
            condition = equal if condition is None else exp.And(this=condition, expression=equal)
    found = exp.Select(
        expressions=[exp.Literal.number(1)],
        from_=exp.From(this=join.this.copy()),
        where=exp.Where(this=condition.copy()) if condition is not None else None,
    )
    exists = exp.Exists(this=found)
    return exp.Not(this=exists) if join.kind == "ANTI" else exists


def _refused(join: exp.Join, what: str) -> NotSupported:
    line, column = position_of(join)
    return NotSupported(
        f"{what} is not supported: {sql_of(join)}",
        line=line,
        column=column,
        hint="WHERE [NOT] EXISTS (SELECT 1 FROM …)",
    )
