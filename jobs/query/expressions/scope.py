"""Name resolution: the interface that `infer` uses, and the plain case of one relation.

The scope of a whole SELECT, with several inputs and aliases, is `jobs.query.inputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, UnknownName
from strandline.jobs.model.tables import META_COLUMNS, PSEUDO_COLUMNS, Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.trees import identifier

_META = frozenset(name for name, _ in META_COLUMNS)


@dataclass(frozen=True)
class Typed:
    """An expression with its type, whose names are resolved and whose conversions are explicit."""

    expression: exp.Expression
    type: SqlType


Infer = Callable[[exp.Expr], Typed]
"""Types and elaborates one expression within a scope."""
Rules = Mapping[type[exp.Expr], Callable[[Any, Infer], Typed]]
"""The elaboration of each class of node; the `Infer` elaborates the node's parts."""


class Names(Protocol):
    """Resolver of the names in an expression."""

    def resolve(self, column: exp.Column) -> Typed:
        """The column, or the expression that computes a pseudo column.

        Raises:
            UnknownName, InvalidQuery: there is no such name, or more than one.
        """


@dataclass(frozen=True)
class Scope:
    """One relation and the names that qualify its columns, which resolve to plain names."""

    relation: Relation
    qualifiers: tuple[str, ...]

    @property
    def visible(self) -> tuple[str, ...]:
        """The columns that `*` stands for: all but the meta columns."""
        return tuple(name for name, _ in self.relation.columns if name not in _META)

    def resolve(self, column: exp.Column) -> Typed:
        """The column that a name means; ROWTIME and its like become expressions over the meta columns.

        Raises:
            UnknownName: no such column or qualifier; nearest names proposed.
            InvalidQuery: a pseudo column of a table.
        """
        line, place = position_of(column)
        self.check_qualifier(column)
        name = column.name
        columns = dict(self.relation.columns)
        if name in columns:
            return Typed(_column(name, column), columns[name])
        if name in PSEUDO_COLUMNS:
            return self._pseudo(column)
        raise UnknownName.among("column", name, (*self.visible, *self._pseudo_names()), line=line, column=place)

    def check_qualifier(self, column: exp.Column) -> None:
        """Check the qualifier before the dot.

        Raises:
            UnknownName: it is not the relation's name or alias.
        """
        if column.table and column.table not in self.qualifiers:
            raise UnknownName.among("stream or table", column.table, self.qualifiers).placed(*position_of(column))

    def _pseudo(self, column: exp.Column) -> Typed:
        stored, sql_type = PSEUDO_COLUMNS[column.name]
        if self.relation.storage != "append":
            raise InvalidQuery(
                f"'{self.relation.name}' is a table: its rows have no {column.name.upper()}",
                hint="only the events of a stream have one",
            ).placed(*position_of(column))
        node = _column(stored, column)
        if stored == "_timestamp":
            return Typed(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[node]), sql_type)
        return Typed(node, sql_type)

    def _pseudo_names(self) -> tuple[str, ...]:
        return tuple(PSEUDO_COLUMNS) if self.relation.storage == "append" else ()


def column(name: str, table: str | None = None) -> exp.Column:
    """Refer to a column, by its plain name or under the alias of an input."""
    made = exp.Column(this=identifier(name))
    if table is not None:
        made.set("table", identifier(table))
    return made


def binary(operator: type[exp.Expr], left: Typed, right: Typed) -> exp.Expression:
    """Build `left operator right`."""
    made = operator(this=left.expression, expression=right.expression)
    assert isinstance(made, exp.Expression)
    return made


def _column(name: str, written: exp.Column) -> exp.Column:
    """`column`, remembering where it was written."""
    made = column(name)
    made.this.meta.update(written.this.meta)
    return made


@dataclass(frozen=True)
class Inside:
    """The body of a lambda function: its variables hide the names around it."""

    outer: Names
    variables: Mapping[str, Typed]

    def resolve(self, column: exp.Column) -> Typed:
        """The variable of that name, or the name as the scope around resolves it; raises as that does."""
        found = self.variables.get(column.name) if not column.table else None
        return self.outer.resolve(column) if found is None else Typed(found.expression.copy(), found.type)


def depth_of(names: Names) -> int:
    """Number of lambda functions around."""
    return 1 + depth_of(names.outer) if isinstance(names, Inside) else 0
