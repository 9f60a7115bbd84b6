"""Type inference and elaboration: what is implicit in an expression's text becomes explicit in its tree.

    INT / INT           CAST(DIV(a, b) AS INT)           integer division, for both engines
    price * 2           price * CAST(2 AS DECIMAL(10, 0))
    rowtime             UNIX_TIMESTAMP(_timestamp)
    r.area              area

An elaborated expression means the same to Spark and DuckDB whatever the types; elaborating it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.functions.python import function_at, scalar_of
from strandline.jobs.functions.registry import NOT_DETERMINISTIC, SCALARS, find
from strandline.jobs.functions.scalars.arrays import FORMS as LAMBDA_FORMS
from strandline.jobs.functions.scalars.contract import TOTAL, common
from strandline.jobs.functions.scalars.decimals import is_wide
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.tables import alike
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.arithmetic import (
    arithmetic,
    literal,
    negated,
    of_bits,
    of_days,
    shifted,
    with_interval,
)
from strandline.jobs.query.expressions.casts import asked, converted, is_asked, widened
from strandline.jobs.query.expressions.coercion import call_of
from strandline.jobs.query.expressions.comparisons import CONDITIONS
from strandline.jobs.query.expressions.durations import no_value
from strandline.jobs.query.expressions.nested import CONSTRUCTORS, NESTED, higher_order
from strandline.jobs.query.expressions.rewrites import REWRITES, UNLESS_PLAIN
from strandline.jobs.query.expressions.scope import Infer, Inside, Names, Rules, Typed, depth_of
from strandline.jobs.sql.dialect import NestedQuery, OuterValue, position_of, sql_of
from strandline.jobs.sql.from_text import data_type, type_of
from strandline.jobs.sql.time_clauses import IntervalNode
from strandline.jobs.sql.trees import call

Aggregate = Callable[[exp.Expression, Infer], Typed | None]
"""Reads a node as an aggregate call and elaborates its arguments; gives None for any other node."""
OF_SETS = ("GROUPING", "GROUPING_ID")
"""Calls about the grouping set of a row, which `jobs.query.clauses.grouping` reads."""


def infer(node: exp.Expr, scope: Names, aggregate: Aggregate | None = None) -> Typed:
    """Type and elaborate one expression.

    Args:
        aggregate: reads aggregate calls; None where they are not allowed.

    Raises:
        UnknownName, TypeMismatch, InvalidQuery, NotSupported: with line and column.
    """

    def typed(inner: exp.Expr) -> Typed:
        # An error from below gets this node's position, unless a node further in had one.
        try:
            return _typed(inner, scope, aggregate, typed)
        except SqlError as error:
            error.placed(*position_of(inner))
            raise

    return typed(node)


def condition(node: exp.Expr, scope: Names, clause: str, aggregate: Aggregate | None = None) -> exp.Expression:
    """Elaborate a condition.

    Raises:
        TypeMismatch: it is not BOOLEAN; and as `infer`.
    """
    found = infer(node, scope, aggregate)
    if found.type.base not in (BaseType.BOOLEAN, BaseType.NULL):
        raise TypeMismatch(
            f"{clause} takes a condition; {sql_of(node)} is {found.type}", hint="compare it with something"
        ).placed(*position_of(node))
    return found.expression


def _typed(node: exp.Expr, scope: Names, aggregate: Aggregate | None, typed: Infer) -> Typed:
    assert isinstance(node, exp.Expression)
    if aggregate is not None:
        found = aggregate(node, lambda argument: infer(argument, scope))
        if found is not None:
            return found
    if isinstance(node, exp.Column):
        return _column(node, scope, typed)
    if isinstance(node, exp.Identifier):
        return scope.resolve(exp.Column(this=node))
    if isinstance(node, exp.Anonymous) and node.name in LAMBDA_FORMS:
        return higher_order(
            node, typed, lambda body, variables: infer(body, Inside(scope, variables), aggregate), depth_of(scope)
        )
    rule = OPERATORS.get(type(node))
    if rule is None:
        raise _refusal(node)
    made = rule(node, typed)
    return asked(made) if is_asked(node) else made


def _column(node: exp.Column, scope: Names, typed: Infer) -> Typed:
    """A column; `a.b` may be the field b of the column a, where no input is called a."""
    if isinstance(node.this, exp.Star):
        raise InvalidQuery("* stands for all columns of a SELECT, not for a value")
    try:
        return scope.resolve(node)
    except UnknownName:
        field = _as_field(node, scope)
        if field is None:
            raise
        return typed(field)


def _as_field(node: exp.Column, scope: Names) -> exp.Dot | None:
    table = node.args.get("table")
    if not isinstance(table, exp.Identifier):
        return None
    try:
        found = scope.resolve(exp.Column(this=table.copy()))
    except SqlError:
        return None
    if found.type.base is not BaseType.STRUCT or alike(node.name, dict(found.type.fields)) is None:
        return None
    return exp.Dot(this=exp.Column(this=table.copy()), expression=node.this.copy())


def _paren(node: exp.Paren, typed: Infer) -> Typed:
    inner = typed(node.this)
    return Typed(exp.Paren(this=inner.expression), inner.type)


def _cast(node: exp.Cast, typed: Infer) -> Typed:
    """CAST. To DECIMAL without digits, an exact number keeps those that it has; of others nobody knows how many."""
    value = typed(node.this)
    exact = value.type.base in (BaseType.INT, BaseType.BIGINT, BaseType.DECIMAL)
    if exact and node.to.this is exp.DType.DECIMAL and not node.to.expressions:
        return widened(value, t.as_decimal(value.type))
    return converted(value, type_of(node.to))


def _computed(node: exp.Binary, typed: Infer) -> Typed:
    left, right = typed(node.left), typed(node.right)
    if isinstance(node, exp.Sub) and {left.type.base, right.type.base} <= {BaseType.DATE, BaseType.TIMESTAMP}:
        days = of_days(node, left, right)
        if days is None:
            raise no_value(node)
        return days
    return of_days(node, left, right) or arithmetic(type(node), left, right)


def _divided(node: exp.IntDiv, typed: Infer) -> Typed:
    """`a // b` of whole numbers, DuckDB's: what `a / b` is, and NULL where b is 0."""
    sides = typed(node.left), typed(node.right)
    if any(side.type.base not in (BaseType.INT, BaseType.BIGINT) for side in sides):
        raise TypeMismatch(f"// takes whole numbers: {sql_of(node)}", hint="a / b, or TRUNC(a / b)")
    divisor = call("NULLIF", node.right, exp.Literal.number(0))
    return typed(exp.Div(this=exp.Paren(this=node.left.copy()), expression=divisor))


def _joined(node: exp.DPipe, typed: Infer) -> Typed:
    left, right = typed(node.left), typed(node.right)
    if BaseType.ARRAY in (left.type.base, right.type.base):
        return _appended(node, left, right, typed)
    if BaseType.VARCHAR in (left.type.base, right.type.base):
        left, right = as_text(left), as_text(right)
    sql_type = common("||", (left.type, right.type))
    if sql_type.base not in (BaseType.VARCHAR, BaseType.BYTES, BaseType.NULL):
        raise TypeMismatch(f"|| joins VARCHAR or BYTES, not {sql_type}", hint="CAST(… AS VARCHAR)")
    return Typed(exp.DPipe(this=left.expression, expression=right.expression, safe=True), sql_type)


def _appended(node: exp.DPipe, left: Typed, right: Typed, typed: Infer) -> Typed:
    """`array || array`, `array || item`, `item || array`."""
    sides = [
        each.copy() if side.type.base in (BaseType.ARRAY, BaseType.NULL) else exp.Array(expressions=[each.copy()])
        for each, side in ((node.left, left), (node.right, right))
    ]
    return typed(call("ARRAY_CONCAT", *sides))


_DIGESTS = ("MD5", "SHA1", "SHA256")
"""They are of bytes; of what is neither that nor a text, they are of what CAST makes of it."""


def as_text(value: Typed) -> Typed:
    """A plain value as it is joined to a text: what CAST makes of it."""
    plain = not value.type.is_nested and value.type.base not in (BaseType.BYTES, BaseType.NULL)
    return converted(value, t.VARCHAR) if plain else value


def _call(node: exp.Anonymous, typed: Infer) -> Typed:
    name = node.name
    written = function_at(node)
    elaborate = CONSTRUCTORS.get(name) or REWRITES.get(name) if written is None else None
    if elaborate is not None:
        return elaborate(node, typed)
    special = UNLESS_PLAIN[name](node, typed) if name in UNLESS_PLAIN and written is None else None
    if special is not None:
        return special
    scalar = scalar_of(written) if written is not None else find(name)
    if scalar is None:
        raise _unknown_function(node)
    arguments = [typed(argument) for argument in node.expressions]
    of_texts = scalar.name == "CONCAT" and any(each.type.base is BaseType.VARCHAR for each in arguments)
    if of_texts or scalar.name in _DIGESTS:
        arguments = list(map(as_text, arguments))
    found = call_of(scalar, name, arguments)
    if written is not None:
        found.expression.meta.update(node.meta)  # so that `function_at` finds it when this is elaborated again
    made = found.expression
    return Typed(_magnitude(made, found.type), found.type) if made.name == "ABS" else found


def _magnitude(made: exp.Expression, sql_type: t.SqlType) -> exp.Expression:
    """ABS of a number of that type."""
    if is_wide(sql_type):
        return exp.Cast(this=call("MAGNITUDE", *made.expressions), to=data_type(sql_type))
    if sql_type.base in (BaseType.DECIMAL, BaseType.DOUBLE):
        made.meta[TOTAL] = True
    return made


def _unknown_function(node: exp.Anonymous) -> SqlError:
    if node.name in FUNCTIONS:
        return InvalidQuery(
            f"the aggregate {node.name} cannot stand here: {sql_of(node)}",
            hint="aggregates belong into the SELECT list or HAVING of a query with GROUP BY, and not into each other",
        )
    if node.name in OF_SETS:
        return InvalidQuery(
            f"{sql_of(node)} cannot stand here: it is about a row's grouping set, which is known after grouping",
            hint="it belongs into the SELECT list, HAVING or QUALIFY",
        )
    if node.name in NOT_DETERMINISTIC:
        return InvalidQuery(
            f"{node.name} gives another value each time, and a query gives the same rows of the same tables each time",
            hint="rowtime is the time of the event",
        )
    return UnknownName.among("function", node.name, (*SCALARS, *REWRITES, *FUNCTIONS))


def _refusal(node: exp.Expression) -> SqlError:
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
        return NotSupported(
            "a subquery cannot stand here", hint="it can in WHERE, GROUP BY, HAVING, the SELECT list and FROM"
        )
    if isinstance(node, exp.Window):
        return InvalidQuery(
            f"a function OVER a window cannot stand here: {sql_of(node)}", hint="it can in the SELECT list and QUALIFY"
        )
    if isinstance(node, exp.Filter):
        return InvalidQuery(f"FILTER belongs to an aggregate: {sql_of(node)}")
    if isinstance(node, IntervalNode):
        return NotSupported(
            f"{sql_of(node)} is no value: there are no columns of that type",
            hint="it is added to, or taken from, a DATE, TIME or TIMESTAMP",
        )
    if isinstance(node, exp.Star):
        return InvalidQuery("* stands for all columns of a SELECT, or in COUNT(*)")
    return NotSupported(f"{sql_of(node)} is not supported yet")


OPERATORS: Rules = {
    **CONDITIONS,
    **NESTED,
    exp.Literal: lambda node, _: literal(node),
    exp.Boolean: lambda node, _: Typed(exp.Boolean(this=bool(node.this)), t.BOOLEAN),
    exp.Null: lambda _node, _: Typed(exp.Null(), t.NULL),
    exp.Paren: _paren,
    exp.Neg: lambda node, typed: negated(typed(node.this)),
    **dict.fromkeys(
        (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod),
        lambda node, typed: with_interval(node, typed) or _computed(node, typed),
    ),
    **dict.fromkeys(
        (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
        lambda node, typed: of_bits(node, typed(node.left), typed(node.right)),
    ),
    exp.BitwiseNot: lambda node, typed: of_bits(node, typed(node.this)),
    **dict.fromkeys(
        (exp.BitwiseLeftShift, exp.BitwiseRightShift),
        lambda node, typed: shifted(node, typed(node.left), typed(node.right)),
    ),
    exp.DPipe: _joined,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Anonymous: _call,
    exp.Tuple: lambda node, typed: typed(call("ROW", *node.expressions)),
    exp.IntDiv: _divided,
    exp.Pow: lambda node, typed: typed(call("POWER", node.left, node.right)),
    # They are elaborated when they are made.
    **dict.fromkeys((NestedQuery, OuterValue), lambda node, _: Typed(node, type_of(node.args["to"]))),
}
"""What each kind of node means, columns and lambda functions apart: operators, literals, calls."""
