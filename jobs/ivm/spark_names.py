"""Names of a text of Spark's, found without a JVM: the quick proof that each column which it names is there.

    WITH a AS (…), b AS (…) SELECT …        each part is read by itself, over the relations that it names, once

The rules of two views differ in a few of their parts, and sqlglot takes ten times as long to write every name of a text
out as it takes here to look each of them up. What is not proved here may be right nevertheless: `jobs.ivm.binding` then
asks sqlglot, which has the last word, and says what is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_Relation = tuple[str, ...]
"""The names of a relation's columns, as Spark compares them: in small letters, each once."""


def proved(text: str, relations: Mapping[str, Iterable[str]]) -> bool:
    """True if a text is of Spark's grammar, and each column that it names is one of a relation at that place.

    Args:
        relations: the columns of each relation that the text may read, by its name.
    """
    known = {name.lower(): _names(columns) for name, columns in relations.items()}
    try:
        for name, part in _parts(text):
            lowered = part.lower()
            read = tuple((each, columns) for each, columns in known.items() if each in lowered)
            known[name.lower()] = _columns_of(part, read)
    except _NotProved:
        return False
    return True


class _NotProved(Exception):
    """Something is not found, or is of a kind that is not looked into here."""


def _names(columns: Iterable[str]) -> _Relation:
    """The names that stand for one column."""
    counted = Counter(name.lower() for name in columns)
    return tuple(name for name, count in counted.items() if name and count == 1)


# A text's parts: its common table expressions, and what they are for.

_ASIDE: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|/\*.*?\*/|--[^\n]*"""
_BRACKETS: Final = re.compile(rf"{_ASIDE}|[()]", re.DOTALL)
_BEGINS: Final = re.compile(r"\s*(?:WITH|,)\s+([A-Za-z_]\w*)\s+AS\s+\(")


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Each common table expression with its name, then the query that they are for, without one."""
    at = 0
    while (begin := _BEGINS.match(text, at)) is not None:
        end = _closed(text, begin.end())
        yield begin[1], text[begin.end() : end]
        at = end + 1
    yield "", text[at:]


def _closed(text: str, at: int) -> int:
    """The place of the bracket that closes one opened before `at`."""
    depth = 1
    for found in _BRACKETS.finditer(text, at):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    raise _NotProved


@lru_cache(maxsize=2048)  # some megabytes
def _columns_of(text: str, relations: tuple[tuple[str, _Relation], ...]) -> _Relation:
    """The columns of a query.

    Raises:
        _NotProved: a column that it names is not there, or may not be.
    """
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        raise _NotProved from error
    return _query(tree, dict(relations), None)


# Names in a tree, where they can come from.


@dataclass(frozen=True)
class _Scope:
    """The relations that one SELECT reads, by their aliases; those of the SELECT that it stands in."""

    sources: Mapping[str, _Relation]
    outer: _Scope | None

    def check(self, column: exp.Column) -> None:
        """Find a column, or the one of which it is a field."""
        first, *rest = (part.name.lower() for part in column.parts)
        scope: _Scope | None = self
        while scope is not None:
            if rest and first in scope.sources:
                if rest[0] in scope.sources[first]:
                    return
                raise _NotProved
            found = sum(first in columns for columns in scope.sources.values())
            if found == 1:
                return
            if found:
                raise _NotProved
            scope = scope.outer
        raise _NotProved


def _query(tree: exp.Expr, relations: Mapping[str, _Relation], outer: _Scope | None) -> _Relation:
    """The columns of a query, whose names are all found. Raises _NotProved."""
    match tree:
        case exp.Select():
            return _names(_select(tree, relations, outer))
        case exp.Union():
            _only(tree, "this", "expression", "distinct")
            columns = _query(tree.this, relations, outer)
            _query(tree.expression, relations, outer)
            return columns
        case exp.Subquery():
            _only(tree, "this", "alias")
            return _query(tree.this, relations, outer)
        case _:
            raise _NotProved


_SELECTED: Final = (
    "expressions",
    "distinct",
    "hint",
    "kind",
    "from_",
    "joins",
    "laterals",
    "where",
    "group",
    "having",
    "order",
)
_NAMED_LATE: Final = frozenset(("group", "having", "order"))
"""Clauses in which a name may be that of a column which the SELECT gives."""


def _select(tree: exp.Select, relations: Mapping[str, _Relation], outer: _Scope | None) -> list[str]:
    _only(tree, *_SELECTED)
    scope = _read(tree, relations, outer)
    given = [name for each in tree.expressions for name in _given(each, scope)]
    for name in ("expressions", "distinct", "where", "group", "having", "order"):
        late = frozenset(each.lower() for each in given) if name in _NAMED_LATE else frozenset()
        parts = tree.args.get(name)
        for each in parts if isinstance(parts, list) else [parts]:
            _check(each, scope, relations, late)
    return given


def _read(tree: exp.Select, relations: Mapping[str, _Relation], outer: _Scope | None) -> _Scope:
    """What a SELECT reads. What a SEMI or ANTI join looks into, only its condition sees."""
    begin = tree.args.get("from_")
    sources: dict[str, _Relation] = {}
    if begin is not None:
        _only(begin, "this")
        _add(sources, *_source(begin.this, relations))
    for join in tree.args.get("joins") or ():
        _only(join, "this", "side", "kind", "on")
        seen = dict(sources)
        _add(seen, *_source(join.this, relations))
        _check(join.args.get("on"), _Scope(seen, outer), relations, frozenset())
        if join.kind not in ("SEMI", "ANTI"):
            sources = seen
    for lateral in tree.args.get("laterals") or ():
        _only(lateral, "this", "view", "outer", "alias")
        _check(lateral.this, _Scope(sources, outer), relations, frozenset())
        _add(sources, lateral.alias.lower(), _names(each.name for each in lateral.args["alias"].columns))
    return _Scope(sources, outer)


def _add(sources: dict[str, _Relation], alias: str, columns: _Relation) -> None:
    alias = alias or f"{len(sources)} without a name"
    if alias in sources:
        raise _NotProved
    sources[alias] = columns


def _source(tree: exp.Expr, relations: Mapping[str, _Relation]) -> tuple[str, _Relation]:
    """What stands in FROM or JOIN: its alias and its columns."""
    alias = tree.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise _NotProved
    if isinstance(tree, exp.Table):
        _only(tree, "this", "alias")
        name = tree.name.lower()
        if not isinstance(tree.this, exp.Identifier) or name not in relations:
            raise _NotProved
        return tree.alias_or_name.lower(), relations[name]
    if isinstance(tree, exp.Subquery):
        return tree.alias.lower(), _query(tree, relations, None)
    raise _NotProved


def _given(item: exp.Expr, scope: _Scope) -> list[str]:
    """The names of the columns that an item of a SELECT gives; of one without a name an empty one."""
    if isinstance(item, exp.Star):
        _only(item)
        return [name for columns in scope.sources.values() for name in columns]
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        _only(item.this)
        alias = item.table.lower()
        if alias not in scope.sources:
            raise _NotProved
        return [*scope.sources[alias]]
    return [item.alias_or_name]


def _check(
    tree: exp.Expr | None, scope: _Scope, relations: Mapping[str, _Relation], parameters: frozenset[str]
) -> None:
    """Find each column of an expression. Raises _NotProved.

    Args:
        parameters: the names that stand for something else: of the lambdas that the expression is in.
    """
    if tree is None:
        return
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Query):
            _query(node, relations, scope)
        elif isinstance(node, exp.Lambda):
            inside = parameters | {each.name.lower() for each in node.expressions}
            _check(node.this, scope, relations, inside)
        elif isinstance(node, exp.Column):
            _column(node, scope, parameters)
        else:
            waiting += node.iter_expressions()


def _column(column: exp.Column, scope: _Scope, parameters: frozenset[str]) -> None:
    if isinstance(column.this, exp.Star):
        if column.table.lower() not in scope.sources:
            raise _NotProved
    elif column.parts[0].name.lower() not in parameters:
        scope.check(column)


def _only(tree: exp.Expr, *names: str) -> None:
    """Check that a tree has no other parts than those that are looked into."""
    for name, value in tree.args.items():
        if value and name not in names:
            raise _NotProved
