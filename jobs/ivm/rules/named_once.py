"""Arithmetic that stands several times in a SELECT, computed once below it.

    SELECT CASE WHEN a / b IS NULL THEN … ELSE a / b END AS q FROM t

    SELECT CASE WHEN __n0 IS NULL THEN … ELSE __n0 END AS q FROM (SELECT *, a / b AS __n0 FROM t) AS __named0

DuckDB has no operator for DECIMALs whose exact value may have more than 38 digits: theirs is a text of a kilobyte or
three, of which it takes some six milliseconds to bind a kilobyte, in each epoch. What can fail has it twice at least,
since it says on which rows it does.

Such an operator has a value, or NULL, for every row (`jobs.functions.scalars.decimals`), so it may be computed of rows
that the SELECT does not ask it of. Calls of functions that users wrote may not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.registry import find
from strandline.jobs.functions.render import lower
from strandline.jobs.functions.scalars.decimals import OPERANDS
from strandline.jobs.functions.scalars.domains import FAIL
from strandline.jobs.sql.trees import Place, replaced

_LONG: Final = 400
"""Letters of DuckDB's text from which on an operator is named: of a short one, to pass on the other columns of the rows
costs as much."""


@dataclass(frozen=True)
class NamedOnce:
    """Expressions over rows that have some more columns.

    Attributes:
        trees: the expressions.
        layers: the columns, by name; those of a layer are over the rows of the one before.
    """

    trees: tuple[exp.Expression, ...]
    layers: tuple[Mapping[str, exp.Expression], ...] = ()

    def over(self, places: Mapping[Place, exp.Expression]) -> NamedOnce:
        """The same with other columns of the rows."""
        layers = tuple({name: replaced(tree, places) for name, tree in layer.items()} for layer in self.layers)
        return NamedOnce(tuple(replaced(tree, places) for tree in self.trees), layers)

    def rows(self, source: str, engine: Engine) -> str:
        """What stands in FROM: the rows of `source`, a relation with its alias, with the columns."""
        for number, layer in enumerate(self.layers):
            made = [f"{lower(tree, engine.dialect)} AS {engine.name(name)}" for name, tree in layer.items()]
            source = f"(SELECT {', '.join(['*', *made])} FROM {source}) AS __named{number}"
        return source


def named_once(trees: Sequence[exp.Expression], unknown: frozenset[str] = frozenset()) -> NamedOnce:
    """Name the long operators that stand in these expressions more than once, the innermost first.

    Args:
        unknown: plain names of columns that the rows do not have yet.
    """
    layers: list[Mapping[str, exp.Expression]] = []
    made = 0
    left = tuple(trees)
    while True:
        found = [list(_long(tree, unknown)) for tree in left]
        counts = Counter(text for each in found for _, text in each)
        again = {text for text, count in counts.items() if count > 1}
        inner = {text: node for each in found for node, text in _innermost(each, again)}
        if not inner:
            return NamedOnce(left, tuple(layers))
        names = {text: f"__n{number}" for number, text in enumerate(inner, made)}
        made += len(names)
        layers.append({names[text]: node.copy() for text, node in inner.items()})
        left = tuple(
            _with_names(tree, {id(node): names[text] for node, text in each if text in names})
            for tree, each in zip(left, found, strict=True)
        )


def _long(tree: exp.Expression, unknown: frozenset[str]) -> Iterator[tuple[exp.Expression, str]]:
    """The long operators of an expression that may be named, each with its text."""
    for node in tree.walk():
        if OPERANDS in node.meta and isinstance(node, exp.Expression) and _may_be_named(node, unknown):
            text = lower(node, "duckdb")
            if len(text) >= _LONG:
                yield node, text


def _may_be_named(node: exp.Expression, unknown: frozenset[str]) -> bool:
    if node.find_ancestor(exp.Lambda) is not None:
        return False  # it may read a parameter
    for part in node.walk():
        if isinstance(part, exp.Column) and not part.table and part.name in unknown:
            return False
        if isinstance(part, exp.Anonymous) and (part.name == FAIL or find(part.name.upper()) is None):
            return False
    return True


def _innermost(
    found: Sequence[tuple[exp.Expression, str]], again: Collection[str]
) -> Iterator[tuple[exp.Expression, str]]:
    """Of the operators that stand there again those of which no part does."""
    wanted = {id(node) for node, text in found if text in again}
    for node, text in found:
        if id(node) in wanted and not any(id(part) in wanted for part in node.walk() if part is not node):
            yield node, text


def _with_names(tree: exp.Expression, names: Mapping[int, str]) -> exp.Expression:
    """A copy with columns in the place of some of its parts."""
    if not names:
        return tree
    if id(tree) in names:
        return exp.column(names[id(tree)], quoted=True)
    copy = tree.copy()
    for node, original in list(zip(copy.walk(), tree.walk(), strict=True)):
        if id(original) in names:
            node.replace(exp.column(names[id(original)], quoted=True))
    return copy
