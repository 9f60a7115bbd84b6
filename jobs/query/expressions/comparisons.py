"""Elaboration of conditions: comparisons, AND, OR, NOT, and CASE."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.functions.scalars.contract import common
from strandline.jobs.functions.scalars.numbers import PARTS
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch
from strandline.jobs.model.tables import WINDOW_BOUNDS
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions import durations
from strandline.jobs.query.expressions.casts import beside, converted, entries, loses, widened
from strandline.jobs.query.expressions.coercion import as_time, shared_type, together
from strandline.jobs.query.expressions.nested import has_order, is_key, order_key
from strandline.jobs.query.expressions.scope import Infer, Rules, Typed, binary
from strandline.jobs.sql.clauses import BACKSLASH, pattern_literal
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import identifier, row_values

_TEMPORAL = (BaseType.DATE, BaseType.TIME, BaseType.TIMESTAMP)
_ORDERED = (*t.NUMERIC, *_TEMPORAL, BaseType.VARCHAR, BaseType.BYTES, BaseType.BOOLEAN, BaseType.NULL)
_NULL_SAFE = (exp.NullSafeEQ, exp.NullSafeNEQ)
_EQUALITY = (exp.EQ, exp.NEQ, *_NULL_SAFE)
_QUANTIFIERS = {"ANY": "ANY_MATCH", "SOME": "ANY_MATCH", "ALL": "ALL_MATCH"}
_ITEM = "__compared"
_ORDERINGS = (exp.LT, exp.LTE, exp.GT, exp.GTE)


def _compared(node: exp.Binary, typed: Infer) -> Typed:
    rows = row_values(node.left), row_values(node.right)
    rows = _of_query(rows[0], len(rows[1])), _of_query(rows[1], len(rows[0]))
    if len(rows[0]) > 1 or len(rows[1]) > 1:
        return typed(_rows_compared(node, *rows))
    items = _compared_with_items(node, typed)
    if items is not None:
        return typed(items)
    lengths = durations.compared(node, typed)
    if lengths is not None:
        return Typed(lengths, t.BOOLEAN)
    left, right = typed(node.left), typed(node.right)
    if left.type.base is right.type.base is BaseType.NULL:
        left = widened(left, t.BOOLEAN)
    # Parts of DECIMALs have no NULL inside: they are compared as they are, also when a text is read again.
    nested = has_order(left.type) and has_order(right.type) and left.type != PARTS
    if isinstance(node, _ORDERINGS) and nested:
        return _nested_compared(node, left, right, typed)
    left, right = _comparable(left, right, node)
    return Typed(binary(type(node), left, right), t.BOOLEAN)


def _compared_with_items(node: exp.Binary, typed: Infer) -> exp.Expression | None:
    """`x < ANY (array)` and `x < ALL (array)`: some or every item is greater; None for any other comparison.

    ANY of what is no array is the aggregate.
    """
    other = node.right
    if not isinstance(other, exp.Anonymous) or other.name.upper() not in _QUANTIFIERS or len(other.expressions) != 1:
        return None
    (array,) = other.expressions
    if isinstance(array, exp.Query | exp.Distinct | exp.Star | exp.Order) or _reads_text(array):
        return None
    if typed(array).type.base is not BaseType.ARRAY:
        return None
    item = identifier(_ITEM)
    compared = type(node)(this=exp.Paren(this=node.left.copy()), expression=exp.Column(this=item))
    of_item = exp.Lambda(this=compared, expressions=[item.copy()])
    return exp.Anonymous(this=_QUANTIFIERS[other.name.upper()], expressions=[array.copy(), of_item])


def _reads_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal | exp.Null)


def _nested_compared(node: exp.Binary, left: Typed, right: Typed, typed: Infer) -> Typed:
    """ARRAYs and STRUCTs in order: fields are compared by their places, whatever their names."""
    keys = [order_key(side, typed) for side in (left, right)]
    shared = t.common_type(*(each.type for each in keys))
    if shared is None:
        raise TypeMismatch(f"cannot compare {left.type} with {right.type}: {sql_of(node)}")
    return Typed(binary(type(node), *(widened(each, shared) for each in keys)), t.BOOLEAN)


def _of_query(values: list[exp.Expr], columns: int) -> list[exp.Expr]:
    """The values of a row; those of a subquery with so many columns, as a subquery for each.

    LIMIT and DISTINCT may not give each of the values of one and the same row.
    """
    query = values[0].unnest() if len(values) == 1 and isinstance(values[0], exp.Subquery) else None
    if columns < 2 or not isinstance(query, exp.Select) or query.is_star or len(query.selects) != columns:
        return values
    if any(query.args.get(clause) for clause in ("limit", "offset", "distinct")):
        return values
    made: list[exp.Expr] = []
    for each in query.selects:
        single = query.copy()
        single.set("expressions", [each.copy()])
        single.set("order", None)
        made.append(exp.Subquery(this=single))
    return made


def _rows_compared(node: exp.Binary, left: list[exp.Expr], right: list[exp.Expr]) -> exp.Expression:
    """(a, b) = (c, d) and its like, value by value; the first values that differ decide which row is less."""
    if len(left) != len(right):
        raise TypeMismatch(f"rows of {len(left)} and {len(right)} values cannot be compared: {sql_of(node)}")
    pairs = [(exp.Paren(this=one.copy()), exp.Paren(this=other.copy())) for one, other in zip(left, right, strict=True)]
    if isinstance(node, _EQUALITY):
        joined = exp.Or if isinstance(node, exp.NEQ | exp.NullSafeNEQ) else exp.And
        terms = [type(node)(this=one, expression=other) for one, other in pairs]
        made: exp.Expr = terms[0]
        for term in terms[1:]:
            made = joined(this=made, expression=term)
        return exp.Paren(this=made)
    strictly = {exp.LTE: exp.LT, exp.GTE: exp.GT}.get(type(node), type(node))
    one, other = pairs[-1]
    least: exp.Expr = type(node)(this=one, expression=other)
    for one, other in reversed(pairs[:-1]):
        equal = exp.And(this=exp.EQ(this=one.copy(), expression=other.copy()), expression=exp.Paren(this=least))
        least = exp.Or(this=strictly(this=one, expression=other), expression=equal)
    return exp.Paren(this=least)


def _comparable(left: Typed, right: Typed, node: exp.Expr) -> tuple[Typed, Typed]:
    left, right = _read_text(left, right), _read_text(right, left)
    if {left.type.base, right.type.base} == {BaseType.DATE, BaseType.TIMESTAMP}:
        left, right = (converted(side, t.TIMESTAMP) for side in (left, right))
    sql_type = t.common_type(left.type, right.type)
    if sql_type is None:
        raise TypeMismatch(
            f"cannot compare {left.type} with {right.type}: {sql_of(node)}", hint="convert one with CAST(… AS …)"
        )
    equality = isinstance(node, (*_EQUALITY, exp.In, exp.Case))
    if equality and sql_type.base is BaseType.MAP and not any(has_map(inner) for inner in sql_type.args):
        return _sorted_entries(widened(left, sql_type)), _sorted_entries(widened(right, sql_type))
    ordered = sql_type.base in _ORDERED or sql_type == PARTS or is_key(sql_type)
    if has_map(sql_type) or not (ordered or equality):
        raise TypeMismatch(f"values of type {sql_type} cannot be compared: {sql_of(node)}")
    left, right = _side_by_side([left, right], sql_type)
    return left, right


def _side_by_side(values: Sequence[Typed], sql_type: t.SqlType) -> list[Typed]:
    """Values with a common type, as they are compared: DECIMALs that no DECIMAL can hold all of by their parts."""
    if any(loses(value.type, sql_type) for value in values):
        return [_parts(value) for value in values]
    return [beside(value, sql_type) for value in values]


def _parts(value: Typed) -> Typed:
    """A DECIMAL or whole number as what stands before the point and what stands behind it."""
    number = widened(value, t.as_decimal(value.type))
    digits = (exp.Literal.number(each) for each in (number.type.precision, number.type.scale))
    return Typed(exp.Anonymous(this="DECIMAL_PARTS", expressions=[number.expression, *digits]), PARTS)


def _sorted_entries(value: Typed) -> Typed:
    """A map in a form that can be compared: its entries in the order of their keys."""
    made = exp.Anonymous(this="ENTRIES", expressions=[value.expression, exp.true()])
    return Typed(made, entries(value).type)


def _connected(node: exp.Connector, typed: Infer) -> Typed:
    left, right = (Typed(_truth(typed, side), t.BOOLEAN) for side in (node.left, node.right))
    return Typed(binary(type(node), left, right), t.BOOLEAN)


def _negation(node: exp.Not, typed: Infer) -> Typed:
    return Typed(exp.Not(this=_truth(typed, node.this)), t.BOOLEAN)


def _truth(typed: Infer, node: exp.Expr) -> exp.Expression:
    found = typed(node)
    if found.type.base not in (BaseType.BOOLEAN, BaseType.NULL):
        raise TypeMismatch(f"AND, OR and NOT take conditions; {sql_of(node)} is {found.type}")
    return found.expression


def _is_null(node: exp.Is, typed: Infer) -> Typed:
    left = typed(node.this)
    test = node.expression
    if isinstance(test, exp.Column) and test.name == "unknown" and not test.table:
        if left.type.base not in (BaseType.BOOLEAN, BaseType.NULL):
            raise TypeMismatch(f"IS UNKNOWN takes a BOOLEAN, not {left.type}", hint="IS NULL")
        test = exp.Null()
    if not isinstance(test, exp.Null | exp.Boolean):
        raise NotSupported(f"{sql_of(node)} is not supported", hint="IS NULL, IS TRUE, IS FALSE, IS UNKNOWN")
    if isinstance(test, exp.Boolean) and left.type.base is not BaseType.BOOLEAN:
        raise TypeMismatch(f"IS {sql_of(test)} takes a BOOLEAN, not {left.type}")
    made: exp.Expression = exp.Is(this=left.expression, expression=test.copy())
    return Typed(exp.Not(this=made) if node.args.get("negate") else made, t.BOOLEAN)


def _between(node: exp.Between, typed: Infer) -> Typed:
    lengths = durations.between(node, typed)
    if lengths is not None:
        return Typed(lengths, t.BOOLEAN)
    if node.args.get("symmetric"):
        low, high = node.args["low"], node.args["high"]
        either = [
            exp.Between(this=exp.Paren(this=node.this.copy()), low=first.copy(), high=last.copy())
            for first, last in ((low, high), (high, low))
        ]
        return typed(exp.Paren(this=exp.Or(this=either[0], expression=either[1])))
    this, *ends = (typed(part) for part in (node.this, node.args["low"], node.args["high"]))
    parts = [this, *(_read_text(part, this) for part in ends)]
    if {part.type.base for part in parts} == {BaseType.DATE, BaseType.TIMESTAMP}:
        parts = [converted(part, t.TIMESTAMP) for part in parts]
    if all(has_order(part.type) for part in parts):
        low, high = (exp.Paren(this=node.args[end].copy()) for end in ("low", "high"))
        above, below = (exp.GTE(this=node.this.copy(), expression=low), exp.LTE(this=node.this.copy(), expression=high))
        return typed(exp.Paren(this=exp.And(this=above, expression=below)))
    sql_type = common("BETWEEN", [part.type for part in parts])
    if sql_type.base not in _ORDERED and sql_type != PARTS:
        raise TypeMismatch(f"values of type {sql_type} have no order: {sql_of(node)}")
    this, *ends = _side_by_side(parts, sql_type)
    return Typed(exp.Between(this=this.expression, low=ends[0].expression, high=ends[1].expression), t.BOOLEAN)


def _contained(node: exp.In, typed: Infer) -> Typed:
    if node.args.get("query") is not None:
        raise NotSupported("a subquery cannot stand here")
    if len(row_values(node.this)) > 1 and node.expressions:
        rows = [exp.EQ(this=node.this.copy(), expression=each.copy()) for each in node.expressions]
        made: exp.Expression = rows[0]
        for row in rows[1:]:
            made = exp.Or(this=made, expression=row)
        return typed(exp.Paren(this=made))
    if not node.expressions:
        raise InvalidQuery(f"IN () has no values: {sql_of(node)}", hint="no row meets it: leave it out, or write FALSE")
    this, *items = _alike(typed(node.this), [typed(item) for item in node.expressions])
    if all(each.type.is_numeric for each in (this, *items)):
        this, *items = _side_by_side([this, *items], common("IN", [each.type for each in (this, *items)]))
    sides = [_comparable(this, item, node) for item in items]
    sql_type = common("IN", [side.type for pair in sides for side in pair])
    if sql_type.base is BaseType.ARRAY and this.type.base is BaseType.MAP:
        this, items = sides[0][0], [item for _, item in sides]
    return Typed(
        exp.In(
            this=beside(this, sql_type).expression, expressions=[beside(item, sql_type).expression for item in items]
        ),
        t.BOOLEAN,
    )


def _alike(this: Typed, others: Sequence[Typed]) -> list[Typed]:
    """A value and those it is compared with, where literals take the type of the others."""
    return together([this, *(_read_text(other, this) for other in others)])


def _like(node: exp.Like, typed: Infer) -> Typed:
    left, right = typed(node.this), typed(node.expression)
    for side in (left, right):
        if side.type.base not in (BaseType.VARCHAR, BaseType.NULL):
            raise TypeMismatch(f"LIKE takes VARCHAR, not {side.type}: {sql_of(node)}")
    made: exp.Expression = exp.Like(this=left.expression, expression=right.expression)
    return Typed(exp.Not(this=made) if node.args.get("negate") else made, t.BOOLEAN)


def _escaped(node: exp.Escape, typed: Infer) -> Typed:
    mark = _mark(node)
    like = node.this.copy()
    literal = pattern_literal(like.expression)
    if literal is not None:
        literal.set("this", _needed_marks(literal.name, mark))
    negate = bool(like.args.get("negate"))
    inner = typed(like).expression
    made: exp.Expression = exp.Escape(this=inner.this if negate else inner, expression=node.expression.copy())
    pattern = made.this.expression
    if literal is None and mark == BACKSLASH and pattern.name != "LIKE_PATTERN":
        made.this.set("expression", exp.Anonymous(this="LIKE_PATTERN", expressions=[pattern]))
    return Typed(exp.Not(this=made) if negate else made, t.BOOLEAN)


def _mark(node: exp.Escape) -> str:
    """The escape of a pattern that can be read: the engines fail on others, at every row."""
    mark, pattern = node.expression, pattern_literal(node.this.expression)
    if not (isinstance(mark, exp.Literal) and mark.is_string and len(mark.name) == 1):
        raise InvalidQuery(f"ESCAPE takes one character, not {sql_of(mark)}", hint="LIKE '10!%' ESCAPE '!'")
    if pattern is not None and _ends_in(pattern.name, mark.name):
        raise InvalidQuery(f"the pattern {sql_of(pattern)} ends in its ESCAPE", hint=f"write {mark.name} twice")
    return mark.name


def _needed_marks(pattern: str, mark: str) -> str:
    """The pattern with the escape only before `%`, `_` and itself: Spark takes it nowhere else."""
    pieces = re.findall(f"{re.escape(mark)}(.)|(.)", pattern, re.DOTALL)
    return "".join(plain or (mark + marked if marked in ("%", "_", mark) else marked) for marked, plain in pieces)


def _ends_in(pattern: str, mark: str) -> bool:
    """True if the last mark of a pattern has nothing to stand before."""
    return (len(pattern) - len(pattern.rstrip(mark))) % 2 == 1


def _case(node: exp.Case, typed: Infer) -> Typed:
    branches = node.args["ifs"]
    subject, whens = _whens(typed, node.this, [branch.this for branch in branches], node)
    default = node.args.get("default")
    results = [typed(branch.args["true"]) for branch in branches]
    results += [typed(default)] if default is not None else []
    results, sql_type = shared_type("CASE", results)
    values = [result.expression for result in results]
    ifs = [exp.If(this=when, true=value) for when, value in zip(whens, values, strict=False)]
    return Typed(exp.Case(this=subject, ifs=ifs, default=values[-1] if default is not None else None), sql_type)


def _whens(
    typed: Infer, subject: exp.Expr | None, whens: Sequence[exp.Expr], node: exp.Case
) -> tuple[exp.Expression | None, list[exp.Expression]]:
    """The subject of `CASE subject WHEN value …`, and the value or condition of each WHEN."""
    if subject is None:
        return None, [_truth(typed, when) for when in whens]
    this = typed(subject)
    values = [_read_text(typed(when), this) for when in whens]
    for value in values:
        _comparable(this, value, node)
    sql_type = common("CASE", (this.type, *(value.type for value in values)))
    this, *values = _side_by_side([this, *values], sql_type)
    return this.expression, [value.expression for value in values]


def _read_text(side: Typed, other: Typed) -> Typed:
    """A text read as the date or time it is compared with; beside milliseconds since 1970, which ROWTIME and a window's
    bounds are, as a timestamp: `rowtime > '2024-01-31'`.
    """
    of_event = isinstance(other.expression, exp.Anonymous) and other.expression.name == "UNIX_TIMESTAMP"
    if isinstance(other.expression, exp.Column) and other.expression.name in WINDOW_BOUNDS:
        of_event = other.type.base is BaseType.BIGINT
    sql_type = t.TIMESTAMP if of_event else other.type
    if sql_type.base not in _TEMPORAL or side.type.base is not BaseType.VARCHAR:
        return side
    if isinstance(side.expression, exp.Literal):
        read = as_time(side, sql_type)
    elif of_event:
        return side
    else:
        read = converted(side, sql_type)
    return Typed(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[read.expression]), t.BIGINT) if of_event else read


CONDITIONS: Rules = {
    **dict.fromkeys((*_EQUALITY, exp.LT, exp.LTE, exp.GT, exp.GTE), _compared),
    exp.And: _connected,
    exp.Or: _connected,
    exp.Not: _negation,
    exp.Is: _is_null,
    exp.Between: _between,
    exp.In: _contained,
    exp.Like: _like,
    exp.Escape: _escaped,
    exp.Case: _case,
}
