"""The grammar of DELETE, UPDATE and ALTER, as rules over sqlglot's parser."""

from __future__ import annotations

from typing import Any, cast

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.model.definitions import Kind
from strandline.jobs.sql.clauses import Clauses
from strandline.jobs.sql.dialect import fold
from strandline.jobs.sql.read_arguments import check_read
from strandline.jobs.sql.syntax import AlterSource, DeclaredColumn, Delete, Rename, Update

_KEYS = "expected WHERE and the keys: WHERE id = 1, or WHERE id IN (1, 2)"

_CHANGES = ("DROP", "ALTER", "RENAME", "SET")
_BREAKING = "columns can be added; for another change DROP it with its views, and CREATE it again: docs/evolution.md"


class ChangeClauses(Clauses):
    """The rules for the text that follows DELETE, UPDATE and ALTER."""

    def _delete(self) -> Delete:
        self._expect("FROM")
        target = self._name("the name of a table")
        return Delete(target=target, where=self._keys())

    def _update(self) -> Update:
        target = self._name("the name of a table")
        self._expect("SET")
        assignments = cast(list[tuple[str, exp.Expression]], self._parse_csv(cast(Any, self._assignment)))
        return Update(target=target, assignments=tuple(assignments), where=self._keys())

    def _alter(self) -> AlterSource | Rename:
        materialized = self._match_text_seq("MATERIALIZED")
        if not self._match_texts(("VIEW",) if materialized else ("STREAM", "TABLE", "VIEW")):
            self.raise_error("expected STREAM, TABLE or MATERIALIZED VIEW after ALTER")
        what = self._prev.text.upper()
        if_exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self._name("the name of a stream, table or view")
        if self._match_text_seq("RENAME", "TO"):
            following = self._name("the name that it is to have")
            return Rename(what=cast(Any, what), name=name, following=following, if_exists=if_exists)
        if if_exists:
            self.raise_error("expected RENAME TO after IF EXISTS and the name")
        if what == "VIEW":
            refused = "the columns of a view are those of its query"
            raise self._refuse(refused, f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS SELECT …")
        if not self._match_texts(("ADD",), advance=False) and self._match_texts(_CHANGES, advance=False):
            raise self._refuse(f"ALTER … {self._curr.text.upper()} is not supported yet", _BREAKING)
        columns: list[DeclaredColumn] = []
        more = True
        while more:
            self._expect("ADD")
            self._match_text_seq("COLUMN")
            columns.append(self._declared_column())
            more = bool(self._match(TokenType.COMMA)) or self._match_texts(("ADD",), advance=False)
        return AlterSource(name=name, kind=cast(Kind, what.lower()), columns=tuple(columns))

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
