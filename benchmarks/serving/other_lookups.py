"""A look-up by key without a replica: delta-rs with its own pruning; DuckDB, and chDB where it is installed, over the
files of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from random import Random

import duckdb
from deltalake import DeltaTable, QueryBuilder


def lookups(table: object, rows: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """(what looks up, one look-up by it), each to be called before the next one is asked for.

    Args:
        rows: of the table; they have the ids from 0 on.
    """
    random = Random(4)
    opened = DeltaTable(str(table))
    files = opened.file_uris()
    query = QueryBuilder().register("bench", opened)

    def by_delta() -> None:
        found = query.execute(f"SELECT * FROM bench WHERE id = {random.randrange(rows)}").read_all()
        assert found.num_rows == 1

    yield "delta-rs", by_delta
    with duckdb.connect() as db:

        def by_duckdb() -> None:
            assert db.execute("SELECT * FROM read_parquet(?) WHERE id = ?", [files, random.randrange(rows)]).fetchone()

        yield "DuckDB over the files", by_duckdb
    if find_spec("chdb") is None:
        return
    chdb = import_module("chdb")
    paths = [file.removeprefix("file://") for file in files]

    def by_chdb() -> None:
        key = random.randrange(rows)
        each = (f"SELECT * FROM file('{path}', Parquet) WHERE id = {key}" for path in paths)
        assert chdb.query(" UNION ALL ".join(each), "CSV").bytes()

    yield "chDB over the files", by_chdb
