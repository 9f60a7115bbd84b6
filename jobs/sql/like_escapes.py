"""LIKE's escape: the backslash, as in PostgreSQL, MySQL and Spark, unless `ESCAPE` names another.

    name LIKE '10\\%'      name LIKE '10\\%' ESCAPE '\\'

It is written out where a statement is read, so that whatever comes after knows one form. In the text of a view that an
earlier version stored, a LIKE without `ESCAPE` has none: a backslash in its pattern is a character as others.
"""

from __future__ import annotations

from typing import Final, TypeVar

from sqlglot import exp

BACKSLASH: Final = "\\"
E = TypeVar("E", bound=exp.Expr)


def with_escapes(tree: E) -> E:
    """The tree, changed: each LIKE whose pattern has, or may have, a backslash names it as its escape."""
    for like in list(tree.find_all(exp.Like)):
        pattern = pattern_literal(like.expression)
        if isinstance(like.parent, exp.Escape) or (pattern is not None and BACKSLASH not in pattern.name):
            continue
        made = exp.Escape(this=like.copy(), expression=exp.Literal.string(BACKSLASH))
        made.meta.update(like.meta)
        like.replace(made)
    return tree


def pattern_literal(pattern: exp.Expr) -> exp.Literal | None:
    """The literal that a pattern is, that of ILIKE inside its LCASE; None for any other."""
    if isinstance(pattern, exp.Anonymous) and pattern.name == "LCASE":
        (pattern,) = pattern.expressions
    return pattern if isinstance(pattern, exp.Literal) and pattern.is_string else None
