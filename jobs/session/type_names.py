"""The statements about names of types: CREATE TYPE and DROP TYPE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.errors import NameTaken, UnknownName
from strandline.jobs.sql.syntax import DropType

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.sql.syntax import CreateType


def execute(statement: CreateType | DropType, catalog: Catalog) -> str:
    """Execute either; the message for the user. Raises as `create` and `drop`."""
    return drop(statement, catalog) if isinstance(statement, DropType) else create(statement, catalog)


def create(statement: CreateType, catalog: Catalog) -> str:
    """Give a type a name; the message for the user.

    Raises:
        NameTaken: the name stands for another type, and the statement does not say IF NOT EXISTS.
    """
    there = catalog.types.get(statement.name)
    if there == statement.type or (there is not None and statement.if_not_exists):
        return f"type '{statement.name}' unchanged"

    def added(types: dict[str, SqlType]) -> dict[str, SqlType]:
        if statement.name in types:
            raise NameTaken(
                f"the type '{statement.name}' is {types[statement.name]}",
                line=statement.line,
                column=statement.column,
                hint=f"DROP TYPE {statement.name}: what uses it keeps its columns",
            )
        return {**types, statement.name: statement.type}

    catalog.change_types(added)
    return f"type '{statement.name}' created"


def drop(statement: DropType, catalog: Catalog) -> str:
    """Forget the name of a type; the message for the user.

    Raises:
        UnknownName: there is none, and the statement does not say IF EXISTS.
    """
    if statement.if_exists and statement.name not in catalog.types:
        return f"'{statement.name}' is not there"

    def without(types: dict[str, SqlType]) -> dict[str, SqlType]:
        if statement.name not in types:
            raise UnknownName.among("type", statement.name, types, line=statement.line, column=statement.column)
        return {name: sql_type for name, sql_type in types.items() if name != statement.name}

    catalog.change_types(without)
    return f"'{statement.name}' dropped"
