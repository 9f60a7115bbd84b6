"""The context of a recomputation: its engine and semantics, and how its expressions become text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.failing import lenient, strict
from strandline.jobs.functions.render import lower
from strandline.jobs.model.options import Semantics
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.logical import Query, outputs_of
from strandline.jobs.sql.dialect import NestedQuery, OuterValue

Fate = Literal["left out", "null", "error"]
"""What becomes of a row on which an expression fails: it is not in the result; the expression is NULL; an error."""

FrozenJoin = Callable[[str, str], str]
"""(alias of the events, alias of the frozen input) -> the condition that a row existed when the event arrived."""


@dataclass(frozen=True)
class Recomputation:
    """The engine and the semantics that a text is written for.

    Attributes:
        subquery: the text of a query inside the query; its second argument are meta columns wanted beside the outputs,
            its third says that what fails in it is left to the query around it.
        fate: of the rows that fail.
        shared: joins are read from tables of their own, as with STATE = 'shared'.
        nested: the queries inside expressions, by the names of their nodes: a pull query has such.
    """

    engine: Engine
    semantics: Semantics
    frozen: FrozenJoin | None
    subquery: Callable[[Query, Recomputation, tuple[str, ...], bool], str]
    fate: Fate
    shared: bool = False
    nested: Mapping[str, Query] = field(default_factory=dict)

    def name(self, name: str) -> str:
        """Write an identifier."""
        return self.engine.name(name)

    def inside(self, expression: exp.Expression) -> str:
        """Write an expression within FROM and WHERE, where inputs still have their aliases; NULL if it fails."""
        return self.total(lenient(expression))

    def after(self, expression: exp.Expression) -> str:
        """Write an expression of a later clause, where `alias.column` is one name; NULL if it fails."""
        return self.total_after(lenient(expression))

    def total(self, expression: exp.Expression) -> str:
        """Write an expression within FROM and WHERE that may fail the query."""
        return lower(self._with_queries(expression, self.inside), self.engine.dialect)

    def total_after(self, expression: exp.Expression) -> str:
        """Write an expression of a later clause that may fail the query."""
        holder = exp.Paren(this=self._with_queries(expression, self.after).copy())
        for node in list(holder.find_all(exp.Column)):
            if node.table:
                node.replace(exp.column(flat(node.table, node.name), quoted=True))
        return lower(holder.this, self.engine.dialect)

    def _with_queries(self, expression: exp.Expression, text: Callable[[exp.Expression], str]) -> exp.Expression:
        """The expression with the text of each query inside it; `text` writes what such a query reads of the row."""
        if not self.nested:
            return expression

        def written(node: exp.Expr) -> exp.Expr:
            if isinstance(node, OuterValue):
                return exp.Var(this=f"{self.name(node.name)}.{self.name(node.place)}")
            return exp.Var(this=self._query_text(node, text)) if isinstance(node, NestedQuery) else node

        made = expression.transform(written)
        assert isinstance(made, exp.Expression)
        return made

    def _query_text(self, node: NestedQuery, text: Callable[[exp.Expression], str]) -> str:
        """A query inside an expression.

        What it reads of the row around it comes in as a relation of one row, so that no name inside can hide it.
        """
        query = self.nested[node.name]
        source = f"{self.source(query)} AS __inner"
        if node.expressions:
            row = ", ".join(f"{text(value)} AS {self.name(str(place))}" for place, value in enumerate(node.expressions))
            source = f"(SELECT {row}) AS {self.name(node.name)}, LATERAL {source}"
        if node.form == "exists":
            return f"EXISTS (SELECT 1 FROM {source})"
        (column, _), *_ = outputs_of(query)
        found = f"(SELECT __inner.{self.name(column)} FROM {source})"
        return found if node.form == "value" else f"({text(node.args['member'])} IN {found})"

    def source(self, source: Relation | Query, more: tuple[str, ...] = (), *, is_open: bool = False) -> str:
        """Write a source in FROM: a relation's name, or a query in parentheses with those meta columns.

        Args:
            is_open: what fails in the query is left to the query around it.
        """
        if isinstance(source, Relation):
            return self.name(source.name)
        return f"({self.subquery(source, self, more, is_open)})"

    def value(self, output: Output, *, whole: bool = False) -> str:
        """Write an output of a later clause, as exactly its type, under its name.

        Args:
            whole: it is computed of a group, or of a window's result; then no row fails by it, but the whole does.
        """
        tree = strict(output.expression) if whole and self.fate != "null" else lenient(output.expression)
        return f"{self.engine.cast(self.total_after(tree), output.type)} AS {self.name(output.name)}"

    def whole(self, value: str, sql_type: SqlType) -> str:
        """Write a value computed of many rows, as exactly its type; beyond its range NULL or an error."""
        return (self.engine.cast_or_null if self.fate == "null" else self.engine.cast)(value, sql_type)

    def millis(self, expression: exp.Expression) -> str:
        """Write a TIMESTAMP of a later clause as milliseconds since the epoch."""
        return self.after(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[expression.copy()]))


def flat(alias: str, column: str) -> str:
    """Name of an input's column in the clauses after FROM."""
    return f"{alias}.{column}"
