"""CREATE [AGGREGATE] FUNCTION: the function that a statement declares. Its Python is loaded once, to check it."""

from __future__ import annotations

from collections.abc import Collection

from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.functions.python.code import check_aggregate, check_scalar, code_of, retracts
from strandline.jobs.functions.registry import NOT_DETERMINISTIC, find
from strandline.jobs.model.definitions import Column, Function
from strandline.jobs.model.errors import FunctionRefused, NameTaken, SqlError
from strandline.jobs.sql.dialect import needs_quotes
from strandline.jobs.sql.syntax import CreateFunction


def function_of(statement: CreateFunction, allowed: Collection[str]) -> Function:
    """The function that a statement declares.

    Args:
        allowed: the modules that the operator allows.

    Raises:
        FunctionRefused: its module is not allowed, cannot be imported, or lacks a part that a function must have.
        NameTaken: the language has a function of that name.
    """
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
    # Two underscores stand between a function and its parts.
    if needs_quotes(name.lower()) or "__" in name:
        raise FunctionRefused(f"'{name}' is no name for a function", hint="letters, digits and _; no word of SQL")
    if find(name) or name in FUNCTIONS or name in NOT_DETERMINISTIC:
        raise NameTaken(f"{name} is a function of the language", hint="SHOW FUNCTIONS lists them; take another name")
