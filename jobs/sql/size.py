"""The size of a query: long chains are made shallow, lists of equalities short, and what is larger still is refused.

A program writes `k = 1 OR k = 2 OR …` a thousand times, where a person writes IN. As a tree that is a thousand levels
deep, and whatever goes through a tree level by level would be at its end. So

    ((a OR b) OR c) OR d                 (a OR b) OR (c OR d)      the same text, and ten levels for a thousand terms
    k = 1 OR k = 2 OR … (64 or more)     k IN (1, 2, …)
    k <> 1 AND k <> 2 AND …              NOT k IN (1, 2, …)

Planning takes time by the size of a query, so that has limits. They are such that what is below them is answered within
seconds, and what is above is refused before anything is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeVar

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported

Q = TypeVar("Q", bound=exp.Expr)

_LONG: Final = 64
"""Chains of fewer terms stay as they are written: nothing that goes through them is near its end."""
_MOST_LEVELS: Final = 250
"""Of a tree; what goes through it calls itself some four times a level, and Python a thousand times at most."""
_VALUES_A_PART: Final = 10
"""Constants of an IN list are looked at much more cheaply than other parts of a query."""


@dataclass(frozen=True)
class SizeLimits:
    """The most that a query may have.

    Attributes:
        what: the query, in words.
        parts: names, constants, operators and functions.
        values: constants in one IN.
        terms: of one chain of AND or OR.
        tables: that are read, a part of WITH wherever it is named.
    """

    what: str
    parts: int
    values: int
    terms: int
    tables: int


PULL: Final = SizeLimits("a query", 6_000, 20_000, 300, 256)
"""A SELECT that is answered once."""
QUERY_CHARACTERS: Final = 1 << 18
"""Of a text that is sent to a server: 20,000 values of IN fit. Reading takes time and memory by its length: six million
characters took 40 s and 1.5 GB, and were refused then."""
VIEW: Final = SizeLimits("a view", 6_000, 2_000, 200, 64)
"""It is planned and its rules are prepared, on two engines: some ten times the work of a pull query."""


def balanced(tree: Q) -> Q:
    """The query with its long chains of AND and OR as shallow trees. Its text is the same."""
    for top in _chains(tree):
        terms = _terms(top)
        if len(terms) >= _LONG:
            top.replace(_tree(type(top), terms))
    return tree


def shortened(tree: Q) -> Q:
    """The query with long lists of equalities of one column as IN."""
    for top in _chains(tree):
        terms = _terms(top)
        if len(terms) >= _LONG:
            listed = list(_listed(type(top), terms))
            if len(listed) < len(terms):
                top.replace(_tree(type(top), listed))
    return tree


def check_characters(text: str) -> None:
    """Check the length of a text that somebody has sent, before it is read. Raises NotSupported: it is too long."""
    if len(text) > QUERY_CHARACTERS:
        raise NotSupported(
            f"the text has {len(text):,} characters, and {QUERY_CHARACTERS:,} are the most of what is sent at once",
            hint="insert the values into a table, and join it",
        )


def check(tree: exp.Expr, limits: SizeLimits) -> None:
    """Check that a query is within limits.

    Raises:
        NotSupported: it is not.
    """
    parts = values = tables = 0
    for node in tree.walk():
        parts += 1
        tables += isinstance(node, exp.Table)
        if isinstance(node, exp.In) and len(node.expressions) > _VALUES_A_PART:
            found = sum(isinstance(each, exp.Literal) for each in node.expressions)
            values += found
            if found > limits.values:
                hint = "insert the values into a table, and join it"
                what = f"IN has {found:,} values, and {limits.values:,} are the most of {limits.what}"
                raise NotSupported(what, hint=hint)
    check_tables(tables, limits)
    if _is_deep(tree):
        raise too_deep(1, 1)
    for top in _chains(tree):
        terms = len(_terms(top))
        if terms > limits.terms:
            what = f"{terms:,} terms between {top.key.upper()}, and {limits.terms:,} are the most of {limits.what}"
            raise NotSupported(what, hint="insert what is compared into a table, and join it")
    check_parts(parts - values + values // _VALUES_A_PART, limits)


def check_parts(number: int, limits: SizeLimits) -> None:
    """Check the number of parts of a query. Raises NotSupported: it is too large."""
    if number > limits.parts:
        raise NotSupported(
            f"the query has {number:,} parts (names, constants, operators), and {limits.parts:,} are the most of "
            f"{limits.what}",
            hint="select fewer columns, or put some of it into a view of its own",
        )


def check_tables(number: int, limits: SizeLimits) -> None:
    """Check the number of tables that a query reads. Raises NotSupported: it is too large."""
    if number > limits.tables:
        raise NotSupported(
            f"the query reads {number:,} tables, each part of WITH wherever it is named, and {limits.tables} are the "
            f"most of {limits.what}",
            hint="put a part that is named more than once into a view of its own, and read that",
        )


def _is_deep(tree: exp.Expr) -> bool:
    level = [tree]
    for _ in range(_MOST_LEVELS):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return False
    return True


def too_deep(line: int, column: int) -> NotSupported:
    """The refusal of a statement that nests deeper than Python calls functions."""
    return NotSupported(
        "the statement is nested too deeply",
        line=line,
        column=column,
        hint="some 40 levels of brackets, calls, CASE and subqueries in one another are read: put the inner ones into "
        "a subquery of WITH or a view of their own",
    )


def _chains(tree: exp.Expr) -> list[exp.Connector]:
    """The uppermost AND or OR of each chain."""
    found = (node for node in tree.walk() if isinstance(node, exp.And | exp.Or))
    return [node for node in found if type(node.parent) is not type(node)]


def _terms(top: exp.Connector) -> list[exp.Expr]:
    """The terms of a chain, in order."""
    found: list[exp.Expr] = []
    waiting: list[exp.Expr] = [top]
    while waiting:
        node = waiting.pop()
        if type(node) is type(top):
            waiting += (node.args["expression"], node.args["this"])
        else:
            found.append(node)
    return found


def _tree(kind: type[exp.Connector], terms: Sequence[exp.Expr]) -> exp.Expr:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return kind(this=_tree(kind, terms[:half]), expression=_tree(kind, terms[half:]))


def _listed(kind: type[exp.Connector], terms: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """The terms, where neighbours that compare one column with constants of one kind are one IN."""
    for key, group in groupby(terms, lambda term: _compared(kind, term)):
        same = list(group)
        if key is None or len(same) == 1:
            yield from same
            continue
        values = [each.args["expression"] for each in same]
        found: exp.Expr = exp.In(this=same[0].args["this"], expressions=values)
        yield exp.Not(this=found) if kind is exp.And else found


def _compared(kind: type[exp.Connector], term: exp.Expr) -> tuple[str, bool] | None:
    """The column that a term compares with a whole number or a text, and which of both; None for any other term."""
    equal = exp.EQ if kind is exp.Or else exp.NEQ
    if type(term) is not equal:
        return None
    column, value = term.args["this"], term.args["expression"]
    if not isinstance(column, exp.Column) or not isinstance(value, exp.Literal):
        return None
    if not value.is_string and not value.is_int:
        return None
    return f"{column.table}.{column.name}", value.is_string
