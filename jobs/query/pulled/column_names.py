"""The names that PostgreSQL gives to the columns of an answer that nobody named, as its clients expect them.

COUNT(*), SUM(a) OVER (…)   count, sum          a::int, x[1], (a)      a, x, a
'x'::text, TRUE             text, bool          CASE … END             case, or the name of what ELSE gives
(SELECT MAX(a) FROM t)      max                 a + 1, 'x', NOT b      ?column?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from sqlglot import exp
from sqlglot.expressions import DType

Unnamed = Literal["ksql", "postgres"]
"""Whose names the columns get that nobody named: `ksql_col_0`, …, or those of this module."""
NAMELESS: Final = "?column?"
_TYPES: Final = {
    DType.BOOLEAN: "bool",
    DType.INT: "int4",
    DType.BIGINT: "int8",
    DType.DOUBLE: "float8",
    DType.DECIMAL: "numeric",
    DType.VARCHAR: "text",
    DType.VARBINARY: "bytea",
}
"""PostgreSQL's own names where they are not the language's in small letters."""
_CALLS: Final = {
    "INSTR": "position",
    **dict.fromkeys(("JSON_GET", "JSON_GET_TEXT", "JSON_PATH", "JSON_PATH_TEXT", "REGEXP_LIKE"), ""),
}
"""PostgreSQL's names of calls that are written in another way there; its operators have none."""
_OWN: Final[dict[type[exp.Expr], Callable[[exp.Expr], str]]] = {
    exp.Alias: lambda node: node.alias,
    exp.Column: lambda node: node.name,
    exp.Dot: lambda node: str(node.args["expression"].name),
    exp.Anonymous: lambda node: _CALLS.get(node.name, node.name.lower()),
    exp.Array: lambda _: "array",
    exp.Exists: lambda _: "exists",
    exp.WithinGroup: lambda node: node.this.name.lower(),
}
"""What has a name of its own."""
_AROUND: Final = (exp.Paren, exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Bracket)
"""What stands around a value without giving it another name."""


def column_name(node: exp.Expr) -> str:
    """The name of an item of a SELECT list without AS."""
    return _named(node)[0] or NAMELESS


def _named(node: exp.Expr) -> tuple[str, bool]:
    """A name, empty if there is none, and whether it is a name of its own: those of CASE and of types are put aside for
    that of what is inside."""
    if type(node) in _OWN:
        name = _OWN[type(node)](node)
        return name, name != ""
    match node:
        case exp.Subquery() if isinstance(node.this, exp.Query) and node.this.selects:
            return _named(node.this.selects[0])
        case exp.Case():
            return _or_else(node.args.get("default"), "case")
        case exp.Cast() | exp.TryCast():
            kind = node.to.this
            return _or_else(node.this, _TYPES.get(kind, str(getattr(kind, "value", kind)).lower()))
        case exp.Boolean():
            return "bool", False
        case _ if isinstance(node, _AROUND):
            return _named(node.this)
        case _:
            return "", False


def _or_else(inner: exp.Expr | None, name: str) -> tuple[str, bool]:
    """The name of what is inside if it has one of its own, else this one."""
    found, own = _named(inner) if inner is not None else ("", False)
    return (found, True) if own else (name, False)
