"""Trees of single expressions, as tests write them; the product reads whole statements and queries."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.sql.dialect import Strandline, fold
from strandline.jobs.sql.from_text import parse_rule


def parse_expression(text: str) -> exp.Expression:
    """One expression, names folded.

    Raises:
        SqlSyntaxError: it is not an expression of the language.
    """
    tree = parse_rule(text, Strandline.Parser._parse_disjunction)
    assert isinstance(tree, exp.Expression)
    return fold(tree)


def parse_select(text: str) -> exp.Select:
    """One SELECT, names folded.

    Raises:
        SqlSyntaxError: it cannot be parsed.
    """
    tree = parse_rule(text, Strandline.Parser.select_rule)
    assert isinstance(tree, exp.Select)
    return fold(tree)
