"""Casts and types of PostgreSQL in queries over the system catalog, as DuckDB's.

'by_town'::regclass     pgf.regclass('by_town')
c.relacl::text[]        CAST(c.relacl AS TEXT[])
'{a,b}'::text[]         CAST(['a', 'b'] AS TEXT[])
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from strandline.jobs.server.pg_catalog.parts import FUNCTIONS
from strandline.jobs.server.pg_values.array_text import array_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEXTS: Final = frozenset(
    (
        *("name", "char", "cstring", "xid", "aclitem", "sql_identifier"),
        *("regprocedure", "regoper", "regoperator", "regconfig", "regdictionary"),
    )
)
_NUMBERS: Final = frozenset(("oid", "cid"))
_ARRAY_OF: Final = re.compile(r"::\s*(?:pg_catalog\.)?(oid|regclass|regtype|name)\s*\[\s*\]", re.I)
"""A cast to an array of a type that sqlglot does not know."""
_KEYWORD_NAME: Final = re.compile(r"\bAS\s+(SELECT|INSERT|UPDATE|DELETE)\b(?=\s*(?:,|\)|FROM\b))", re.I)
_OBJECTS: Final = {
    "regclass": ("regclass", "relation_name"),
    "regproc": ("regproc", "function_name"),
    "regnamespace": ("", "schema_name"),
    "regrole": ("", "pg_get_userbyid"),
}
"""{type: the functions from a text to an oid, and back to a text}."""


def readable(text: str) -> str:
    """The text as sqlglot reads it: `_oid`, PostgreSQL's other name of `oid[]`, and quotes around `AS select`."""
    return _KEYWORD_NAME.sub(lambda found: f'AS "{found[1].lower()}"', _ARRAY_OF.sub(r"::_\1", text))


def cast_around(parameter: exp.Expr) -> str:
    """The type that stands around a parameter, as PostgreSQL writes it; empty where none does."""
    above = parameter.parent
    if isinstance(above, exp.Cast):
        return above.to.sql("postgres").lower()
    within = above.parent if isinstance(above, exp.Paren) else above
    return "text[]" if isinstance(within, exp.Any | exp.All) else ""


def translated_cast(cast: exp.Cast) -> exp.Expr:
    """A cast as DuckDB has it."""
    if cast.to.is_type(exp.DType.ARRAY) and cast.this.is_string:
        elements = [exp.null() if each is None else exp.Literal.string(each) for each in array_elements(cast.this.name)]
        return exp.cast(exp.Array(expressions=elements), cast.to)
    schema, _, name = cast.to.sql("postgres").lower().rpartition(".")
    name = name.strip('"')
    if name.startswith("_"):
        element = "text" if name in ("_name", "_text") else "bigint"
        return exp.cast(cast.this, f"{element}[]", dialect="postgres")
    if name in _TEXTS:
        return exp.cast(cast.this, "text")
    if name in _NUMBERS:
        return exp.cast(cast.this, "bigint")
    if name in _OBJECTS:
        to_oid, to_text = _OBJECTS[name]
        return call(to_oid if cast.this.is_string and to_oid else to_text, [cast.this])
    if name == "regtype":
        arguments = [cast.this] if cast.this.is_string else [cast.this, exp.null()]
        return call("to_regtype" if cast.this.is_string else "format_type", arguments)
    return exp.cast(cast.this, name, dialect="postgres") if schema else cast


def call(name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    """A call of one of our functions."""
    made = exp.Anonymous(this=name, expressions=list(arguments))
    return exp.Dot(this=exp.to_identifier(FUNCTIONS), expression=made)
