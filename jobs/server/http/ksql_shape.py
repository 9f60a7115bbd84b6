"""ksqlDB's spelling of names, types and schemas, for clients that were written for it.

ksqlDB folds names to upper case, we to lower: its clients get, and send, upper. A name that was quoted stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.model.relation import WINDOW_BOUNDS
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strandline.jobs.model.types import SqlType

_TYPES: Final = {BaseType.INT: "INTEGER", BaseType.VARCHAR: "STRING"}


def shown_name(name: str) -> str:
    """As ksqlDB shows it: one that was not quoted in upper case."""
    return name.upper() if name == name.lower() else name


def given_name(name: str) -> str:
    """As the parser folds it; a name in backquotes stays."""
    return name[1:-1] if name.startswith("`") and name.endswith("`") and len(name) > 2 else name.lower()


def shown_type(sql_type: SqlType) -> str:
    """A type as ksqlDB writes it."""
    match sql_type.base:
        case BaseType.ARRAY | BaseType.MAP:
            return f"{sql_type.base}<{', '.join(map(shown_type, sql_type.args))}>"
        case BaseType.STRUCT:
            fields = (f"`{shown_name(name)}` {shown_type(inner)}" for name, inner in sql_type.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return _TYPES.get(sql_type.base, str(sql_type))


def schema(names: Sequence[str], types: Sequence[SqlType], key: Collection[str] = ()) -> str:
    """The columns of an answer in one text.

    Args:
        key: those of the table's key; the bounds of its window belong to it.
    """
    marked = {*key, *WINDOW_BOUNDS} if key else ()
    columns = (
        f"`{shown_name(name)}` {shown_type(sql_type)}{' KEY' if name in marked else ''}"
        for name, sql_type in zip(names, types, strict=True)
    )
    return ", ".join(columns)
