"""The kernel: one DuckDB database in memory, in which refreshes run side by side over the files of tables.

It holds nothing that is not in the lake as well, so it may go at any time. Its memory is bounded, and what does not fit
goes to a folder of its own that ends with it.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

import duckdb

from state_store.kernel.recent import RecentChanges

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS: Final = (
    "SET TimeZone = 'UTC'",
    # A text that names no relation of ours must fail, not find a variable of this process.
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    # DuckDB 2.0 believes that a CASE with an error() in one branch is never NULL, and folds what follows.
    "SET disabled_optimizers = 'statistics_propagation'",
    # Rows of a table have no order; keeping the one they came in costs memory.
    "SET preserve_insertion_order = false",
    # A table's files are opened anew in each epoch, and never change.
    "SET parquet_metadata_cache = true",
)


class Kernel:
    """A DuckDB for refreshes. Close it by `with`.

    Args:
        memory: the most that it may use, as DuckDB writes it (`2GB`).
        threads: that work on queries.
    """

    def __init__(self, memory: str, threads: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="strandline-kernel-")
        self._database = duckdb.connect(":memory:", config={"memory_limit": memory, "threads": threads})
        for setting in _SETTINGS:
            self._database.execute(setting)
        self._database.execute(f"SET temp_directory = '{self._folder.name}'")
        self.registering = Lock()
        """Held while a function is registered: DuckDB has one catalog of them for all connections."""
        self.recent = RecentChanges()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the database and remove what it put aside."""
        self._database.close()
        self._folder.cleanup()

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection whose views and temporary tables nobody else sees; they end with it."""
        connection = self._database.cursor()
        try:
            yield connection
        finally:
            connection.close()
