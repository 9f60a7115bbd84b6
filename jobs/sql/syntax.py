"""Statements as values: the result of parsing, before any name in it is resolved.

Names are folded. Queries and expressions are sqlglot trees of our dialect; their nodes remember line and column in
the whole text, so that a later error can point at the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from strandline.jobs.model.definitions import Kind
from strandline.jobs.model.types import SqlType

Emit = Literal["CHANGES", "FINAL"]


@dataclass(frozen=True)
class Option:
    """One `NAME = value` of a WITH clause: the name in upper case, the value as text."""

    name: str
    value: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class DeclaredColumn:
    """A column of CREATE STREAM or TABLE. `key` is `KEY` or `PRIMARY KEY` when it is part of the key; `header` and
    `required` are as those of `jobs.model.definitions.Column`."""

    name: str
    type: SqlType
    key: Literal["KEY", "PRIMARY KEY"] | None = None
    line: int | None = None
    column: int | None = None
    header: str | None = None
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Base of the statements.

    Attributes:
        sql: the statement's own text, without the semicolon.
        line: 1-based, in the whole text.
        column: 1-based.
    """

    sql: str = ""
    line: int = 1
    column: int = 1


@dataclass(frozen=True, kw_only=True)
class CreateSource(Statement):
    """`CREATE [SOURCE] STREAM|TABLE name (columns) WITH (options)`; a SOURCE is read only: others write its topic.

    Over a table of others, or with schemas in a registry, it may come without columns: `foreign` and `registered`
    of `jobs.session.define` fill them in."""

    name: str
    kind: Kind
    columns: tuple[DeclaredColumn, ...]
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateView(Statement):
    """`CREATE STREAM|TABLE|[MATERIALIZED] VIEW name [WITH (options)] AS SELECT …`; `kind` is None for the last, and
    `plain` one without MATERIALIZED."""

    name: str
    kind: Kind | None
    query: exp.Query
    options: tuple[Option, ...] = ()
    emit: Emit | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    plain: bool = False

    @property
    def materialized(self) -> bool:
        return self.kind is None


@dataclass(frozen=True, kw_only=True)
class CreateFunction(Statement):
    """`CREATE [AGGREGATE] FUNCTION name (parameters) RETURNS type LANGUAGE PYTHON AS 'code'`; `name` in upper case."""

    name: str
    parameters: tuple[DeclaredColumn, ...]
    returns: SqlType
    code: str
    aggregate: bool = False
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateType(Statement):
    """`CREATE TYPE [IF NOT EXISTS] name AS type`."""

    name: str
    type: SqlType
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class DropType(Statement):
    """`DROP TYPE [IF EXISTS] name`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class AlterSource(Statement):
    """`ALTER STREAM|TABLE name ADD [COLUMN] column TYPE, …`."""

    name: str
    kind: Kind
    columns: tuple[DeclaredColumn, ...]


@dataclass(frozen=True, kw_only=True)
class Rename(Statement):
    """`ALTER STREAM|TABLE|[MATERIALIZED] VIEW [IF EXISTS] name RENAME TO following`."""

    what: Literal["STREAM", "TABLE", "VIEW"]
    name: str
    following: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class Swap(Statement):
    """`ALTER STREAM|TABLE|[MATERIALIZED] VIEW name SWAP WITH other`, as RisingWave writes it."""

    what: Literal["STREAM", "TABLE", "VIEW"]
    name: str
    other: str


@dataclass(frozen=True, kw_only=True)
class InsertValues(Statement):
    """`INSERT INTO target [(columns)] VALUES (…), …`. Empty `columns`: all visible ones, as declared."""

    target: str
    columns: tuple[str, ...]
    rows: tuple[tuple[exp.Expression, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Delete(Statement):
    """`DELETE FROM target WHERE condition`: the condition names keys."""

    target: str
    where: exp.Expression


@dataclass(frozen=True, kw_only=True)
class Update(Statement):
    """`UPDATE target SET column = value, … WHERE condition`: the condition names keys."""

    target: str
    assignments: tuple[tuple[str, exp.Expression], ...]
    where: exp.Expression


@dataclass(frozen=True, kw_only=True)
class InsertSelect(Statement):
    """`INSERT INTO target SELECT …`."""

    target: str
    query: exp.Query
    emit: Emit | None = None


@dataclass(frozen=True, kw_only=True)
class Drop(Statement):
    """`DROP STREAM|TABLE|[MATERIALIZED] VIEW [IF EXISTS] name [CASCADE] [DELETE TOPIC]`."""

    what: Literal["STREAM", "TABLE", "VIEW", "ANY"]
    """ANY is not written: CASCADE drops readers of whatever kind they are."""
    name: str
    if_exists: bool = False
    delete_topic: bool = False
    cascade: bool = False


@dataclass(frozen=True, kw_only=True)
class DropFunction(Statement):
    """`DROP FUNCTION [IF EXISTS] name`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class Show(Statement):
    """`SHOW|LIST what [EXTENDED]`."""

    what: Literal["STREAMS", "TABLES", "VIEWS", "QUERIES", "TOPICS", "FUNCTIONS", "TYPES", "PROPERTIES"]
    extended: bool = False


@dataclass(frozen=True, kw_only=True)
class Print(Statement):
    """`PRINT topic [FROM BEGINNING] [LIMIT n]`. Without FROM BEGINNING, the last records of the topic."""

    topic: str
    from_beginning: bool = False
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Describe(Statement):
    """`DESCRIBE name [EXTENDED]`."""

    name: str
    extended: bool = False


@dataclass(frozen=True, kw_only=True)
class DescribeFunction(Statement):
    """`DESCRIBE FUNCTION name`."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Explain(Statement):
    """`EXPLAIN [MAINTENANCE] name|SELECT …`: exactly one of `name` and `query` is given."""

    name: str | None = None
    query: exp.Query | None = None
    maintenance: bool = False


@dataclass(frozen=True, kw_only=True)
class SetProperty(Statement):
    """`SET 'name' = 'value'`."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class UnsetProperty(Statement):
    """`UNSET 'name'`."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Select(Statement):
    """A pull query, or with `emit` a push query. `limit` is None when all rows are wanted."""

    query: exp.Query
    emit: Emit | None = None
    limit: int | None = None
