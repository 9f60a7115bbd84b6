"""Coercion of literals to the type of the values beside them, as in ksqlDB; and calls of functions over such arguments.

x IN (1, 2.5, '3')                  the text is read as a number
GREATEST(clock, '09:16:00')         as a time
ARRAY['3', NULL] beside ARRAY<INT>  item by item

A rewrite of one function into others types its arguments once, and calls the others over what came of it: an elaborated
expression may read columns that no name of the query means, such as that of a subquery that stands for a value.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from strandline.jobs.functions.registry import find
from strandline.jobs.functions.scalars.contract import Scalar, common
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.expressions.arithmetic import literal, negated
from strandline.jobs.query.expressions.casts import converted, widened
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import data_type

_READERS: dict[BaseType, Callable[[str], object]] = {
    BaseType.DATE: lambda text: dt.date.fromisoformat(_whole_date(text)),
    BaseType.TIME: dt.time.fromisoformat,
    BaseType.TIMESTAMP: lambda text: dt.datetime.fromisoformat(_whole_date(text)),
}
_FORMS = {BaseType.DATE: "'2024-01-31'", BaseType.TIME: "'13:45:00'", BaseType.TIMESTAMP: "'2024-01-31T13:45:00'"}
_NUMBER = re.compile(r"\s*([+-]?)([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*")


def together(values: Sequence[Typed]) -> list[Typed]:
    """Read text literals as the type of the values beside them; nothing is widened yet.

    Raises:
        TypeMismatch: a text cannot be read as the type of the others.
    """
    firm = [value.type for value in values if not _is_text(value) and value.type.base is not BaseType.NULL]
    if not firm:
        return list(values)
    if firm[0].base is BaseType.VARCHAR:
        return [as_text(value) for value in values]
    shared = firm[0]
    for sql_type in firm[1:]:
        shared = t.common_type(shared, sql_type) or shared
    return [read_as(value, shared) for value in values]


def shared_type(what: str, values: Sequence[Typed]) -> tuple[list[Typed], SqlType]:
    """Read values as `together` does, and widen them to their common type.

    Args:
        what: whose values they are, for the error.

    Raises:
        TypeMismatch: they have no common type; and as `together`.
    """
    read = together(values)
    sql_type = common(what, [value.type for value in read])
    return [widened(value, sql_type) for value in read], sql_type


def read_as(value: Typed, sql_type: SqlType) -> Typed:
    """Read a text literal as `sql_type`, also inside ARRAY, MAP and STRUCT; leave anything else as it is.

    Raises:
        TypeMismatch: the text cannot be read as that type.
    """
    if value.type == sql_type or not _is_text(value):
        return _read_inside(value, sql_type)
    text = value.expression.name
    if sql_type.is_numeric:
        return _number(text, sql_type)
    if sql_type.base is BaseType.BOOLEAN:
        return Typed(exp.Boolean(this=_truth(text)), t.BOOLEAN)
    return as_time(value, sql_type) if sql_type.base in _READERS else value


def as_time(value: Typed, sql_type: SqlType) -> Typed:
    """Read a text literal as a DATE, TIME or TIMESTAMP, in UTC.

    Raises:
        TypeMismatch: it cannot be read as that type.
    """
    text = value.expression.name
    try:
        found = _READERS[sql_type.base](text)
    except ValueError as error:
        raise TypeMismatch(f"'{text}' is not a {sql_type}", hint=f"write {_FORMS[sql_type.base]}") from error
    if isinstance(found, dt.datetime) and found.tzinfo is not None:
        text = found.astimezone(dt.UTC).replace(tzinfo=None).isoformat()
    return converted(Typed(exp.Literal.string(text), t.VARCHAR), sql_type)


def as_text(value: Typed) -> Typed:
    """Read a number or BOOLEAN literal as a text literal; leave anything else as it is."""
    node = value.expression
    if isinstance(node, exp.Literal) and not node.is_string:
        return Typed(exp.Literal.string(node.name), t.VARCHAR)
    if isinstance(node, exp.Boolean):
        return Typed(exp.Literal.string("true" if node.this else "false"), t.VARCHAR)
    return value


def _whole_date(text: str) -> str:
    """A text that begins with a date; 2024 and 2024-03 are completed to the first day."""
    return text if len(text) > 7 else text + "-01" * ((10 - len(text)) // 3)


def _is_text(value: Typed) -> bool:
    return isinstance(value.expression, exp.Literal) and value.type == t.VARCHAR


def _number(text: str, sql_type: SqlType) -> Typed:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise TypeMismatch(f"'{text}' is not a number, as {sql_type} beside it is", hint="CAST(… AS VARCHAR)")
    sign, digits = match.groups()
    found = literal(exp.Literal(this=digits, is_string=False))
    return negated(found) if sign == "-" else found


def _truth(text: str) -> bool:
    word = text.lower()
    for name, truth in (("true", True), ("yes", True), ("false", False), ("no", False)):
        if word and name.startswith(word):
            return truth
    raise TypeMismatch(f"'{text}' is not a BOOLEAN", hint="'true' or 'false'")


def _read_inside(value: Typed, sql_type: SqlType) -> Typed:
    node = value.expression
    if isinstance(node, exp.Array) and not node.expressions:
        return value
    if isinstance(node, exp.Array) and sql_type.base is BaseType.ARRAY and value.type.base is BaseType.ARRAY:
        items, item = _inner(node.expressions, value.type.args[0], sql_type.args[0])
        return Typed(exp.Array(expressions=items), t.array(item))
    if not isinstance(node, exp.Anonymous) or value.type.base is not sql_type.base:
        return value
    pairs = [pair for pair in node.expressions if isinstance(pair, exp.PropertyEQ)]
    if node.name == "MAP" and pairs:
        keys, key = _inner([pair.this for pair in pairs], value.type.args[0], sql_type.args[0])
        values, item = _inner([pair.expression for pair in pairs], value.type.args[1], sql_type.args[1])
        return Typed(_paired("MAP", keys, values), t.map_of(key, item))
    if node.name == "STRUCT" and pairs:
        wanted, given = dict(sql_type.fields), dict(value.type.fields)
        fields = [
            read_as(Typed(pair.expression, given[pair.this.name]), wanted.get(pair.this.name, given[pair.this.name]))
            for pair in pairs
        ]
        made = _paired("STRUCT", [pair.this for pair in pairs], [each.expression for each in fields])
        return Typed(made, t.struct(*((pair.this.name, each.type) for pair, each in zip(pairs, fields, strict=True))))
    return value


def _inner(nodes: Sequence[exp.Expression], given: SqlType, wanted: SqlType) -> tuple[list[exp.Expression], SqlType]:
    """Items of type `given`, their literals and NULLs read as `wanted`, widened to their common type."""
    items = [Typed(exp.Null(), t.NULL) if _is_null(node) else Typed(node, given) for node in nodes]
    read = [read_as(item, wanted) for item in items]
    sql_type = common("the items", [item.type for item in read])
    return [widened(item, sql_type).expression for item in read], sql_type


def _is_null(node: exp.Expression) -> bool:
    return isinstance(node, exp.Null) or (isinstance(node, exp.Cast) and isinstance(node.this, exp.Null))


def _paired(name: str, keys: Sequence[exp.Expression], values: Sequence[exp.Expression]) -> exp.Anonymous:
    pairs = [exp.PropertyEQ(this=key.copy(), expression=value) for key, value in zip(keys, values, strict=True)]
    return exp.Anonymous(this=name, expressions=pairs)


def is_constant(node: exp.Expression) -> bool:
    """True if the expression is a literal, perhaps with a sign."""
    return isinstance(node, exp.Literal) or (isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal))


def called(name: str, *arguments: Typed) -> Typed:
    """The call of a registered function. Raises as `call_of`."""
    scalar = find(name)
    assert scalar is not None, name
    return call_of(scalar, name, arguments)


def call_of(scalar: Scalar, name: str, arguments: Sequence[Typed]) -> Typed:
    """The call of a function under the name that was written.

    Raises:
        TypeMismatch: the arguments do not fit.
        InvalidQuery: one must be a constant, or is a constant that the function does not know.
    """
    values = together(arguments) if scalar.alike else list(arguments)
    scalar = _for_types(scalar, values)
    wanted, result = scalar.signature(name, tuple(each.type for each in values))
    parts = [widened(each, sql_type).expression for each, sql_type in zip(values, wanted, strict=True)]
    for index in scalar.constant:
        if index < len(parts) and not is_constant(parts[index]):
            raise InvalidQuery(f"argument {index + 1} of {name} must be a constant, not {sql_of(parts[index])}")
    if scalar.check is not None:
        scalar.check([part.name if isinstance(part, exp.Literal) else None for part in parts])
    made: exp.Expression = exp.Anonymous(this=scalar.name, expressions=parts)
    return Typed(exp.Cast(this=made, to=data_type(result)) if scalar.exact else made, result)


def _for_types(scalar: Scalar, arguments: Sequence[Typed]) -> Scalar:
    """The function, or the one that replaces it for arguments of that type."""
    base = next((each.type.base for each in arguments if each.type.base is not BaseType.NULL), BaseType.NULL)
    return find(dict(scalar.instead).get(base, "")) or scalar
