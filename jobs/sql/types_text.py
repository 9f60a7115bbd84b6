"""Conversion between a type, its text in SQL and its tree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch, UnknownName
from strandline.jobs.model.tables import alike, differ_only_in_case
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.sql.dialect import Strandline, position_of
from strandline.jobs.sql.from_text import parse_rule

_FLAT_TYPES = {
    exp.DType.BOOLEAN: t.BOOLEAN,
    exp.DType.INT: t.INT,
    exp.DType.BIGINT: t.BIGINT,
    exp.DType.DOUBLE: t.DOUBLE,
    exp.DType.VARCHAR: t.VARCHAR,
    exp.DType.TEXT: t.VARCHAR,
    exp.DType.VARBINARY: t.BYTES,
    exp.DType.DATE: t.DATE,
    exp.DType.TIME: t.TIME,
    exp.DType.TIMESTAMP: t.TIMESTAMP,
    exp.DType.TIMESTAMPTZ: t.TIMESTAMP,  # TIMESTAMP WITH TIME ZONE: an instant, as ours is
}
_JSON = "VARCHAR: doc -> 'a', doc ->> 'a' and EXTRACTJSONFIELD(doc, '$.a') read the JSON in a text"
_INSTEAD = {
    **dict.fromkeys(("JSON", "JSONB", "VARIANT", "OBJECT", "SUPER"), _JSON),
    "INTERVAL": "a BIGINT of seconds: EXTRACT(EPOCH FROM b - a)",
    "NUMBER": "DECIMAL(38, 9), or as many digits as you need; BIGINT, DOUBLE",
    "ROW": "STRUCT<name type, …>",
    "SERIAL": "INT: numbers are given by whoever inserts",
    "BIGSERIAL": "BIGINT: numbers are given by whoever inserts",
    "TIMETZ": "TIME, by a clock that all rows share; or TIMESTAMP, which is an instant",
    "UUID": "VARCHAR, of its text",
}
"""What to write in the place of types that the language has not."""
_TYPE_NAMES = ("STRING", *(base.value for base in BaseType if base is not BaseType.NULL))


def parse_type(text: str) -> SqlType:
    """The type that `text` names; reads back what `str(SqlType)` writes.

    Raises:
        SqlSyntaxError: it is not a type's syntax.
        UnknownName: there is no such type.
    """
    tree = parse_rule(text, Strandline.Parser.type_rule)
    return type_of(tree)


def is_type_name(name: str) -> bool:
    """True if a name, in small letters, is that of a type of the language."""
    return name.upper() in _TYPE_NAMES


def type_of(node: exp.Expr, at: Token | None = None) -> SqlType:
    """The type that a type's tree names; `at` is its position, for the error.

    Raises:
        UnknownName: there is no such type.
        TypeMismatch: its parameters do not fit the type.
    """
    line, column = position_of(at or node)
    dtype = node.this
    if dtype is exp.DType.USERDEFINED or not isinstance(node, exp.DataType):
        name = str(node.args.get("kind") or node.this).strip('"`').upper()
        raise _unknown(name).placed(line, column)
    inner = node.expressions
    if dtype in _FLAT_TYPES and not inner:
        return _FLAT_TYPES[dtype]
    if dtype is exp.DType.VARCHAR and [part.name.upper() for part in inner] == ["STRING"]:
        return t.VARCHAR
    if dtype is exp.DType.DECIMAL:
        return _decimal(inner, line, column)
    if dtype is exp.DType.ARRAY and len(inner) == 1:
        return t.array(type_of(inner[0], at))
    if dtype is exp.DType.MAP and len(inner) == 2:
        return t.map_of(type_of(inner[0], at), type_of(inner[1], at))
    if dtype is exp.DType.STRUCT and inner and all(member.args.get("kind") is not None for member in inner):
        names = [_folded_name(member.this) for member in inner]
        for number, name in enumerate(names):
            taken = alike(name, names[:number])
            if taken is not None:
                raise TypeMismatch(differ_only_in_case("fields", taken, name), line=line, column=column)
        return t.struct(*((name, type_of(member.args["kind"], at)) for name, member in zip(names, inner, strict=True)))
    raise TypeMismatch(
        f"{node.sql(dialect=Strandline)} is not a type", line=line, column=column, hint=_type_hint(dtype)
    )


def _unknown(name: str) -> UnknownName:
    if name in _INSTEAD:
        return UnknownName(f"there is no type '{name}'", hint=_INSTEAD[name])
    return UnknownName.among("type", name, _TYPE_NAMES)


def _type_hint(dtype: object) -> str:
    if dtype in _FLAT_TYPES:
        return f"{_FLAT_TYPES[dtype]} takes no parameters"
    return "write ARRAY<type>, MAP<type, type>, STRUCT<name type, …> or DECIMAL(precision, scale)"


def _folded_name(name: exp.Expression) -> str:
    return name.name if name.args.get("quoted") else name.name.lower()


def _decimal(parameters: Sequence[exp.Expr], line: int | None, column: int | None) -> SqlType:
    if not parameters:
        # Whatever stood for them would cut digits off some numbers, in silence.
        raise TypeMismatch(
            "DECIMAL says how many digits it has",
            line=line,
            column=column,
            hint="write DECIMAL(38, 9), or as you need it",
        )
    numbers = [int(p.name) for p in parameters if p.name.isdigit()]
    precision, scale = (*numbers, 0, 0)[:2]
    if (
        len(numbers) != len(parameters)
        or len(numbers) > 2
        or not 1 <= precision <= t.MAX_PRECISION
        or scale > precision
    ):
        raise TypeMismatch(
            f"DECIMAL({', '.join(p.sql() for p in parameters)}) is not a type",
            line=line,
            column=column,
            hint="DECIMAL(precision, scale): 1 to 38 digits, of which scale after the point",
        )
    return t.decimal(precision, scale)


def data_type(sql_type: SqlType) -> exp.DataType:
    """The tree of a type, as CAST carries it; a new one each time."""
    return _data_type(sql_type).copy()


@cache
def _data_type(sql_type: SqlType) -> exp.DataType:
    tree = parse_rule(str(sql_type), Strandline.Parser.type_rule)
    assert isinstance(tree, exp.DataType)
    return tree
