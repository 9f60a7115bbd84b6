"""The grammar of DELETE and UPDATE, as rules over sqlglot's parser."""

from __future__ import annotations

from typing import Any, cast

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from jobs.sql.clauses import Clauses
from jobs.sql.dialect import fold
from jobs.sql.read_arguments import check_read
from jobs.sql.syntax import Delete, Update

_KEYS = "expected WHERE and the keys: WHERE id = 1, or WHERE id IN (1, 2)"


class ChangeClauses(Clauses):
    """The rules for the text that follows DELETE and UPDATE."""

    def _delete(self) -> Delete:
        self._expect("FROM")
        target = self._name("the name of a table")
        return Delete(target=target, where=self._keys())

    def _update(self) -> Update:
        target = self._name("the name of a table")
        self._expect("SET")
        assignments = cast(list[tuple[str, exp.Expression]], self._parse_csv(cast(Any, self._assignment)))
        return Update(target=target, assignments=tuple(assignments), where=self._keys())

    def _assignment(self) -> tuple[str, exp.Expression]:
        name = self._name("the name of a column")
        self._punctuation(TokenType.EQ, "= after the name of the column")
        return name, self._value("a value")

    def _keys(self) -> exp.Expression:
        if not self._match(TokenType.WHERE):
            self.raise_error(_KEYS)
        return self._value("a condition")

    def _value(self, what: str) -> exp.Expression:
        tree = self._parse_disjunction()
        if not isinstance(tree, exp.Expression):
            self.raise_error(f"expected {what}")
        found = cast(exp.Expression, tree)
        check_read(found)
        return fold(found)
