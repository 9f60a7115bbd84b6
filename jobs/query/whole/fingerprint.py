"""The fingerprint of a query: a hash of everything that its rows depend on, except its inputs' rows.

Texts with the same meaning have the same fingerprint: `SELECT r.a FROM readings r` and `select A from readings`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from sqlglot import exp

from strandline.jobs.model.hashed_names import field_name, plain_text
from strandline.jobs.model.view_options import Semantics
from strandline.jobs.query.logical.query import Block, Query
from strandline.jobs.sql.dialect import sql_of


def fingerprint(query: Query, semantics: Semantics = "sql") -> str:
    """16 hex digits that change when the rows of the query do: with its meaning, and with the inputs' columns."""
    text = f"{semantics}\n{_text(query, {})}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(value: Any, names: Mapping[str, str]) -> str:
    """Any part of a logical query as text; `names` maps the inputs' aliases to the names in the text."""
    if isinstance(value, Block):
        names = {each.alias: f"i{number}" for number, each in enumerate(value.inputs)}
    if isinstance(value, exp.Expression):
        return _expression(value, names)
    if is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in fields(value)]
        inner = ", ".join(
            f"{field_name(value, name)}={_text(part, names)}"
            for name, part in parts
            if name not in ("alias", "unseen_key")
        )
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple):
        return f"[{', '.join(_text(part, names) for part in value)}]"
    return plain_text(value)


def _expression(node: exp.Expression, names: Mapping[str, str]) -> str:
    made = node.copy()
    for column in made.find_all(exp.Column):
        if column.table in names:
            column.set("table", exp.to_identifier(names[column.table]))
    return sql_of(made)
