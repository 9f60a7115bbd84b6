"""The clock in a pull query: NOW(), CURRENT_DATE and their like are the moment at which the query was read.

Every one of a query is the same moment, so that its parts fit together. No view can use them: a view gives the same
rows of the same tables whenever it is computed. A column, or a name that the query gives, hides the words.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Final, TypeVar

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.query.pulled.column_names import Unnamed
from strandline.jobs.sql.trees import identifier
from strandline.jobs.sql.types_text import data_type

_INSTANT: Final = "%Y-%m-%d %H:%M:%S.%f"
_MOMENTS: Final = {
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "GETDATE"), (t.TIMESTAMP, _INSTANT)),
    **dict.fromkeys(("TRANSACTION_TIMESTAMP", "STATEMENT_TIMESTAMP", "CLOCK_TIMESTAMP"), (t.TIMESTAMP, _INSTANT)),
    "CURRENT_DATE": (t.DATE, "%Y-%m-%d"),
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), (t.TIME, "%H:%M:%S")),
}
"""{name: type and form of the moment}."""
_WORDS: Final = ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME")
"""Those that stand without brackets."""
E = TypeVar("E", bound=exp.Expr)


def with_clock(tree: E, columns: Collection[str], moment: dt.datetime, unnamed: Unnamed) -> E:
    """The query with the moment, in UTC, in the place of the clock's functions. In place.

    Args:
        columns: names of the relations' columns.
    """
    hidden = {*columns, *(node.alias for node in tree.find_all(exp.Alias, exp.TableAlias) if node.alias)}
    hidden |= {each.name for node in tree.find_all(exp.TableAlias) for each in node.columns}
    for node in list(tree.find_all(exp.Anonymous, exp.Column)):
        name = _asked(node, hidden)
        if name is None:
            continue
        sql_type, form = _MOMENTS[name]
        made: exp.Expr = exp.Cast(this=exp.Literal.string(moment.strftime(form)), to=data_type(sql_type))
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions" and unnamed == "postgres":
            made = exp.Alias(this=made, alias=identifier(name.lower()))
        made.meta.update(node.meta)
        node.replace(made)
    return tree


def _asked(node: exp.Expr, hidden: Collection[str]) -> str | None:
    """The name of the function that a node is; None for any other node."""
    name = node.name.upper()
    if name not in _MOMENTS:
        return None
    if isinstance(node, exp.Column):
        return name if not node.table and name in _WORDS and name.lower() not in hidden else None
    return name if all(isinstance(each, exp.Literal) for each in node.expressions) else None
