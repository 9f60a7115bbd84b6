"""Conversions between types: the ones that lose nothing, and CAST.

A CAST of a value that the type cannot hold (`'abc'` as INT, 3e9 as INT) is NULL: ksqlDB does not stop the query either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType, common_type
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.trees import call, identifier

_ASKED = "asked"
_MADE = "made"
"""Marks of conversions: the user wrote TRY_CAST; the front end made it of a CAST."""
_WHOLE = (BaseType.INT, BaseType.BIGINT)
_FRACTIONS = (BaseType.DECIMAL, BaseType.DOUBLE)
# (from, to) -> the function to apply before the CAST, where the engines' own CASTs differ; None where they agree.
_PAIRS: dict[tuple[BaseType, BaseType], str | None] = {
    **{(BaseType.DECIMAL, target): "CUT" for target in _WHOLE},
    **{(BaseType.DOUBLE, target): "CUT_OF_DOUBLE" for target in _WHOLE},
    **{(source, target): None for source in t.NUMERIC for target in t.NUMERIC if source not in _FRACTIONS},
    **{(source, target): None for source in t.NUMERIC for target in _FRACTIONS},
    (BaseType.DOUBLE, BaseType.DECIMAL): "DIGITS",
    **{(source, BaseType.VARCHAR): None for source in (BaseType.BOOLEAN, *_WHOLE, BaseType.DECIMAL, BaseType.DATE)},
    **{(BaseType.VARCHAR, target): "FRACTION_TEXT" for target in _FRACTIONS},
    **{(BaseType.VARCHAR, target): "WHOLE_TEXT" for target in _WHOLE},
    (BaseType.VARCHAR, BaseType.BOOLEAN): "BOOLEAN_TEXT",
    **{(source, BaseType.BOOLEAN): None for source in t.NUMERIC},
    **{(BaseType.BOOLEAN, target): None for target in (*_WHOLE, BaseType.DOUBLE)},
    (BaseType.VARCHAR, BaseType.DATE): "DATE_TEXT",
    (BaseType.VARCHAR, BaseType.TIMESTAMP): "INSTANT_TEXT",
    (BaseType.DATE, BaseType.TIMESTAMP): None,
    (BaseType.TIMESTAMP, BaseType.DATE): None,
}
# Functions that give the target type themselves: no CAST follows.
_DIRECT = {
    (BaseType.DOUBLE, BaseType.VARCHAR): "DOUBLE_TEXT",
    (BaseType.TIMESTAMP, BaseType.VARCHAR): "TIMESTAMP_TEXT",
    (BaseType.TIME, BaseType.VARCHAR): "TIME_TEXT",
    (BaseType.VARCHAR, BaseType.TIME): "TEXT_TIME",
    (BaseType.VARCHAR, BaseType.BYTES): "TEXT_BYTES",
    (BaseType.TIMESTAMP, BaseType.TIME): "TIME_OF_DAY",
}


def widened(value: Typed, sql_type: SqlType) -> Typed:
    """Widen a value to a type that `common_type` found."""
    if value.type == sql_type:
        return value
    if _has_fields(value.type) or (value.type.is_nested and loses(value.type, sql_type)):
        return members_converted(value, sql_type, widened)
    if loses(value.type, sql_type):
        return Typed(_conversion(value.expression, sql_type), sql_type)
    return Typed(exp.Cast(this=value.expression, to=data_type(sql_type)), sql_type)


def loses(given: SqlType, sql_type: SqlType) -> bool:
    """True if the type has no room for all digits of a number, or of a number inside: a DECIMAL has at most 38, also
    one that is the common type of others."""
    if sql_type.base is BaseType.DECIMAL and given.base in (BaseType.INT, BaseType.BIGINT, BaseType.DECIMAL):
        number = t.as_decimal(given)
        return number.precision - number.scale > sql_type.precision - sql_type.scale or number.scale > sql_type.scale
    return given.base is sql_type.base and any(map(loses, given.args, sql_type.args))


def beside(value: Typed, sql_type: SqlType) -> Typed:
    """Widen an operand to `sql_type`, without a CAST if both engines widen alike."""
    if sql_type.base in (BaseType.BIGINT, BaseType.DOUBLE) and value.type.is_numeric:
        return Typed(value.expression, sql_type)
    return widened(value, sql_type)


def converted(value: Typed, sql_type: SqlType) -> Typed:
    """Elaborate `CAST(value AS sql_type)`.

    Raises:
        TypeMismatch: there is no such conversion.
    """
    if common_type(value.type, sql_type) == sql_type:
        return widened(value, sql_type)
    pair = (value.type.base, sql_type.base)
    if value.type.is_nested and value.type.base is sql_type.base:
        return members_converted(value, sql_type, converted)
    if value.type.is_nested and sql_type.base is BaseType.VARCHAR:
        return text_of(value, converted)
    if pair in _DIRECT:
        return Typed(exp.Anonymous(this=_DIRECT[pair], expressions=[value.expression]), sql_type)
    if pair not in _PAIRS:
        raise TypeMismatch(f"{value.type} cannot be converted to {sql_type}")
    through = _PAIRS[pair]
    inner = value.expression
    # Of what is elaborated already, the text is there: DIGITS(x) is that of a DOUBLE.
    if through is not None and not (isinstance(inner, exp.Anonymous) and inner.name in (through, "DIGITS")):
        inner = exp.Anonymous(this=through, expressions=[inner])
    if sql_type.base is BaseType.VARCHAR:
        return Typed(exp.Cast(this=inner, to=data_type(sql_type)), sql_type)
    return Typed(_conversion(inner, sql_type), sql_type)


def _conversion(value: exp.Expression, sql_type: SqlType) -> exp.TryCast:
    """A conversion that can fail, told from the TRY_CAST of a user, for which NULL is no failure."""
    made = exp.TryCast(this=value, to=data_type(sql_type), safe=True)
    made.meta[_MADE] = True
    return made


def _has_fields(sql_type: SqlType) -> bool:
    """True if the type contains a STRUCT, whose fields one engine's CAST matches by place, the other's by name."""
    return sql_type.base is BaseType.STRUCT or any(_has_fields(inner) for inner in sql_type.args)


def asked(value: Typed) -> Typed:
    """Mark a conversion that the user wrote as TRY_CAST: its NULL is not counted as a failure."""
    value.expression.meta[_ASKED] = True
    return value


def is_asked(node: exp.Expr) -> bool:
    """True for a TRY_CAST that the user wrote, elaborated or not."""
    return bool(node.meta.get(_ASKED)) or (isinstance(node, exp.TryCast) and not node.meta.get(_MADE))


# Conversions of ARRAY, MAP and STRUCT, member by member, and of anything to text and to JSON.
#
# CAST(tags AS ARRAY<INT>)      TRANSFORM(tags, __c => TRY_CAST(__c AS INT))
# CAST(who AS STRUCT<age INT>)  CASE WHEN NOT who IS NULL THEN STRUCT(age := who->age) END
# CAST(ARRAY[1, 2] AS VARCHAR)  '[1, 2]'

Convert = Callable[[Typed, SqlType], Typed]
# Nested lambdas share the name: each binds its own, and none reads that of an outer one.
_VARIABLE = "__c"


def members_converted(value: Typed, sql_type: SqlType, convert: Convert) -> Typed:
    """Convert an ARRAY, MAP or STRUCT to another ARRAY, MAP or STRUCT type.

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
    """Pairs of a map, as an ARRAY<STRUCT<k, v>>."""
    pair = t.struct(("k", value.type.args[0]), ("v", value.type.args[1]))
    return Typed(call("ENTRIES", value.expression), t.array(pair))


def field(value: Typed, name: str, sql_type: SqlType) -> Typed:
    """Read a field of a STRUCT."""
    return Typed(exp.Dot(this=value.expression.copy(), expression=identifier(name)), sql_type)


def text_of(value: Typed, convert: Convert) -> Typed:
    """Convert a nested value to text, as ksqlDB does: `[1, 2]`, `{a=1}`, `Struct{a=1}`; NULL inside is the word
    null."""

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
    """Convert a value to JSON text; NULL is the word null."""

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
