"""The statements about what users define beside relations: functions in Python, and names of types.

The Python of a function is loaded once, to check it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strandline.jobs.model.definitions import Column, Function
from strandline.jobs.model.errors import FunctionRefused, NameTaken, SqlError, UnknownName
from strandline.jobs.serve.results import Document, TextTable, cell
from strandline.jobs.sql.dialect import needs_quotes
from strandline.jobs.sql.syntax import CreateFunction, DropType

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.session.catalog_changes import Outcome
    from strandline.jobs.sql.syntax import CreateType, DropFunction


@dataclass(frozen=True)
class FunctionChange:
    """The effect of a CREATE FUNCTION on the catalog."""

    outcome: Outcome
    function: Function

    def __str__(self) -> str:
        return f"{_described(self.function)} {self.outcome}"


def _described(function: Function) -> str:
    """A function in words: `aggregate function 'MEDIAN'`."""
    return f"{'aggregate ' if function.aggregate else ''}function '{function.name}'"


def register_function(statement: CreateFunction, catalog: Catalog, allowed: Collection[str]) -> FunctionChange:
    """Check a function and put it into the catalog.

    Args:
        allowed: the modules that the operator allows.

    Raises:
        FunctionRefused: its module is not allowed, cannot be imported, or lacks a part that a function must have.
        NameTaken: the name is defined differently, and the statement does not say OR REPLACE.
        NameInUse: views call the existing one.
    """
    broken = statement.name in catalog.broken_functions
    existing = None if broken else catalog.functions.get(statement.name)
    if existing is not None and statement.if_not_exists:
        return FunctionChange("unchanged", existing)
    made = _function_of(statement, allowed)
    if existing is not None and replace(existing, sql=made.sql) == made:
        return FunctionChange("unchanged", existing)
    if existing is not None and not statement.or_replace:
        raise NameTaken(
            f"the function {made.name} is defined already, differently",
            line=statement.line,
            column=statement.column,
            hint=f"DESCRIBE FUNCTION {made.name} shows how; or say CREATE OR REPLACE",
        )
    if broken:
        from strandline.jobs.session.define.replaced import check_repaired_function

        check_repaired_function(made, catalog)
    catalog.put_function(made)
    return FunctionChange("repaired" if broken else "created" if existing is None else "replaced", made)


def drop_function(statement: DropFunction, catalog: Catalog) -> str:
    """Remove a function from the catalog; return the message for the user.

    Raises:
        UnknownName: there is none of that name, and the statement does not say IF EXISTS.
        NameInUse: views call it.
    """
    if statement.if_exists and statement.name not in {*catalog.functions, *catalog.broken_functions}:
        return f"'{statement.name}' is not there"
    catalog.remove_function(statement.name)
    return f"'{statement.name}' dropped"


def describe_function(name: str, catalog: Catalog) -> Document:
    """`DESCRIBE FUNCTION name`. Raises UnknownName: there is no such one."""
    from strandline.jobs.session.language_functions import describe

    function = catalog.functions.get(name)
    if function is None:
        own = describe(name)
        if own is not None:
            return own
        raise UnknownName.among("function", name, catalog.functions)
    data: dict[str, Any] = {
        "name": function.name,
        "kind": "aggregate" if function.aggregate else "scalar",
        "parameters": [{"name": each.name, "type": str(each.type)} for each in function.parameters],
        "returns": str(function.returns),
        "language": "PYTHON",
        "code": f"{function.module}:{function.attribute}",
        "source": function.source,
        "called_by": list(catalog.callers(name)),
    }
    if function.aggregate:
        data["takes_values_back"] = function.retracts
    shown = {**data, "parameters": ", ".join(f"{each.name} {each.type}" for each in function.parameters)}
    cells = [[cell(fact), cell(value)] for fact, value in shown.items() if fact != "name"]
    table = TextTable.fitting(("property", "value"), cells)
    text = "\n".join((_described(function), table.header(), *(table.line(row) for row in cells), table.rule))
    return Document(data, text)


def change_types(statement: CreateType | DropType, catalog: Catalog) -> str:
    """Execute CREATE TYPE or DROP TYPE; return the message for the user. Raises as `create_type` and `_drop_type`."""
    return _drop_type(statement, catalog) if isinstance(statement, DropType) else create_type(statement, catalog)


def create_type(statement: CreateType, catalog: Catalog) -> str:
    """Give a type a name; return the message for the user.

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


def _drop_type(statement: DropType, catalog: Catalog) -> str:
    """Forget the name of a type; return the message for the user.

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


def _function_of(statement: CreateFunction, allowed: Collection[str]) -> Function:
    """The function that a statement declares.

    Args:
        allowed: the modules that the operator allows.

    Raises:
        FunctionRefused: its module is not allowed, cannot be imported, or lacks a part that a function must have.
        NameTaken: the language has a function of that name.
    """
    from strandline.jobs.functions.python import check_aggregate, check_scalar, code_of, retracts

    try:
        _check_name(statement.name)
        if not statement.parameters:
            raise FunctionRefused(f"{statement.name}() is a constant", hint="a function takes at least one value")
        code = code_of(statement.code, allowed)
        found = code.load()
        (check_aggregate if statement.aggregate else check_scalar)(code, found)
    except SqlError as error:
        error.placed(statement.line, statement.column)
        raise
    return Function(
        name=statement.name,
        parameters=tuple(Column(column.name, column.type) for column in statement.parameters),
        returns=statement.returns,
        module=code.module,
        attribute=code.attribute,
        source=code.source(),
        aggregate=statement.aggregate,
        retracts=statement.aggregate and retracts(found),
        sql=statement.sql,
    )


def _check_name(name: str) -> None:
    from strandline.jobs.functions.aggregates.registry import FUNCTIONS
    from strandline.jobs.functions.registry import NOT_DETERMINISTIC, find

    # Two underscores stand between a function and its parts.
    if needs_quotes(name.lower()) or "__" in name:
        raise FunctionRefused(f"'{name}' is no name for a function", hint="letters, digits and _; no word of SQL")
    if find(name) or name in FUNCTIONS or name in NOT_DETERMINISTIC:
        raise NameTaken(f"{name} is a function of the language", hint="SHOW FUNCTIONS lists them; take another name")
