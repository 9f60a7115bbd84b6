"""Statements from the names that people say to those that are stored, and the texts of definitions with other names.

    SELECT sold.n FROM sold          SELECT sold.n FROM by_shop AS sold
    DROP TABLE sold                  DROP TABLE by_shop

Whatever takes a statement from outside does this once, before anything looks a name up. A relation keeps what it was
called as its alias, so that columns which say its name still mean it, and `SELECT *` of a join names its columns alike.

In the text of a definition, or of its query, the rest stays as it was typed.

    CREATE TABLE large AS SELECT * FROM by_shop WHERE n > 1       sold in the place of by_shop:
    CREATE TABLE large AS SELECT * FROM sold WHERE n > 1

Where the columns of the text say a relation's name, or are named by it, the relation keeps it as its alias.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.catalog.name_map import NameMap
from strandline.jobs.catalog.plain_views import expanded, parts_of_with, relations_in
from strandline.jobs.model.errors import InvalidQuery, NameTaken, SqlError, UnknownName
from strandline.jobs.sql.dialect import position_of, quote
from strandline.jobs.sql.from_text import tokenize
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import (
    AlterSource,
    CreateSource,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    InsertSelect,
    InsertValues,
    Rename,
    Statement,
    Swap,
    Update,
)
from strandline.jobs.sql.trees import identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlglot.tokenizer_core import Token

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.catalog.definitions import Definitions
    from strandline.jobs.model.types import SqlType


S = TypeVar("S", bound=Statement)

_NAMED = (CreateSource, CreateView, AlterSource, Rename, Swap, Drop, Describe, Explain)
_DEFINING = (CreateSource, CreateView, AlterSource, InsertSelect)
_TARGETED = (InsertValues, InsertSelect, Delete, Update)


def stored_statement(statement: S, name_map: NameMap, types: Mapping[str, SqlType] | None = None) -> S:
    """The statement with the names that definitions are stored under, for those by which it calls them.

    Args:
        types: those that CREATE TYPE named, for the text of a definition.

    Raises:
        UnknownName: it says the former name of a definition that is called otherwise now.
        NameTaken: it would create something under such a name.
        InvalidQuery: a part of its WITH has the name under which a relation is stored that it reads by another.
    """
    if not name_map.names:
        return statement
    changed: dict[str, Any] = {}
    if isinstance(statement, _NAMED) and statement.name is not None:
        changed["name"] = _name(statement, statement.name, name_map)
    if isinstance(statement, _TARGETED):
        changed["target"] = name_map.stored(statement.target, line=statement.line, column=statement.column)
    if isinstance(statement, Swap):
        changed["other"] = name_map.stored(statement.other, line=statement.line, column=statement.column)
    query: exp.Query | None = getattr(statement, "query", None)
    if query is not None:
        changed["query"] = _stored_query(query, name_map)
    if changed and isinstance(statement, _DEFINING):
        changed["sql"] = renamed_text(statement.sql, name_map.stored, types)
    return replace(statement, **changed) if changed else statement


def as_stored(statement: S, catalog: Definitions) -> S:
    """A statement from outside over the relations that are stored: by their stored names, without plain views.

    Raises:
        UnknownName, NameTaken, InvalidQuery: as of `stored_statement`.
        NotSupported: as of `expanded`.
    """
    return expanded(stored_statement(statement, catalog.name_map), catalog)


def _name(statement: Statement, name: str, name_map: NameMap) -> str:
    said_again = isinstance(statement, Rename) and name_map.names.get(name) == statement.following
    if said_again and not name_map.is_called(name):
        return name  # it has the name already
    try:
        return name_map.stored(name, line=statement.line, column=statement.column)
    except UnknownName as error:
        if not isinstance(statement, CreateSource | CreateView):
            raise
        now = name_map.of(name)
        raise NameTaken(
            f"`{name}` is called '{now}' now, and still stored under its former name",
            line=error.line,
            column=error.column,
            hint=f"write CREATE … {now}, which is there already; or take another name for something new",
        ) from None


def _stored_query(query: exp.Query, name_map: NameMap) -> exp.Query:
    made = query.copy()
    for table, name in list(relations_in(made)):
        line, column = position_of(name)
        said, stored = name.name, name_map.stored(name.name, line=line, column=column)
        if stored == said:
            continue
        if stored in parts_of_with(table):
            raise InvalidQuery(
                f"`{stored}` is a part of WITH, and the name under which '{said}' is stored",
                line=line,
                column=column,
                hint="give the part of WITH another name",
            )
        if not table.alias:
            table.set("alias", _alias(table, said))
        name.replace(identifier(stored))
    return made


def _alias(table: exp.Table, name: str) -> exp.TableAlias:
    """The alias under which a relation is called as it was; one with names for columns keeps them."""
    given = table.args.get("alias")
    made = given.copy() if isinstance(given, exp.TableAlias) else exp.TableAlias()
    made.set("this", identifier(name))
    return made


_DEFINING_WORDS = ("CREATE", "INSERT", "ALTER")
_KINDS = ("STREAM", "TABLE", "VIEW", "INTO")
"""The last word before the name that a statement defines or inserts into; the first of these in it."""


class _Edit(NamedTuple):
    """What takes the place of the characters from `start` up to and including `end`."""

    start: int
    end: int
    text: str


def renamed_text(sql: str, other: Callable[[str], str], types: Mapping[str, SqlType] | None = None) -> str:
    """The text of a definition's statements with `other(name)` for each name of a relation.

    Args:
        types: those that CREATE TYPE named. Of a text that says one which is gone only the definition gets its name.
    """
    tokens = tokenize(sql)
    edits = list(_of_targets(tokens, other))
    with suppress(SqlError):
        edits += _of_relations(parse(sql, types), other, tokens)
    # What stands for several SELECTs, such as UNPIVOT, has the same place in each.
    for edit in sorted(set(edits), reverse=True):
        sql = sql[: edit.start] + edit.text + sql[edit.end + 1 :]
    return sql


def shown_text(sql: str, catalog: Catalog) -> str:
    """The text of a definition, or of its query, as people are shown it: with the names that relations have now."""
    return renamed_text(sql, catalog.name_map.of, catalog.types) if catalog.name_map.names else sql


def _of_targets(tokens: Sequence[Token], other: Callable[[str], str]) -> Iterator[_Edit]:
    for each in _split(tokens):
        target = _target(each)
        if target is not None:
            said = target.text if target.token_type == TokenType.IDENTIFIER else target.text.lower()
            if other(said) != said:
                yield _Edit(target.start, target.end, quote(other(said)))


def _of_relations(
    statements: Sequence[Statement], other: Callable[[str], str], tokens: Sequence[Token]
) -> Iterator[_Edit]:
    for statement in statements:
        query: exp.Query | None = getattr(statement, "query", None)
        if query is not None:
            for table, name in relations_in(query):
                if other(name.name) != name.name:
                    yield from _of_relation(table, name, other(name.name), tokens)


def _of_relation(table: exp.Table, name: exp.Identifier, following: str, tokens: Sequence[Token]) -> Iterator[_Edit]:
    """The edits at one place in FROM; an alias that says what the relation is called by now goes."""
    start, end = int(name.meta["start"]), int(name.meta["end"])
    alias = table.args.get("alias")
    if alias is not None and table.this is name and table.alias == following and not alias.args.get("columns"):
        end = int(alias.this.meta["end"])
    yield _Edit(start, end, quote(following))
    if alias is None and _needs_its_name(table, name.name):
        after = end if table.this is name else _closing(tokens, start)
        yield _Edit(after + 1, after, f" AS {quote(name.name)}")


def _needs_its_name(table: exp.Table, name: str) -> bool:
    """True if columns of the query may say the name of a relation, or be named by it."""
    clause = table.parent
    select = clause.parent if isinstance(clause, exp.From) else None
    joined = isinstance(clause, exp.Join) or (select is not None and bool(select.args.get("joins")))
    return joined or any(column.table == name for column in table.root().find_all(exp.Column))


def _closing(tokens: Sequence[Token], start: int) -> int:
    """Where the bracket ends in which the name at `start` is."""
    depth = 0
    for token in tokens:
        if token.start > start:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if depth < 0:
                return int(token.end)
    return start


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each statement."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return found


def _target(tokens: Sequence[Token]) -> Token | None:
    """The name that a statement defines or inserts into: it follows the words that the statement begins with."""
    words = [token.text.upper() for token in tokens]
    if words and words[0] not in _DEFINING_WORDS:
        return None
    at = next((number + 1 for number, word in enumerate(words) if word in _KINDS), len(words))
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    return tokens[at] if at < len(tokens) else None
