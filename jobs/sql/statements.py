"""The entry point of the parser: `parse` turns text into statements.

The statements themselves are in `jobs.sql.syntax`, and can be imported from here.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import SqlSyntaxError
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.dialect import Strandline
from strandline.jobs.sql.from_text import data_type, syntax_error, tokenize
from strandline.jobs.sql.parser import Grammar, meant_before
from strandline.jobs.sql.size import too_deep
from strandline.jobs.sql.syntax import (
    AlterSource,
    CreateFunction,
    CreateSource,
    CreateType,
    CreateView,
    DeclaredColumn,
    Delete,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    DropType,
    Explain,
    InsertSelect,
    InsertValues,
    Option,
    Print,
    Rename,
    Select,
    SetProperty,
    Show,
    Statement,
    Swap,
    UnsetProperty,
    Update,
)
from strandline.state_store.errors import SettingsError

__all__ = (
    "AlterSource",
    "CreateFunction",
    "CreateSource",
    "CreateType",
    "CreateView",
    "DeclaredColumn",
    "Delete",
    "Describe",
    "DescribeFunction",
    "Drop",
    "DropFunction",
    "DropType",
    "Explain",
    "InsertSelect",
    "InsertValues",
    "Option",
    "Print",
    "Rename",
    "Select",
    "SetProperty",
    "Show",
    "Statement",
    "Swap",
    "UnsetProperty",
    "Update",
    "parse",
    "parse_one",
)


def parse(text: str, types: Mapping[str, SqlType] | None = None) -> list[Statement]:
    """The statements of `text`, in order; each ends with a semicolon, which the last one may lack.

    Args:
        types: those that CREATE TYPE named before; a statement of the text sees what earlier ones name, too.

    Raises:
        SqlSyntaxError: line and column are those of the whole text. No statement is returned then.
        UnknownName, TypeMismatch: a type that does not exist.
        NotSupported: a clause that Strandline knows of and does not maintain yet.
        SettingsError: sqlglot's compiled form is installed.
    """
    grammar = _grammar()
    grammar.named_types = {name: data_type(sql_type) for name, sql_type in (types or {}).items()}
    statements = []
    for tokens in _chunks(tokenize(text)):
        try:
            statements.append(grammar.statement(tokens, text))
        except ParseError as error:
            fault = syntax_error(error)
            fault.hint = fault.hint or meant_before(tokens, fault.line, fault.column)
            raise fault from error
        except RecursionError as error:
            raise too_deep(tokens[0].line, 1) from error
    return statements


def parse_one(text: str) -> Statement:
    """The only statement of `text`.

    Raises:
        SqlSyntaxError: there is none, or more than one; and as `parse`.
    """
    found = parse(text)
    if len(found) != 1:
        raise SqlSyntaxError(f"expected one statement, found {len(found)}", line=1, column=1)
    return found[0]


def _grammar() -> Grammar:
    try:
        return Grammar(error_level=ErrorLevel.IMMEDIATE, dialect=Strandline)
    except TypeError as error:
        # mypyc's classes have no subclasses in Python (sqlglot issue 7923), and whoever installs it means it for all.
        raise SettingsError(
            "sqlglot's compiled form cannot be extended, and is installed",
            where=str(error),
            hint="pip uninstall sqlglotc",
        ) from error


def _chunks(tokens: list[Token]) -> list[list[Token]]:
    chunks: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [chunk for chunk in chunks if chunk]
