"""Conversions of ARRAY, MAP and STRUCT, member by member, and of anything to text and to JSON.

CAST(tags AS ARRAY<INT>)      TRANSFORM(tags, __c => TRY_CAST(__c AS INT))
CAST(who AS STRUCT<age INT>)  CASE WHEN NOT who IS NULL THEN STRUCT(age := who->age) END
CAST(ARRAY[1, 2] AS VARCHAR)  '[1, 2]'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.sql.trees import call, identifier
from strandline.jobs.sql.types_text import data_type

Convert = Callable[[Typed, SqlType], Typed]
# Nested lambdas share the name: each binds its own, and none reads that of an outer one.
_VARIABLE = "__c"


def members_converted(value: Typed, sql_type: SqlType, convert: Convert) -> Typed:
    """`value`, an ARRAY, MAP or STRUCT, as another ARRAY, MAP or STRUCT type.

    Fields are matched by name, those of ROW(…), which has none of its own, by place.
    """
    if sql_type.base is BaseType.ARRAY:
        return Typed(_each(value, lambda item: convert(item, sql_type.args[0]).expression), sql_type)
    if sql_type.base is BaseType.MAP:
        pairs = _each(entries(value), lambda pair: _pair(pair, sql_type, convert))
        return Typed(call("MAP_OF_PAIRS", pairs), sql_type)
    given = dict(value.type.fields)
    if is_row(value.type) and len(given) == len(sql_type.fields) and not is_row(sql_type):
        sources: Sequence[str | None] = list(given)
    else:
        sources = [name if name in given else None for name, _ in sql_type.fields]
    fields = [
        (name, _none(inner) if source is None else convert(field(value, source, given[source]), inner))
        for source, (name, inner) in zip(sources, sql_type.fields, strict=True)
    ]
    return Typed(_unless_null(value, _struct([(name, made.expression) for name, made in fields])), sql_type)


def is_row(struct: SqlType) -> bool:
    """True for the type of ROW(a, b): STRUCT<f1 …, f2 …>."""
    return [name for name, _ in struct.fields] == [f"f{place}" for place in range(1, len(struct.fields) + 1)]


def entries(value: Typed) -> Typed:
    """The pairs of a map, as an ARRAY<STRUCT<k, v>>."""
    pair = t.struct(("k", value.type.args[0]), ("v", value.type.args[1]))
    return Typed(call("ENTRIES", value.expression), t.array(pair))


def field(value: Typed, name: str, sql_type: SqlType) -> Typed:
    """One field of a STRUCT."""
    return Typed(exp.Dot(this=value.expression.copy(), expression=identifier(name)), sql_type)


def text_of(value: Typed, convert: Convert) -> Typed:
    """A nested value as text, as in ksqlDB: `[1, 2]`, `{a=1}`, `Struct{a=1}`; NULL inside is the word null."""

    def text(inner: Typed) -> exp.Expression:
        return convert(inner, t.VARCHAR).expression

    if value.type.base is BaseType.ARRAY:
        return _framed("[", _joined(_each(value, text), ", "), "]")
    if value.type.base is BaseType.MAP:
        pairs = _each(
            entries(value), lambda pair: _concatenated(text(_key(pair)), _string("="), _or_null(text(_value(pair))))
        )
        return _framed("{", _joined(pairs, ", "), "}")
    parts = [
        _concatenated(_string(f"{name}="), text(field(value, name, sql_type))) for name, sql_type in value.type.fields
    ]
    made = _concatenated(_string("Struct{"), call("CONCAT_WS", _string(","), *parts), _string("}"))
    return Typed(_unless_null(value, made), t.VARCHAR)


def json_of(value: Typed, convert: Convert) -> Typed:
    """A value as JSON text; NULL is the word null."""

    def json(inner: Typed) -> exp.Expression:
        return json_of(inner, convert).expression

    base = value.type.base
    if base is BaseType.ARRAY:
        made = _framed("[", _joined(_each(value, json), ","), "]").expression
    elif base is BaseType.MAP:
        pairs = _each(entries(value), lambda pair: _concatenated(_name(_text_key(pair, convert)), json(_value(pair))))
        made = _framed("{", _joined(pairs, ","), "}").expression
    elif base is BaseType.STRUCT:
        members = [
            _concatenated(_name(_string(name)), json(field(value, name, inner))) for name, inner in value.type.fields
        ]
        inside = call("CONCAT_WS", _string(","), *members)
        made = _unless_null(value, _concatenated(_string("{"), inside, _string("}")))
    elif value.type.is_numeric or base is BaseType.BOOLEAN:
        made = convert(value, t.VARCHAR).expression
    elif base is BaseType.BYTES:
        made = call("QUOTED_JSON", call("FROM_BYTES", value.expression, _string("base64")))
    else:
        made = call("QUOTED_JSON", convert(value, t.VARCHAR).expression)
    return Typed(_or_null(made), t.VARCHAR)


def _text_key(pair: Typed, convert: Convert) -> exp.Expression:
    """The key of an entry as text."""
    return convert(_key(pair), t.VARCHAR).expression


def _pair(pair: Typed, sql_type: SqlType, convert: Convert) -> exp.Expression:
    key, value = convert(_key(pair), sql_type.args[0]), convert(_value(pair), sql_type.args[1])
    return _struct([("k", key.expression), ("v", value.expression)])


def _key(pair: Typed) -> Typed:
    return field(pair, "k", pair.type.fields[0][1])


def _value(pair: Typed) -> Typed:
    return field(pair, "v", pair.type.fields[1][1])


def _each(value: Typed, body: Callable[[Typed], exp.Expression]) -> exp.Expression:
    item = Typed(identifier(_VARIABLE), value.type.args[0])
    function = exp.Lambda(this=body(item), expressions=[identifier(_VARIABLE)])
    return call("TRANSFORM", value.expression, function)


def _struct(fields: Sequence[tuple[str, exp.Expression]]) -> exp.Expression:
    return call("STRUCT", *(exp.PropertyEQ(this=identifier(name), expression=made) for name, made in fields))


def _unless_null(value: Typed, made: exp.Expression) -> exp.Expression:
    there = exp.Not(this=exp.Is(this=value.expression.copy(), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=there, true=made)])


def _none(sql_type: SqlType) -> Typed:
    return Typed(exp.Cast(this=exp.Null(), to=data_type(sql_type)), sql_type)


def _framed(first: str, inner: exp.Expression, last: str) -> Typed:
    return Typed(_concatenated(_string(first), inner, _string(last)), t.VARCHAR)


def _concatenated(*parts: exp.Expression) -> exp.Expression:
    made = parts[0]
    for part in parts[1:]:
        made = exp.DPipe(this=made, expression=part, safe=True)
    return made


def _joined(items: exp.Expression, separator: str) -> exp.Expression:
    return call("JOIN_TEXTS", items, _string(separator))


def _or_null(text: exp.Expression) -> exp.Expression:
    return call("COALESCE", text, _string("null"))


def _name(text: exp.Expression) -> exp.Expression:
    return _concatenated(call("QUOTED_JSON", text), _string(":"))


def _string(text: str) -> exp.Literal:
    return exp.Literal.string(text)
