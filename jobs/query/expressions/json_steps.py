"""PostgreSQL's steps into JSON: of a text that holds it, and of a MAP, STRUCT or ARRAY, which its clients see as JSON.

a -> 'b'          JSON_AT(a, '$["b"]'): JSON as text; of a MAP a['b'], of a STRUCT a->b, of an ARRAY (a -> 0) a[1]
a ->> 'b'         the same as text: strings without quotes, NULL for JSON's null
a #>> '{b,0}'     a -> 'b' ->> 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.casts import converted
from strandline.jobs.query.expressions.casts_nested import json_of
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import call, identifier

_NULL = "null"
"""JSON's null as a text."""


def _step(node: exp.Anonymous, typed: Infer) -> Typed:
    """`value -> step`, elaborated.

    Raises:
        InvalidQuery: the step is no constant.
        TypeMismatch, UnknownName: the value has no such members.
    """
    step = _literal(node)
    value = typed(node.expressions[0])
    if not step.name:
        return converted(Typed(exp.Null(), t.NULL), t.VARCHAR)
    match value.type.base:
        case BaseType.MAP:
            return typed(exp.Bracket(this=node.expressions[0].copy(), expressions=[exp.Literal.string(step.name)]))
        case BaseType.STRUCT:
            return typed(exp.Dot(this=node.expressions[0].copy(), expression=identifier(step.name)))
        case BaseType.ARRAY if step.is_int:
            place = exp.Literal.number(int(step.name) + 1)
            return typed(exp.Bracket(this=node.expressions[0].copy(), expressions=[place]))
        case BaseType.VARCHAR | BaseType.NULL:
            return typed(call("JSON_AT", node.expressions[0], _path(step)))
    hint = "they are of JSON in a VARCHAR, of a MAP, STRUCT or ARRAY"
    raise TypeMismatch(f"{value.type} has no members: {sql_of(node)}", hint=hint)


def _step_as_text(node: exp.Anonymous, typed: Infer) -> Typed:
    """`value ->> step`, elaborated."""
    step = _literal(node)
    if step.name and typed(node.expressions[0]).type.base in (BaseType.VARCHAR, BaseType.NULL):
        value, path = node.expressions[0], _path(step)
        is_null = exp.EQ(this=call("JSON_AT", value, path), expression=exp.Literal.string(_NULL))
        return typed(exp.Case(ifs=[exp.If(this=is_null, true=exp.Null())], default=call("JSON_EXTRACT", value, path)))
    found = _step(node, typed)
    return json_of(found, converted) if found.type.is_nested else converted(found, t.VARCHAR)


def _along(last: str) -> Callable[[exp.Anonymous, Infer], Typed]:
    """The rewrite of a path to its steps, the last one by that function."""

    def rewrite(node: exp.Anonymous, typed: Infer) -> Typed:
        value, path = _two(node)
        while isinstance(path, exp.Cast | exp.Paren):
            path = path.this
        if isinstance(path, exp.Literal) and path.is_string and path.name[:1] == "{" and path.name[-1:] == "}":
            parts: list[exp.Expr] = [exp.Literal.string(each.strip().strip('"')) for each in path.name[1:-1].split(",")]
        elif isinstance(path, exp.Array):
            parts = path.expressions
        else:
            raise InvalidQuery(f"a path of JSON is a constant, '{{a,0}}' or ARRAY['a', '0'], not {sql_of(path)}")
        for part in parts[:-1]:
            value = call("JSON_GET", value, part)
        return typed(call(last, value, *parts[-1:]))

    return rewrite


def _literal(node: exp.Anonymous) -> exp.Literal:
    _, step = _two(node)
    while isinstance(step, exp.Cast | exp.Paren):
        step = step.this
    if isinstance(step, exp.Null):
        return exp.Literal.string("")  # a parameter whose value is not known yet: its type is asked for
    if not isinstance(step, exp.Literal):
        hint = "EXTRACTJSONFIELD(json, path) takes a path that is computed"
        raise InvalidQuery(f"a step into JSON is a constant, not {sql_of(step)}", hint=hint)
    return step


def _two(node: exp.Anonymous) -> tuple[exp.Expr, exp.Expr]:
    if len(node.expressions) != 2:
        raise TypeMismatch(f"{node.name} takes 2 arguments, not {len(node.expressions)}")
    return node.expressions[0], node.expressions[1]


def _path(step: exp.Literal) -> exp.Literal:
    escaped = step.name.replace("\\", "\\\\").replace('"', '\\"')
    return exp.Literal.string(f"$[{step.name}]" if step.name.isdecimal() else f'$["{escaped}"]')


JSON_STEPS: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    "JSON_GET": _step,
    "JSON_GET_TEXT": _step_as_text,
    "JSON_PATH": _along("JSON_GET"),
    "JSON_PATH_TEXT": _along("JSON_GET_TEXT"),
}
"""The rewrite of each step, by the name of the call that the parser makes of it."""
