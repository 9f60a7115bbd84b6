"""Statements from the names that people say to those that are stored.

    SELECT sold.n FROM sold          SELECT sold.n FROM by_shop AS sold
    DROP TABLE sold                  DROP TABLE by_shop

Whatever takes a statement from outside does this once, before anything looks a name up. A relation keeps what it was
called as its alias, so that columns which say its name still mean it, and `SELECT *` of a join names its columns alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from strandline.jobs.catalog.name_map import NameMap
from strandline.jobs.catalog.named_relations import parts_of_with, relations_in
from strandline.jobs.catalog.plain_views import expanded
from strandline.jobs.catalog.renamed_text import renamed_text
from strandline.jobs.model.errors import InvalidQuery, NameTaken, UnknownName
from strandline.jobs.sql.dialect import position_of
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
    from collections.abc import Mapping

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
