"""DuckDB as the engine of pull and push queries: in this process, over Arrow tables, cut off from all else.

A query may come from anybody who may read the lake, so the connection can neither open files nor load extensions, and
these settings are locked.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from jobs.model.errors import InvalidQuery

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from jobs.functions.python.register import Library

# In this order: the last one locks the others. Replacement scans would let a query name any Arrow table or data frame
# that is a variable of this process.
_LOCKED = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class Duck:
    """One connection to an empty in-memory database. Close it by `with`.

    Args:
        functions: those that users wrote, for queries to call.
    """

    def __init__(self, functions: Library) -> None:
        self._functions = functions
        self._connection = duckdb.connect(":memory:")
        for setting in _LOCKED:
            self._connection.execute(setting)

    def __enter__(self) -> Duck:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def query(self, sql: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """The answer of `sql` over `relations`, by name.

        Raises:
            InvalidQuery: DuckDB refuses the text or fails over the data (an overflow, a cast).
            FunctionRefused, RefreshFailed: the query calls a function whose Python may not run.
        """
        self._functions.register_duckdb(self._connection, sql)
        for name, rows in relations.items():
            self._connection.register(name, rows)
        with _typed_errors():
            return self._connection.sql(sql).to_arrow_table()


@contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except duckdb.Error as error:
        # The first line says what; the others show the lowered text, which the user has never seen.
        message = str(error).strip().splitlines()[0]
        raise InvalidQuery(f"the query cannot be answered: {message}") from error
