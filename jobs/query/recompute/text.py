"""The context of a recomputation: its engine and semantics, and how its expressions become text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from jobs.engines.engine import Engine
from jobs.functions.render import lower
from jobs.model.relation import Relation
from jobs.model.stage import Output
from jobs.model.view_options import Semantics
from jobs.query.clauses.logical import Query

FrozenJoin = Callable[[str, str], str]
"""(alias of the events, alias of the frozen input) -> the condition that a row existed when the event arrived."""


@dataclass(frozen=True)
class Recomputation:
    """The engine and the semantics that a text is written for.

    Attributes:
        subquery: the text of a query inside the query; its second argument are meta columns wanted beside the outputs.
    """

    engine: Engine
    semantics: Semantics
    frozen: FrozenJoin | None
    subquery: Callable[[Query, Recomputation, tuple[str, ...]], str]

    def name(self, name: str) -> str:
        """An identifier."""
        return self.engine.name(name)

    def inside(self, expression: exp.Expression) -> str:
        """An expression within FROM and WHERE, where inputs still have their aliases."""
        return lower(expression, self.engine.dialect)

    def after(self, expression: exp.Expression) -> str:
        """An expression of a later clause: `alias.column` is one name there."""
        made = expression.copy()
        holder = exp.Paren(this=made)
        for node in list(holder.find_all(exp.Column)):
            if node.table:
                node.replace(exp.column(flat(node.table, node.name), quoted=True))
        return lower(holder.this, self.engine.dialect)

    def source(self, source: Relation | Query, more: tuple[str, ...] = ()) -> str:
        """A source as it stands in FROM: a relation's name, or a query in parentheses with those meta columns."""
        return self.name(source.name) if isinstance(source, Relation) else f"({self.subquery(source, self, more)})"

    def value(self, output: Output) -> str:
        """An output of a later clause, as exactly its type, under its name."""
        return f"{self.engine.cast(self.after(output.expression), output.type)} AS {self.name(output.name)}"

    def millis(self, expression: exp.Expression) -> str:
        """A TIMESTAMP of a later clause as milliseconds since the epoch."""
        return self.after(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[expression.copy()]))


def flat(alias: str, column: str) -> str:
    """The name of an input's column in the clauses after FROM."""
    return f"{alias}.{column}"
