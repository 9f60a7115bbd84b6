"""The grammar of CREATE FUNCTION and CREATE TYPE, as rules over sqlglot's parser."""

from __future__ import annotations

from typing import Any, cast

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.sql.clauses import Clauses
from strandline.jobs.sql.syntax import CreateFunction, CreateType, DeclaredColumn, DropType
from strandline.jobs.sql.types_text import data_type, is_type_name, type_of


class FunctionClauses(Clauses):
    """The rules for the text that follows CREATE [OR REPLACE] when it creates a function."""

    def _is_function(self) -> bool:
        return bool(self._match_texts(("FUNCTION", "AGGREGATE"), advance=False))

    def _create_function(self, *, or_replace: bool) -> CreateFunction:
        aggregate = bool(self._match_text_seq("AGGREGATE"))
        self._expect("FUNCTION")
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        name = self._name("the name of the function").upper()
        self._punctuation(TokenType.L_PAREN, "( before the parameters")
        parameters: list[DeclaredColumn] = []
        if not self._match(TokenType.R_PAREN):
            parameters = cast(list[DeclaredColumn], self._parse_csv(cast(Any, self._parameter)))
            self._punctuation(TokenType.R_PAREN, ", or ) after a parameter")
        self._expect("RETURNS")
        start = self._curr
        tree = self._parse_types()
        if tree is None:
            self.raise_error("expected a type after RETURNS", start)
        self._expect("LANGUAGE")
        if not self._match_text_seq("PYTHON"):
            raise self._refuse("functions are written in PYTHON", hint="LANGUAGE PYTHON AS 'module:name'")
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS 'module:name'")
        return CreateFunction(
            name=name,
            parameters=tuple(parameters),
            returns=type_of(cast(exp.Expression, tree), at=start),
            code=self._text("'module:name'"),
            aggregate=aggregate,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )

    def _create_type(self) -> CreateType:
        """The rest of CREATE TYPE; from here on, its name stands for the type in this text."""
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        at = self._curr
        name = self._name("the name of the type")
        if is_type_name(name):
            self.raise_error(f"{name.upper()} is a type of the language: it cannot stand for another one", at)
        self._punctuation(TokenType.ALIAS, "AS and a type")
        start = self._curr
        tree = self._parse_types()
        if tree is None:
            self.raise_error("expected a type after AS", start)
        named = type_of(cast(exp.Expression, tree), at=start)
        if not (if_not_exists and name in self.named_types):
            self.named_types = {**self.named_types, name: data_type(named)}
        return CreateType(name=name, type=named, if_not_exists=if_not_exists)

    def _drop_type(self, *, if_exists: bool) -> DropType:
        """The rest of DROP TYPE; from here on, the name stands for no type in this text."""
        name = self._name("the name of a type")
        self.named_types = {known: tree for known, tree in self.named_types.items() if known != name}
        return DropType(name=name, if_exists=if_exists)

    def _parameter(self) -> DeclaredColumn:
        column = self._declared_column()
        if column.key is not None or column.header is not None:
            self.raise_error("a parameter is no column of a record", self._prev)
        return column
