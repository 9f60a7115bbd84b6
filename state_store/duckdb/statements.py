"""Statements that stay prepared from one epoch to the next, over relations that are given to them anew each time.

    PREPARE  SELECT … FROM "given_delta_sales" … "given_self" …          once
    EXECUTE  over the rows of this epoch, in Arrow                       each epoch

To parse, bind and plan a rule's text takes DuckDB four fifths of what a small epoch costs in it. It binds a prepared
text again where it reads files or tables (DuckDB 2.0), and not where it reads Arrow streams: so it reads these, of
objects that give another stream each time.

The plan is that of the first rows. So they must be few, each time: whatever the plan, it then takes no time.

Arrow's reader says an error of DuckDB's as an OSError with its text. It is given back the class that it had.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa


_CLASSES: Final[Mapping[str, type[duckdb.Error]]] = {
    "Binder": duckdb.BinderException,
    "Catalog": duckdb.CatalogException,
    "Conversion": duckdb.ConversionException,
    "IO": duckdb.IOException,
    "INTERNAL": duckdb.InternalException,
    "INTERRUPT": duckdb.InterruptException,
    "Invalid Input": duckdb.InvalidInputException,
    "Not implemented": duckdb.NotImplementedException,
    "Out of Memory": duckdb.OutOfMemoryException,
    "Out of Range": duckdb.OutOfRangeException,
    "Parser": duckdb.ParserException,
    "Serialization": duckdb.SerializationException,
}
"""{DuckDB's type of an error: its class}. The type stands at the begin of the text, before the word Error."""


def error_of(said: str) -> duckdb.Error:
    """Make DuckDB's error of its text, of the class that it had."""
    made: duckdb.Error = _CLASSES.get(said.partition(" Error: ")[0], duckdb.Error)(said)
    return made


# DuckDB advises `sql`, which binds the text once more to know its columns: for few rows that takes longer than a copy.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning, "strandline")

MOST_ROWS: Final = 60_000
"""Of each relation that such a statement reads."""
MOST_BYTES: Final = 4 << 20
"""Of its data files: rows that are held are gathered in each epoch."""
_MOST: Final = 512
"""Statements that are kept: half a megabyte each. Where more are wanted by turns, the others run as they come."""
_UNUSED_SECONDS: Final = 300.0
"""After which a statement makes room for another one."""
_REMEMBERED: Final = 8_192
"""Texts that were seen once."""
_NAME: Final = "__kept"


class _Given:
    """A relation of other rows each time."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._none = rows.schema.empty_table()

    def let_go(self) -> None:
        """Keep none of the rows."""
        self.rows = self._none

    def __arrow_c_schema__(self) -> Any:
        return self.rows.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.rows.__arrow_c_stream__(requested_schema)


class _Statement:
    """One statement on a connection of its own."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, text: str, views: Sequence[str], rows: Mapping[str, pa.Table]
    ) -> None:
        self.used = time.monotonic()
        self._connection = connection
        self._given = {name: _Given(each) for name, each in rows.items()}
        for name, given in self._given.items():
            connection.register(name, given)
        for view in views:
            connection.execute(view)
        connection.execute(f"PREPARE {_NAME} AS {text}")

    def suits(self, rows: Mapping[str, pa.Table]) -> bool:
        """True if these rows have the columns that it was prepared for."""
        return self._given.keys() == rows.keys() and all(
            self._given[name].rows.schema.equals(each.schema) for name, each in rows.items()
        )

    def run(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        self.used = time.monotonic()
        for name, each in rows.items():
            self._given[name].rows = each
        try:
            return self._connection.execute(f"EXECUTE {_NAME}").to_arrow_table()
        finally:
            for given in self._given.values():
                given.let_go()

    def close(self) -> None:
        self._connection.close()


class Statements:
    """The statements that an engine keeps. Safe for several threads.

    Args:
        open_: makes a connection, for one statement.
    """

    def __init__(self, open_: Callable[[], duckdb.DuckDBPyConnection], most: int = _MOST) -> None:
        self._open = open_
        self._most = most
        self._lock = Lock()
        self._kept: OrderedDict[_Key, _Statement] = OrderedDict()
        self._tables: Counter[str] = Counter()
        """The statements of each table among them."""
        self._seen: OrderedDict[int, None] = OrderedDict()

    def are_worth(self, of: str, rule: str) -> bool:
        """True from the second time on that it is asked: a text that runs once is not worth being prepared. False where
        there is no room for more.

        Args:
            of: the table that it is run for.
        """
        seen = hash((of, rule))  # a text may be long
        with self._lock:
            known = seen in self._seen
            self._seen[seen] = None
            self._seen.move_to_end(seen)
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            return known and (of in self._tables or self._has_room())

    def run(self, of: str, text: str, views: Sequence[str], rows: Mapping[str, pa.Table]) -> pa.Table:
        """The rows that a SELECT gives.

        Args:
            of: the table that it is run for.
            views: statements that make views which the text names.
            rows: of the relations which the text, or a view, names: few of each.

        Raises:
            duckdb.Error: the text fails, as a text or over the rows.
        """
        key = (of, "\n".join([*views, text]))
        with self._lock:
            statement = self._taken(key)
        if statement is not None and not statement.suits(rows):
            statement.close()
            statement = None
        if statement is None:
            statement = _prepared(self._open(), text, views, rows)
        try:
            found = statement.run(rows)
        except BaseException:
            statement.close()
            raise
        self._keep(key, statement)
        return found

    def close(self) -> None:
        """End them all."""
        with self._lock:
            kept = [self._taken(key) for key in [*self._kept]]
        for statement in kept:
            if statement is not None:
                statement.close()

    def _keep(self, key: _Key, statement: _Statement) -> None:
        gone = []
        with self._lock:
            # Two threads may have run the same text side by side.
            gone.append(self._taken(key))
            self._kept[key] = statement
            self._tables[key[0]] += 1
            if len(self._kept) > self._most:
                gone.append(self._taken(next(iter(self._kept))))
        for each in gone:
            if each is not None:
                each.close()

    def _taken(self, key: _Key) -> _Statement | None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._tables[key[0]] -= 1
            if not self._tables[key[0]]:
                del self._tables[key[0]]
        return found

    def _has_room(self) -> bool:
        oldest = next(iter(self._kept.values()), None)
        full = oldest is not None and len(self._kept) >= self._most
        return not full or (oldest is not None and time.monotonic() - oldest.used > _UNUSED_SECONDS)


def _prepared(
    connection: duckdb.DuckDBPyConnection, text: str, views: Sequence[str], rows: Mapping[str, pa.Table]
) -> _Statement:
    try:
        return _Statement(connection, text, views, rows)
    except BaseException:
        connection.close()
        raise


_Key = tuple[str, str]


@dataclass
class Held:
    """What a rule's text reads of an epoch, held in memory.

    Attributes:
        statements: those that run it.
        of, views, rows: as of `Statements.run`.
    """

    statements: Statements
    of: str
    views: list[str]
    rows: dict[str, pa.Table]

    def run(self, text: str) -> pa.Table:
        """The rows that a SELECT over them gives. Raises as `Statements.run`."""
        return self.statements.run(self.of, text, self.views, self.rows)
