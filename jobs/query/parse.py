"""Statements as a session takes them: the language, and joins in the queries that DuckDB answers.

A view reads one stream or table, because only that is maintained yet; the grammar says so where the join stands. A
pull query is answered from scratch, so nothing keeps it from joining.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.tokenizer_core import Token, TokenType

from jobs.sql.dialect import Strandline, syntax_error, tokenize
from jobs.sql.grammar import Grammar
from jobs.sql.syntax import Statement


class SessionGrammar(Grammar):
    """The grammar of statements, with joins allowed in a SELECT that stands alone."""

    joins_allowed = False

    def _select(self) -> Statement:
        self.joins_allowed = True
        try:
            return super()._select()
        finally:
            self.joins_allowed = False

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        if self.joins_allowed:
            return super(Strandline.Parser, self)._parse_join(*args, **kwargs)
        return super()._parse_join(*args, **kwargs)


def parse(text: str) -> list[Statement]:
    """The statements of `text`, in order.

    Raises:
        SqlSyntaxError: line and column are those of the whole text. No statement is returned then.
        UnknownName, TypeMismatch: a type that is not there.
        NotSupported: a clause that Strandline knows of and does not maintain yet.
    """
    grammar = SessionGrammar(error_level=ErrorLevel.IMMEDIATE, dialect=Strandline)
    statements = []
    for tokens in chunks(tokenize(text)):
        try:
            statements.append(grammar.statement(tokens, text))
        except ParseError as error:
            raise syntax_error(error) from error
    return statements


def chunks(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each statement, without the semicolons."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return [chunk for chunk in found if chunk]
