"""Statements as a session takes them: the language, and joins in the queries that DuckDB answers.

A view reads one stream or table, because only that is maintained yet; the grammar says so where the join stands. A
pull query is answered from scratch, so nothing keeps it from joining.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from jobs.sql import statements
from jobs.sql.dialect import Strandline
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
    """`jobs.sql.statements.parse` by the grammar of sessions."""
    return statements.parse(text, SessionGrammar)
