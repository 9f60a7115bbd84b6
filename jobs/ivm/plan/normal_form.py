"""The normal form of a stage, by which equal stages are recognized and built once.

Left out are the table's name, the names of the inputs' aliases, and what follows from the rest: the late rows, and
whether rows are repeated for their groups. Everything else is written down as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from sqlglot import exp

from strandline.jobs.model.stage import Stage, inputs_of
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.logical import class_name, field_name, plain_text
from strandline.jobs.sql.dialect import sql_of

_HEX = 12
"""Digits of a hash in a table's name: two of a million stages have one hash by chance in one of 500 lakes."""

_OF_TABLE = ("table", "late")
"""Left out of the stage itself."""
_LEFT_OUT = ("repeated",)
"""Left out wherever it stands."""


def digest_of(stage: Stage, *context: str) -> str:
    """The hash of a stage's normal form: stages with one hash hold equal rows.

    Args:
        context: what else must be equal, such as the pipeline.
    """
    aliases = {each.alias: f"i{place}" for place, each in enumerate(inputs_of(stage))}
    text = "\n".join([*context, *_parts(stage, aliases, top=True)])
    return hashlib.sha256(text.encode()).hexdigest()[:_HEX]


def _parts(value: object, aliases: Mapping[str, str], *, top: bool = False) -> Iterator[str]:
    if isinstance(value, exp.Expr):
        tree = value.copy()
        for column in tree.find_all(exp.Column):
            if column.table in aliases:
                column.set("table", exp.Identifier(this=aliases[column.table], quoted=False))
        yield sql_of(tree)
    elif isinstance(value, SqlType):
        yield str(value)
    elif is_dataclass(value):
        yield class_name(value)
        for each in fields(value):
            if each.name in _LEFT_OUT or (top and each.name in _OF_TABLE):
                continue
            inner = getattr(value, each.name)
            yield field_name(value, each.name)
            yield from (aliases[inner],) if each.name == "alias" else _parts(inner, aliases)
        yield "."
    elif isinstance(value, tuple):
        yield "("
        for item in value:
            yield from _parts(item, aliases)
        yield ")"
    else:
        yield plain_text(value)
