"""The kernel: one DuckDB database in memory, in which refreshes run side by side over the files of tables.

It holds nothing that is not in the lake as well, so it may go at any time. Its memory is bounded, and what does not fit
goes to a folder of its own that ends with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import duckdb

from strandline.state_store.files import remove_left_behind
from strandline.state_store.kernel import elementary
from strandline.state_store.kernel.kept import Kept
from strandline.state_store.kernel.rows import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_EACH: Final = (
    "SET TimeZone = 'UTC'",
    # A text that names no relation of ours must fail, not find a variable of this process.
    "SET python_enable_replacements = false",
)
"""Settings of a connection: another one does not inherit them."""
_ALL: Final = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    # DuckDB 2.0 believes that a CASE with an error() in one branch is never NULL, and folds what follows.
    "SET disabled_optimizers = 'statistics_propagation'",
    # Rows of a table have no order; keeping the one they came in costs memory.
    "SET preserve_insertion_order = false",
)
_ASIDE: Final = Path(tempfile.gettempdir())
_PREFIX: Final = "strandline-kernel-"


class Kernel:
    """A DuckDB for refreshes. Close it by `with`.

    Args:
        memory: the most that it may use, as DuckDB writes it (`2GB`).
        threads: that work on queries.
    """

    def __init__(self, memory: str, threads: int) -> None:
        remove_left_behind(_ASIDE, _PREFIX)
        # DuckDB makes it when it first puts something aside.
        self._folder = _ASIDE / f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._database = duckdb.connect(":memory:", config={"memory_limit": memory, "threads": threads})
        for setting in _ALL:
            self._database.execute(setting)
        self._database.execute(f"SET temp_directory = {literal(str(self._folder))}")
        elementary.register(self._database)
        self._registering = Lock()
        self.kept = Kept.nothing(self._folder / "copies")

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the database and remove what it put aside."""
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def register(self, register: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
        """Make Python functions known to all connections, for as long as the kernel lives.

        Args:
            register: does so on the connection that it is given. DuckDB keeps the Python of a function with that
                connection, and its name with the database: after a `close`, a call would end the process.
        """
        with self._registering:
            register(self._database)

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection whose views and temporary tables nobody else sees; they end with it."""
        connection = self._database.cursor()
        try:
            for setting in _EACH:
                connection.execute(setting)
            yield connection
        finally:
            connection.close()
