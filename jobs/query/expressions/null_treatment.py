"""IGNORE NULLS and RESPECT NULLS, taken off a call: they are written inside of it or after it.

FIRST_VALUE(x IGNORE NULLS ORDER BY y)      FIRST_VALUE(x ORDER BY y), and True
FIRST_VALUE(x) IGNORE NULLS                 FIRST_VALUE(x), and True
FIRST_VALUE(x RESPECT NULLS)                FIRST_VALUE(x), and False: so it does by itself
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.sql.dialect import position_of

_WORDS = exp.IgnoreNulls | exp.RespectNulls
_TAKERS = ("FIRST_VALUE", "LAST_VALUE")
OVER_ROWS = _TAKERS
"""The functions OVER a window for which NULLs are values unless they are ignored."""
OVER_GROUPS = (*_TAKERS, "ARRAY_AGG", "COLLECT_LIST")
"""The aggregates for which NULLs are values unless they are ignored."""


def without_words(node: exp.Expression, takers: tuple[str, ...]) -> tuple[exp.Expression, bool]:
    """A call, perhaps with FILTER, without the words; and True if it ignores NULLs. Any other node stays as it is.

    Raises:
        InvalidQuery: the words stand with a function that is not among `takers`.
    """
    inner, ignores = (node.this, isinstance(node, exp.IgnoreNulls)) if isinstance(node, _WORDS) else (node, None)
    call = inner.this if isinstance(inner, exp.Filter) else inner
    found = _inside(call) if isinstance(call, exp.Anonymous) else []
    if ignores is None and not found:
        return node, False
    if not isinstance(call, exp.Anonymous) or call.name not in takers:
        line, column = position_of(call)
        raise InvalidQuery(
            "IGNORE NULLS and RESPECT NULLS do not belong here",
            line=line,
            column=column,
            hint=f"they are for {', '.join(takers)}",
        )
    copied: exp.Expression = inner.copy()
    for words in _inside(copied.this if isinstance(copied, exp.Filter) else copied):
        words.replace(words.this)
    return copied, bool(ignores) or any(isinstance(words, exp.IgnoreNulls) for words in found)


def value_of(call: exp.Expr) -> exp.Expression:
    """The value that a call without the words is about: its first argument.

    Raises:
        InvalidQuery: it has none.
    """
    first = call.expressions[0] if call.expressions else None
    value = first.this if isinstance(first, exp.Order) else first
    if not isinstance(value, exp.Expression) or isinstance(value, exp.Distinct):
        line, column = position_of(call)
        raise InvalidQuery(
            "IGNORE NULLS is about one value", line=line, column=column, hint="ARRAY_AGG(x IGNORE NULLS)"
        )
    return value


def _inside(call: exp.Expr) -> list[exp.Expr]:
    """The words inside a call: around an argument, or around the value in its order."""
    parts = [part for each in call.expressions for part in (each, each.this if isinstance(each, exp.Order) else None)]
    return [part for part in parts if isinstance(part, _WORDS)]
