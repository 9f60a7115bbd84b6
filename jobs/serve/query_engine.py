"""DuckDB as the engine of pull and push queries: in this process, over Arrow tables, cut off from all else.

A query may come from anybody who may read the lake, so the connection can neither open files nor load extensions, and
these settings are locked.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Final

import duckdb

from strandline.jobs.engines.engine import FAILS_ON_A_ROW, TOO_MANY_ROUNDS
from strandline.jobs.model.errors import InvalidQuery, RecursionEndless, UnknownName
from strandline.jobs.model.row_faults import RowFault, fault_and_words
from strandline.jobs.serve.errors import RowNotAnswered, TooLarge
from strandline.jobs.serve.terms import NO_LIMITS, QueryBudget
from strandline.state_store.duckdb import elementary
from strandline.state_store.duckdb.statements import error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from strandline.jobs.functions.python import Library

# In this order: the last one locks the others. Replacement scans would let a query name any Arrow table or data frame
# that is a variable of this process. GLOBAL: what is set in a session is not so in the connections made beside it.
_LOCKED: Final = (
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)

# What DuckDB says by itself: of whole groups, of subqueries, and in queries of catalogs.
_NO_NUMBER: Final = "Could not convert string"
_UNKNOWN: Final = re.compile(r"(Type|Function) with name (\S+) does not exist")
_SEVERAL_ROWS: Final = "More than one row returned by a subquery"
_LEFT_OUT: Final = "leave such rows out with WHERE, or write TRY_CAST, NULLIF or CASE for them"

# As many as DuckDB makes at once; what an answer has too many is found that much later.
_BATCH_ROWS: Final = 1 << 16


class QueryDatabase:
    """An empty database that the queries of one process share, each by a connection of its own. Close it by `with`.

    To start one takes 30 ms of a core, a connection 10 µs.

    What a query names is known to its connection alone, and gone with it: no query sees, or changes, what is another's.

    Args:
        memory_bytes: the most that DuckDB computes with; None: as much as there is.
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        self.memory_bytes = memory_bytes
        self._database = duckdb.connect(":memory:")
        self._lock = Lock()
        self._knows_elementary = False
        # What does not fit is not put aside on disk either: files are closed to a query, and a disk is soon full.
        bounded = () if memory_bytes is None else (f"SET memory_limit = '{memory_bytes}B'",)
        for setting in (*bounded, *_LOCKED):
            self._database.execute(setting)

    def __enter__(self) -> QueryDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and whatever still runs in it."""
        self._database.close()

    def connected(self) -> duckdb.DuckDBPyConnection:
        """A connection for one query, which closes it. Any thread may ask."""
        with self._lock:
            return self._database.cursor()

    def know(self, text: str, functions: Library) -> None:
        """Register the functions that a text calls and DuckDB does not have, for all connections.

        Raises:
            FunctionRefused, RefreshFailed: as of `Library.register_duckdb`.
        """
        with self._lock:
            functions.register_duckdb(self._database, text)
            if elementary.PREFIX in text and not self._knows_elementary:
                elementary.register(self._database)
                self._knows_elementary = True


class QueryEngine:
    """One connection to an empty in-memory database. Close it by `with`.

    Args:
        functions: those that users wrote, for queries to call.
        spent: what the query has taken so far, and may take.
        shared: the database of this process; without, and where its bound is another, the query has one of its own.
    """

    def __init__(
        self, functions: Library, spent: QueryBudget | None = None, shared: QueryDatabase | None = None
    ) -> None:
        self._functions = functions
        self._spent = spent if spent is not None else QueryBudget(NO_LIMITS)
        memory = self._spent.limits.memory_bytes
        self._shares = shared is not None and shared.memory_bytes == memory
        self._database = shared if shared is not None and self._shares else QueryDatabase(memory)
        self._connection = self._database.connected()
        self._defines = False

    def __enter__(self) -> QueryEngine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._defines:
            self._connection.rollback()
        self._connection.close()
        if not self._shares:
            self._database.close()

    def query(self, sql: str, relations: Mapping[str, pa.Table], again: Callable[[], str] | None = None) -> pa.Table:
        """The answer of `sql` over `relations`, by name.

        Args:
            again: another text of the same query, which is asked where `sql` fails on a row.

        Raises:
            RowNotAnswered: an expression fails on a row.
            InvalidQuery: DuckDB refuses the text or fails over the data.
            TimeLimit, TooLarge: the query takes more than it may. A single call of a function runs to its end first.
            FunctionRefused, RefreshFailed: the query calls a function whose Python may not run.
        """
        self._database.know(sql, self._functions)
        for name, rows in relations.items():
            self._connection.register(name, rows)
        with self._typed_errors(), self._interrupted():
            try:
                return self._computed(sql)
            except (duckdb.Error, OSError) as error:
                if again is None or f" Error: {FAILS_ON_A_ROW}" not in str(error):
                    raise
            return self._computed(again())

    def _computed(self, sql: str) -> pa.Table:
        import pyarrow as pa

        reader = self._connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
        return pa.Table.from_batches(self._spent.answering(reader), reader.schema)

    def define(self, statements: str, rows: pa.Table | None = None) -> None:
        """Run statements of ours, which make what a query then names; `rows` is the table `rows` in them.

        They are one transaction, which ends with the connection: nobody else has ever seen what they make.
        """
        if not self._defines:
            self._connection.begin()
            self._defines = True
        if rows is not None:
            self._connection.register("rows", rows)
        self._database.know(statements, self._functions)
        self._connection.execute(statements)

    @contextmanager
    def _interrupted(self) -> Iterator[None]:
        """Interrupts what runs inside the block when its time is over."""
        left = self._spent.seconds_left
        if left is None:
            yield
            return
        timer = Timer(max(left, 0), self._connection.interrupt)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, OSError) as error:
            # OSError: what fails after the first rows comes through Arrow. The first line says what; the others show
            # the lowered text, which the user has never seen.
            known = error if isinstance(error, duckdb.Error) else error_of(str(error))
            message = str(error).strip().splitlines()[0]
            if isinstance(known, duckdb.InterruptException):
                self._spent.check_time()
                raise KeyboardInterrupt from error
            if isinstance(known, duckdb.OutOfMemoryException):
                raise TooLarge("the query needs more memory than it may have", hint="ask for less") from error
            _, fails, what = message.partition(f" Error: {FAILS_ON_A_ROW}")
            if fails and isinstance(known, duckdb.InvalidInputException):
                fault, words = fault_and_words(what)
                said = f"an expression of the query fails on a row{': ' if words else ' of a subquery'}{words}"
                raise RowNotAnswered(said, fault=fault, hint=_LEFT_OUT) from error
            _, endless, levels = message.partition(f" Error: {TOO_MANY_ROUNDS}")
            if endless:
                raise RecursionEndless.of(levels) from error
            raise _not_answered(known, message) from error


def _not_answered(error: duckdb.Error, message: str) -> InvalidQuery | UnknownName:
    said = f"the query cannot be answered: {message}"
    if _SEVERAL_ROWS in message:
        said, hint = "a subquery that stands for a value has several rows", "leave one with WHERE, LIMIT or MAX(…)"
        return RowNotAnswered(said, fault=RowFault.SEVERAL_ROWS, hint=hint)
    unknown = _UNKNOWN.search(message) if isinstance(error, duckdb.CatalogException) else None
    if unknown is not None:
        kind, name = unknown.groups()
        return UnknownName.among("type" if kind == "Type" else "function", name.lower(), ())
    if isinstance(error, (duckdb.OutOfRangeException, duckdb.ConversionException)):
        fault = RowFault.BAD_TEXT if _NO_NUMBER in message else RowFault.OUT_OF_RANGE
        return RowNotAnswered(said, fault=fault, hint=_LEFT_OUT)
    return InvalidQuery(said)
