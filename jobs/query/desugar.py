"""Clauses that no stage has, rewritten to clauses that a stage has, before any name is resolved.

ORDER BY … LIMIT, DISTINCT ON, joins in brackets, SEMI and ANTI JOIN.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.sql.dialect import FILTERING, position_of, sql_of
from strandline.jobs.sql.trees import by_every, call, conjuncts, constant_number, identifier

# ORDER BY with LIMIT, and DISTINCT ON, as conditions on a row's number.
#
#     SELECT a FROM t ORDER BY b DESC LIMIT 3 OFFSET 1
#     SELECT a FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY b DESC) BETWEEN 2 AND 4
#
#     SELECT a FROM t ORDER BY b FETCH FIRST 3 ROWS WITH TIES
#     SELECT a FROM t QUALIFY RANK() OVER (ORDER BY b) <= 3
#
#     SELECT DISTINCT ON (k) k, a FROM t ORDER BY k, b
#     SELECT k, a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY k, b) = 1
#
# A query that numbers rows already, or gives each row once, is numbered from outside: SELECT * FROM (…) QUALIFY ….
# Rows that ORDER BY does not tell apart are ordered by their keys, so that the view is a function of its inputs.

_OUTSIDE = "rows"
_CLAUSES = ("order", "limit", "offset")


def has_first_rows(query: exp.Query) -> bool:
    """True if a query selects its first rows, by LIMIT, OFFSET or DISTINCT ON; ORDER BY alone selects nothing."""
    return any(query.args.get(clause) is not None for clause in ("limit", "offset")) or _on(query) is not None


def takes_ties(query: exp.Expr) -> bool:
    """True for FETCH FIRST n ROWS WITH TIES: those that are equal to the last row are taken too."""
    limit = query.args.get("limit")
    options = limit.args.get("limit_options") if isinstance(limit, exp.Limit) else None
    return options is not None and bool(options.args.get("with_ties"))


def first_rows(query: exp.Query) -> exp.Query:
    """Rewrite LIMIT, OFFSET and DISTINCT ON as a condition on the number of a row.

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
    ordered = _in_order(order, items)
    skipped = _count(offset) if offset is not None else 0
    number = _numbered("ROW_NUMBER", [], ordered)
    terms: list[exp.Expression] = []
    if skipped:
        terms.append(exp.GT(this=number, expression=exp.Literal.number(skipped)))
    if limit is not None:
        ranked = number
        if takes_ties(query):
            if not ordered:
                raise InvalidQuery("WITH TIES needs ORDER BY: it says which rows are equal").placed(*position_of(limit))
            ranked = _numbered("RANK", [], ordered)
        terms.append(exp.LTE(this=ranked.copy(), expression=exp.Literal.number(skipped + _count(limit))))
    return _qualified(target, terms)


def _first_of_each(select: exp.Query, on: exp.Expr) -> exp.Query:
    order = select.args.get("order")
    rest = {clause: select.args.get(clause) for clause in ("limit", "offset")}
    for clause in ("distinct", *_CLAUSES):
        select.set(clause, None)
    items = select.expressions
    groups = [_meant(item, items) for item in on.expressions]
    ordered = _in_order(order, items)
    for node in (*groups, *(item.this for item in ordered)):
        if node.find(exp.Query) is not None:
            line, column = position_of(on)
            hint = "compute it in a subquery in FROM"
            raise NotSupported("DISTINCT ON by a subquery is not supported", line=line, column=column, hint=hint)
    first = exp.LTE(this=_numbered("ROW_NUMBER", groups, ordered), expression=exp.Literal.number(1))
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


def _numbered(function: str, groups: list[exp.Expr], ordered: list[exp.Expr]) -> exp.Window:
    order = exp.Order(expressions=[each.copy() for each in ordered]) if ordered else None
    return exp.Window(this=call(function), partition_by=groups, order=order, over="OVER")


def _in_order(order: exp.Expr | None, items: list[exp.Expr]) -> list[exp.Expr]:
    """The items of ORDER BY over those of the SELECT list."""
    found = []
    for item in by_every(order.expressions if order is not None else (), len(items)):
        made = item.copy()
        made.set("this", _meant(item.this, items))
        found.append(made)
    if order is not None and (not found or any(isinstance(each.this, exp.Star) for each in found)):
        hint = "name the columns"
        raise NotSupported("ORDER BY ALL of a * that says which rows there are", hint=hint).placed(*position_of(order))
    return found


def _meant(node: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    """The expression of ORDER BY or DISTINCT ON: a position or a name of the SELECT list stands for its item."""
    if isinstance(node, exp.Literal) and node.is_int:
        place = int(node.name)
        if not 1 <= place <= len(items):
            raise InvalidQuery(f"ORDER BY {place}: the SELECT list has {len(items)} items").placed(*position_of(node))
        return items[place - 1].unalias().copy()
    if isinstance(node, exp.Column) and not node.table:
        for item in items:
            if isinstance(item, exp.Alias) and item.alias == node.name:
                return item.unalias().copy()
    return node.copy()


def _count(clause: exp.Expr) -> int:
    number = constant_number(clause.expression)
    if number is None:
        raise InvalidQuery(f"{clause.key.upper()} takes a number, not {sql_of(clause.expression)}").placed(
            *position_of(clause)
        )
    return number


# Joins in brackets, without them where that means the same.
#
#     FROM (t JOIN u ON p) JOIN v ON q      FROM t JOIN u ON p JOIN v ON q
#     FROM t JOIN (u JOIN v ON p) ON q      FROM t, u, v WHERE p AND q
#     FROM t, u RIGHT JOIN v ON p           FROM t CROSS JOIN (u RIGHT JOIN v ON p)
#
# A comma binds less than JOIN, which matters where JOIN keeps the rows that found nothing, or names columns by USING.
# Brackets with such a join inside, before or after them stay: `clauses.joins` makes one input of what is in them.


_KEEPS_LATER = ("RIGHT", "FULL")
"""The sides of joins that keep rows of the later input: what stands before them cannot become a condition of WHERE."""


def without_brackets(select: exp.Select) -> exp.Select:
    """Remove brackets around joins where that means the same, and set those that a comma stands for."""
    clause, given = select.args.get("from_"), select.args.get("joins") or ()
    if clause is None or not (any(map(bracketed, (clause, *given))) or _binds_by_comma(given)):
        return select
    made = select.copy()
    clause, joins = made.args["from_"], list(made.args.get("joins") or ())
    opened = bracketed(clause)
    if opened is not None:
        clause.set("this", opened[0])
        joins = [*opened[1], *joins]
    joins = _by_commas(joins)
    flat: list[exp.Expr] = []
    terms: list[exp.Expression] = []
    for place, join in enumerate(joins):
        padded = any(each.args.get("side") in _KEEPS_LATER for each in joins[place + 1 :])
        flat += [join] if padded or not _is_inner(join) else _flattened(join, terms)
    made.set("joins", flat)
    where = made.args.get("where")
    for term in terms:
        both = exp.And(this=exp.Paren(this=where.this), expression=term) if where is not None else term
        where = exp.Where(this=both)
    made.set("where", where)
    return made


def bracketed(node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]] | None:
    """The first table, and the joins, that a FROM or JOIN has in the place of one table; None: it has one table.

    Brackets may be missing: FROM t JOIN u JOIN v ON p ON q.
    """
    inside = node.this
    alone = isinstance(inside, exp.Subquery) and not inside.alias
    if alone and (isinstance(inside.this, exp.Subquery) or not isinstance(inside.this, exp.Query)):
        first = inside.this
    elif isinstance(inside, exp.Table | exp.Subquery) and inside.args.get("joins"):
        first = inside
    else:
        return None
    joins = [*(first.args.get("joins") or ()), *(inside.args.get("joins") or () if first is not inside else ())]
    first = first.copy()
    first.set("joins", None)
    if isinstance(first, exp.Table) and isinstance(first.this, exp.Values):  # so the parser reads VALUES there
        first.this.set("alias", first.args.get("alias"))
        first = first.this
    deeper = bracketed(exp.From(this=first))
    return (first, joins) if deeper is None else (deeper[0], [*deeper[1], *joins])


def _binds_by_comma(joins: Sequence[exp.Expr]) -> bool:
    """True if a join follows a comma that means another thing with the inputs before the comma."""
    commas = [place for place, each in enumerate(joins) if _is_comma(each)]
    return bool(commas) and any(
        each.args.get("side") in _KEEPS_LATER or each.args.get("using") or each.args.get("method") == "NATURAL"
        for each in joins[commas[0] + 1 :]
    )


def _is_comma(join: exp.Expr) -> bool:
    """True for a comma before a table or a query; the items of an array belong to the inputs before them."""
    words = any(join.args.get(each) for each in ("kind", "side", "method", "on", "using"))
    function = isinstance(join.this, exp.Table) and isinstance(join.this.this, exp.Anonymous)
    return not words and not function


def _by_commas(joins: list[exp.Expr]) -> list[exp.Expr]:
    """The joins with brackets around the inputs between two commas, where the comma matters."""
    if not _binds_by_comma(joins):
        return joins
    found: list[list[exp.Expr]] = [[]]
    for join in joins:
        if _is_comma(join):
            found.append([])
        found[-1].append(join)
    made = found[0]
    for each in found[1:]:
        if not _binds_by_comma(each):
            made += each
            continue
        head, *rest = each
        first, inside = bracketed(head) or (head.this.copy(), [])
        first.set("joins", [*inside, *rest])
        made.append(exp.Join(this=exp.Subquery(this=first), kind="CROSS"))
    return made


def _is_inner(join: exp.Expr) -> bool:
    """True for an inner join with ON, or without a condition, whose brackets hold only such joins, if it has any."""
    opened = bracketed(join)
    if opened is None:
        return True
    plain = not any(each.args.get(word) for each in (join, *opened[1]) for word in ("side", "using", "method"))
    return plain and all(map(_is_inner, opened[1]))


def _flattened(join: exp.Expr, terms: list[exp.Expression]) -> list[exp.Expr]:
    """A join, or those of its brackets as joins without a condition; their conditions are added to `terms`."""
    opened = bracketed(join)
    if opened is None:
        return [join]
    first, inside = opened
    terms += [each.args["on"].copy() for each in (join, *inside) if each.args.get("on") is not None]
    found: list[exp.Expr] = [exp.Join(this=first)]
    for each in inside:
        each.set("on", None)
        found += _flattened(each, terms)
    return found


# SEMI JOIN and ANTI JOIN, as conditions.
#
#     FROM t SEMI JOIN u ON t.id = u.id       FROM t WHERE EXISTS (SELECT 1 FROM u WHERE t.id = u.id)
#     FROM t ANTI JOIN u USING (id)           FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id)
#
# LEFT SEMI JOIN and LEFT ANTI JOIN, Spark's words, are the same.


def without_filtering_joins(select: exp.Select) -> exp.Select:
    """Rewrite SEMI JOIN and ANTI JOIN as EXISTS; a SELECT without any stays as it is.

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
            if where is not None and join.side in _KEEPS_LATER:
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
    return NotSupported(f"{what} is not supported: {sql_of(join)}", hint="WHERE [NOT] EXISTS (SELECT 1 FROM …)").placed(
        *position_of(join)
    )


# Items of an array in the SELECT list, by whose name the query groups: they are rows before they are grouped.
#
#     SELECT UNNEST(t.tags) AS tag, COUNT(*) FROM t GROUP BY tag
#     SELECT __g.item AS tag, COUNT(*) FROM t CROSS JOIN UNNEST(t.tags) AS __g (item) GROUP BY tag

_ITEMS = "__g"


def grouped_items(select: exp.Select) -> exp.Select:
    """Rewrite an EXPLODE or UNNEST in the SELECT list by which the query groups as a join with the array's items.

    Several of them, which would share their rows, stay where they are.
    """
    group, start = select.args.get("group"), select.args.get("from_")
    if group is None or start is None:
        return select
    items = [item for item in select.expressions if isinstance(item, exp.Alias) and _groups_by(group, item, select)]
    calls = {sql_of(each): each for item in items for each in item.find_all(exp.Anonymous) if _is_explode(each)}
    if len(calls) != 1:
        return select
    ((text, found),) = calls.items()
    made = select.copy()
    item = exp.Column(this=identifier("item"), table=identifier(_ITEMS))
    for node in [each for each in made.find_all(exp.Anonymous) if _is_explode(each) and sql_of(each) == text]:
        if node.parent_select is made:
            node.replace(item.copy())
    alias = exp.TableAlias(this=identifier(_ITEMS), columns=[identifier("item")])
    rows = exp.Table(this=call("UNNEST", *found.expressions), alias=alias)
    made.append("joins", exp.Join(this=rows, kind="CROSS"))
    return made


def _is_explode(node: exp.Anonymous) -> bool:
    return node.name.upper() in ("EXPLODE", "UNNEST")


def _groups_by(group: exp.Expr, item: exp.Alias, select: exp.Select) -> bool:
    place = str(select.expressions.index(item) + 1)
    for node in group.expressions:
        named = isinstance(node, exp.Column) and not node.table and node.name == item.alias
        if named or (isinstance(node, exp.Literal) and node.name == place) or sql_of(node) == sql_of(item.this):
            return True
    return False
