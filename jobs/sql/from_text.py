"""From text to trees: tokens, one query, and whatever else a single rule of the parser reads.

Statements are read by `jobs.sql.statements`. The other direction is `sql_of` in `jobs.sql.dialect`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import NotSupported, SqlSyntaxError
from strandline.jobs.sql.dialect import Strandline, fold
from strandline.jobs.sql.read_arguments import check_read
from strandline.jobs.sql.size import balanced

# PostgreSQL's $$it's$$ and $tag$…$tag$; $1 is a parameter.
_DOLLARS: Final = re.compile(r"(?<![\w$])\$([A-Za-z_]\w*)?\$")


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`.

    Raises:
        SqlSyntaxError: a quote or comment is not closed.
        NotSupported: a text stands between dollars.
    """
    try:
        found = Strandline().tokenize(text)
    except TokenError as error:
        if _DOLLARS.search(text):
            raise _dollar_quoted(text) from error
        line = text.count("\n") + 1
        column = len(text) - (text.rfind("\n") + 1) + 1
        raise SqlSyntaxError(
            "the text ends inside a quoted string, name or comment",
            line=line,
            column=column,
            hint="close it; a quote inside a string is written twice: 'it''s'",
        ) from error
    if any(
        each.text.startswith("$") and _DOLLARS.match(each.text) for each in found if each.token_type is TokenType.VAR
    ):
        raise _dollar_quoted(text)
    return found


def _dollar_quoted(text: str) -> NotSupported:
    begin = _DOLLARS.search(text)
    before = text[: begin.start()] if begin is not None else ""
    return NotSupported(
        "a text between $$ is not supported",
        line=before.count("\n") + 1,
        column=len(before) - before.rfind("\n"),
        hint="a text stands in single quotes, and a quote in it is written twice: 'it''s'",
    )


def syntax_error(error: ParseError) -> SqlSyntaxError:
    """sqlglot's complaint as ours."""
    first = error.errors[0] if error.errors else {}
    marked = str(first.get("highlight") or "")
    line, column = first.get("line"), first.get("col")
    message = str(first.get("description") or error).strip()
    if message.startswith("Invalid expression"):
        message = f"'{marked}' is not expected here"
    elif message.startswith("Required "):
        message = f"the expression is not complete at '{marked}'"
    if isinstance(line, int) and isinstance(column, int):
        return SqlSyntaxError(message, line=line, column=max(column - len(marked) + 1, 1))
    return SqlSyntaxError(message)


def parse_query(text: str) -> exp.Query:
    """One query, names folded: what `sql_of` wrote for a view's query.

    Raises:
        SqlSyntaxError: it is not a query.
        NotSupported: an older version took a clause and ignored it.
    """
    tree = parse_rule(text, Strandline.Parser.select_rule)
    if not isinstance(tree, exp.Query):
        raise SqlSyntaxError("expected a SELECT", line=1, column=1)
    fold(tree)
    check_read(tree)
    return balanced(tree)


def parse_rule(text: str, rule: Any) -> exp.Expr:
    """The tree that one rule of the parser makes of the whole of `text`.

    Raises:
        SqlSyntaxError: it is something else, or more.
    """
    reader = Strandline.Parser(error_level=ErrorLevel.IMMEDIATE, dialect=Strandline)
    try:
        trees = reader._parse(rule, tokenize(text), text)  # noqa: SLF001 - the way in for a rule of one's own
    except ParseError as error:
        raise syntax_error(error) from error
    if len(trees) != 1 or trees[0] is None:
        raise SqlSyntaxError(f"cannot read '{text}'", line=1, column=1)
    return trees[0]
