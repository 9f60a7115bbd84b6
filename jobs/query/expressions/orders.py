"""The order of ARRAYs and STRUCTs: the first items or fields that differ decide, and NULL is greater than any value
there, as in DuckDB. Spark takes NULL for the least. So what is ordered, on both engines, is a key:

    [1, NULL]              [{__n0: false, __v0: 1}, {__n0: true, __v0: NULL}]
    {a: 1, b: NULL}        {__n0: false, __v0: 1, __n1: true, __v1: NULL}

A NULL in the place of the whole value stays NULL, and goes where ORDER BY says. By its names a key is known where an
expression is elaborated again: it orders itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.sql.trees import call, identifier, is_not_null


def has_order(sql_type: SqlType) -> bool:
    """True if values of a nested type can be ordered: maps, and what holds some, cannot."""
    return sql_type.is_nested and not has_map(sql_type) and not is_key(sql_type)


def is_key(sql_type: SqlType) -> bool:
    """True for the type of a key."""
    inside = sql_type.args[0] if sql_type.base is BaseType.ARRAY else sql_type
    return inside.base is BaseType.STRUCT and inside.fields[0][0] == "__n0"


def order_key(value: Typed, typed: Infer) -> Typed:
    """What orders a value on both engines alike; a plain value orders itself, and a bare NULL nothing, like 1."""
    if value.type.base is BaseType.NULL:
        return typed(exp.Literal.number(1))
    return typed(_key(value.expression, value.type, 0)) if has_order(value.type) else value


def _key(node: exp.Expr, sql_type: SqlType, depth: int) -> exp.Expr:
    match sql_type.base:
        case BaseType.ARRAY:
            item = identifier(f"__inside{depth}")
            inside = _struct([(exp.Column(this=item), sql_type.args[0])], depth + 1)
            return call("TRANSFORM", node, exp.Lambda(this=inside, expressions=[item.copy()]))
        case BaseType.STRUCT:
            whole = exp.Paren(this=node.copy())
            fields = [(exp.Dot(this=whole.copy(), expression=identifier(name)), of) for name, of in sql_type.fields]
            return exp.Case(ifs=[exp.If(this=is_not_null(whole), true=_struct(fields, depth))])
        case _:
            return node.copy()


def _struct(parts: Sequence[tuple[exp.Expr, SqlType]], depth: int) -> exp.Expr:
    """Of each item or field whether it is NULL, then its own key."""
    members: list[exp.Expr] = []
    for place, (node, sql_type) in enumerate(parts):
        is_null = exp.Is(this=node.copy(), expression=exp.Null())
        members.append(exp.PropertyEQ(this=identifier(f"__n{place}"), expression=is_null))
        members.append(exp.PropertyEQ(this=identifier(f"__v{place}"), expression=_key(node, sql_type, depth)))
    return call("STRUCT", *members)
