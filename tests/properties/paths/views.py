"""The views of an example: a small tree of queries, and its text as a user would write it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from tests.properties.paths.expressions import Column, Expression, Shown, can_fail, text

Policy = Literal["dead_letter", "stop", "null"]
POLICIES: Final[tuple[Policy, ...]] = ("dead_letter", "stop", "null")


@dataclass(frozen=True)
class Relation:
    """A stream or table that a query reads. The first column of a table is its key."""

    name: str
    kind: Literal["stream", "table"]
    columns: tuple[tuple[str, str], ...]

    @property
    def statement(self) -> str:
        key = {"stream": "", "table": " PRIMARY KEY"}[self.kind]
        columns = [f"{name} {kind}{key if place == 0 else ''}" for place, (name, kind) in enumerate(self.columns)]
        return (
            f"CREATE {self.kind.upper()} {self.name} ({', '.join(columns)})"
            f" WITH (KAFKA_TOPIC = '{self.name}', PARTITIONS = 1);"
        )


@dataclass(frozen=True)
class Input:
    """One input of a block; all but the first are joined to those before.

    Attributes:
        of: a relation, or a block that stands in brackets.
        join: as JOIN is written; empty for the first one.
        on: None for CROSS JOIN.
    """

    alias: str
    of: Relation | Block
    join: str = ""
    on: Expression | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        known = self.of.columns if isinstance(self.of, Relation) else self.of.types
        return tuple(Column(self.alias, name, kind) for name, kind in known)


@dataclass(frozen=True)
class Subquery:
    """A condition over another relation: `… [NOT] IN (SELECT …)`, `[NOT] EXISTS (SELECT …)`. It cannot fail."""

    sql: str


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function of a group's rows."""

    function: str
    argument: Expression | None
    type: str
    distinct: bool = False


@dataclass(frozen=True)
class Over:
    """A window function over the rows of a partition."""

    function: str
    argument: Expression | None
    type: str
    partition: tuple[Expression, ...]
    order: tuple[Expression, ...]


Value = Expression | Aggregate | Over


@dataclass(frozen=True)
class Block:
    """One SELECT.

    Attributes:
        first: a condition that cannot fail; `where` one that perhaps can. Both must hold, in this order.
        items: names and values.
        group: the expressions of GROUP BY; None without the clause.
        having: a text over aggregates that cannot fail.
    """

    inputs: tuple[Input, ...]
    items: tuple[tuple[str, Value], ...]
    first: Expression | Subquery | None = None
    where: Expression | None = None
    distinct: bool = False
    group: tuple[Expression, ...] | None = None
    having: str = ""

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, value.type) for name, value in self.items)

    @property
    def sql(self) -> str:
        return f"SELECT {self.selected()} {self.source()}{self.condition()}{self.grouped()}"

    def selected(self, shown: Shown = lambda _: None) -> str:
        """The SELECT list."""
        items = ", ".join(f"{value_text(value, shown)} AS {name}" for name, value in self.items)
        return f"DISTINCT {items}" if self.distinct else items

    def source(self) -> str:
        """The FROM clause."""
        return "FROM " + " ".join(_input(each) for each in self.inputs)

    def condition(self) -> str:
        """The WHERE clause, with the space before it."""
        first = self.first.sql if isinstance(self.first, Subquery) else text(self.first) if self.first else ""
        parts = [each for each in (first, text(self.where) if self.where is not None else "") if each]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def grouped(self, shown: Shown = lambda _: None) -> str:
        """The GROUP BY and HAVING clauses, with the space before them."""
        by = f" GROUP BY {', '.join(text(each, shown) for each in self.group)}" if self.group else ""
        return f"{by} HAVING {self.having}" if self.having else by

    def row_expressions(self) -> Iterator[Expression]:
        """What is computed of each row that WHERE lets through: its own values, and what is grouped by or added up."""
        for _, value in self.items:
            match value:
                case Aggregate():
                    yield from () if value.argument is None else (value.argument,)
                case Over():
                    yield from () if value.argument is None else (value.argument,)
                    yield from (*value.partition, *value.order)
                case _:
                    yield value
        yield from self.group or ()

    @property
    def can_fail(self) -> bool:
        inside = any(isinstance(each.of, Block) and each.of.can_fail for each in self.inputs)
        where = self.where is not None and can_fail(self.where)
        return inside or where or any(map(can_fail, self.row_expressions()))


@dataclass(frozen=True)
class SetOperation:
    """Two blocks with columns of the same types: UNION, INTERSECT, EXCEPT, each perhaps with ALL."""

    operator: str
    left: Block
    right: Block

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return self.left.types

    @property
    def sql(self) -> str:
        return f"{self.left.sql} {self.operator} {self.right.sql}"

    @property
    def can_fail(self) -> bool:
        return self.left.can_fail or self.right.can_fail


Query = Block | SetOperation


@dataclass(frozen=True)
class ViewOf:
    """A view: its name, its query and its options."""

    name: str
    query: Query
    errors: Policy = "dead_letter"
    options: tuple[tuple[str, str], ...] = ()

    @property
    def statement(self) -> str:
        """The statement that makes it."""
        options = [f"{name} = '{value}'" for name, value in self.all_options]
        said = f" WITH ({', '.join(options)})" if options else ""
        return f"CREATE MATERIALIZED VIEW {self.name}{said} AS {self.query.sql};"

    @property
    def all_options(self) -> tuple[tuple[str, str], ...]:
        return (*(() if self.errors == "dead_letter" else (("ERRORS", self.errors),)), *self.options)

    def made(self, name: str, **options: str) -> ViewOf:
        """The same view by another name and with other options beside ERRORS."""
        return replace(self, name=name, options=tuple(options.items()))


def value_text(value: Value, shown: Shown) -> str:
    """The text of an item."""
    match value:
        case Aggregate():
            argument = text(value.argument, shown) if value.argument is not None else "*"
            return f"{value.function}({'DISTINCT ' if value.distinct else ''}{argument})"
        case Over():
            argument = text(value.argument, shown) if value.argument is not None else ""
            by = ", ".join(text(each, shown) for each in value.partition)
            order = ", ".join(text(each, shown) for each in value.order)
            clauses = [f"PARTITION BY {by}" if by else "", f"ORDER BY {order}" if order else ""]
            return f"{value.function}({argument}) OVER ({' '.join(each for each in clauses if each)})"
        case _:
            return text(value, shown)


def _input(each: Input) -> str:
    of = each.of.name if isinstance(each.of, Relation) else f"({each.of.sql})"
    on = f" ON {text(each.on)}" if each.on is not None else ""
    return f"{each.join} {of} AS {each.alias}{on}".strip()


def relations_of(query: Query) -> set[str]:
    """The names of the relations that stand in FROM."""
    if isinstance(query, SetOperation):
        return relations_of(query.left) | relations_of(query.right)
    found = [{each.of.name} if isinstance(each.of, Relation) else relations_of(each.of) for each in query.inputs]
    return set().union(*found)
