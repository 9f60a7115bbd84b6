"""Registration of Python functions with Spark and DuckDB, under the names that rules and queries use."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from strandline.jobs.functions.python.batches import ColumnFunction, Finish, Fold, MergeColumn, ScalarColumn
from strandline.jobs.functions.python.code import Code, check_allowed
from strandline.jobs.functions.python.declared import FINISH, FOLD, MERGE, part_of, registered
from strandline.jobs.model.errors import EngineRefused, RefreshFailed
from strandline.state_store.duckdb import elementary

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from strandline.jobs.model.definitions import Function


class Library:
    """The functions of a catalog; those that a text calls, and no others, are loaded, checked and registered.

    Args:
        allowed: the modules that the operator allows.
    """

    def __init__(self, functions: Iterable[Function], allowed: Collection[str]) -> None:
        self._functions = {registered(function): function for function in functions}
        self._allowed = allowed

    def register_spark(self, session: SparkSession, text: str) -> None:
        """Register what `text` calls; a session that has it already gets it again.

        Raises:
            FunctionRefused: a module is not allowed any more, or cannot be imported.
            RefreshFailed: a module's source has changed since CREATE FUNCTION.
        """
        from pyspark.sql.pandas.functions import arrow_udf

        for name, function in self._called(text):
            # The stubs ask for a third argument that Spark itself advises against.
            made = arrow_udf(_annotated(function), function.returns.spark())  # type: ignore[call-overload]
            session.udf.register(name, made)

    def register_duckdb(self, connection: duckdb.DuckDBPyConnection, text: str) -> None:
        """Register what `text` calls and the connection does not know yet. Raises as `register_spark`."""
        self._register(connection, self._called(text))

    def declare_duckdb(self, connection: duckdb.DuckDBPyConnection, text: str) -> None:
        """Make names and types known of what `text` calls, for a text that is bound and not run: no code is read."""
        for function in self._named(text):
            self._register(connection, _column_functions(function, Code(function.module, function.attribute)))

    def _register(self, connection: duckdb.DuckDBPyConnection, functions: Iterable[tuple[str, ColumnFunction]]) -> None:
        from duckdb.func import ARROW, SPECIAL

        for name, function in functions:
            known = connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [name]).fetchone()
            if known is None:
                parameters: list[Any] = [sql_type.duckdb() for sql_type in function.parameters]
                returns: Any = function.returns.duckdb()
                # SPECIAL: the function sees NULLs, as in Spark.
                connection.create_function(name, function, parameters, returns, type=ARROW, null_handling=SPECIAL)

    def _called(self, text: str) -> Iterator[tuple[str, ColumnFunction]]:
        for function in self._named(text):
            yield from _column_functions(function, _code(function, self._allowed))

    def _named(self, text: str) -> Iterator[Function]:
        lowered = text.lower()
        return (function for name, function in self._functions.items() if name in lowered)


def register_elementary(session: SparkSession, text: str) -> None:
    """Register with Spark what `text` calls of `state_store.duckdb.elementary`, which every DuckDB engine has.

    Raises:
        EngineRefused: it calls one for the items of an array.
    """
    if elementary.PREFIX not in text:
        return
    if any(elementary.PREFIX in body for body in _lambdas(text)):
        raise EngineRefused(
            "Spark calls no function of Python for the items of an array, and EXP, LN, SIN and their like are such",
            hint="leave STRANDLINE_ENGINE out, or set it to duckdb: DuckDB does",
        )
    from pyspark.sql.pandas.functions import arrow_udf

    for name in elementary.FUNCTIONS:
        if f"{name}(" in text:
            made = arrow_udf(_annotated(elementary.OfColumns(name)), "DOUBLE")  # type: ignore[call-overload]
            session.udf.register(name, made)


def _lambdas(text: str) -> Iterator[str]:
    """The bodies of the lambdas in a text of Spark's: up to the comma or bracket behind them."""
    for arrow in re.finditer("->", text):
        depth = 0
        for place in range(arrow.end(), len(text)):
            depth += {"(": 1, ")": -1}.get(text[place], 0)
            if depth < 0 or (depth == 0 and text[place] == ","):
                yield text[arrow.end() : place]
                break


def _code(function: Function, allowed: Collection[str]) -> Code:
    check_allowed(function.module, allowed)
    code = Code(function.module, function.attribute, tuple(sys.path))
    if code.source() != function.source:
        raise RefreshFailed(
            f"the source of '{function.module}' has changed since CREATE FUNCTION {function.name}",
            hint=f"drop the views that use {function.name}, then CREATE OR REPLACE the function and the views",
        )
    return code


def _column_functions(function: Function, code: Code) -> Iterator[tuple[str, ColumnFunction]]:
    types = tuple(parameter.type for parameter in function.parameters)
    name = registered(function)
    if not function.aggregate:
        yield name, ScalarColumn(function.name, code, types, function.returns)
        return
    yield part_of(name, FOLD), Fold(function.name, code, types)
    yield part_of(name, MERGE), MergeColumn(function.name, code, types)
    yield part_of(name, FINISH), Finish(function.name, code, function.returns)


def _annotated(function: ColumnFunction | elementary.OfColumns) -> Any:
    """A plain function whose annotations tell Spark that it takes and gives Arrow columns."""
    import pyarrow as pa

    def run(*columns: pa.Array) -> pa.Array:
        return function(*columns)

    run.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return run
