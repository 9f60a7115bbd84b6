"""The text of a definition, or of its query, with other names for relations; the rest of it stays as it was typed.

    CREATE TABLE large AS SELECT * FROM by_shop WHERE n > 1       sold in the place of by_shop:
    CREATE TABLE large AS SELECT * FROM sold WHERE n > 1

Where the columns of the text say a relation's name, or are named by it, the relation keeps it as its alias.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.catalog.named_relations import relations_in
from strandline.jobs.model.errors import SqlError
from strandline.jobs.sql.dialect import quote
from strandline.jobs.sql.from_text import tokenize
from strandline.jobs.sql.statements import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlglot.tokenizer_core import Token

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.sql.syntax import Statement

_DEFINING = ("CREATE", "INSERT", "ALTER")
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
    if words and words[0] not in _DEFINING:
        return None
    at = next((number + 1 for number, word in enumerate(words) if word in _KINDS), len(words))
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    return tokens[at] if at < len(tokens) else None
