"""Seeds: the rows of a CSV file as a Delta table of the lake's folder `seeds`, over which a source is declared.

A file that changed is another version of its table, and what reads it takes in the rows that differ. Other columns are
another table: its folder is named after the columns too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from dbt.adapters.strandline.storage import quoted, storage_options
from dbt_common.exceptions import DbtRuntimeError
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings

_TAKEN_ARROW = "seed"


def written(name: str, columns: Mapping[str, str], rows: Sequence[Sequence[str | None]], settings: Settings) -> str:
    """Write rows as a version of their table, unless it has them already; where it is.

    Args:
        columns: {column: its type, in DuckDB's words or ours}.
        rows: values as texts.

    Raises:
        DbtRuntimeError: a value is not of its column's type.
    """
    wanted = _typed(name, columns, rows)
    shape = sha256(str(wanted.schema).encode()).hexdigest()[:8]
    place = f"{str(settings.lake).rstrip('/')}/seeds/{name}-{shape}"
    storage = storage_options(settings)
    if not DeltaTable.is_deltatable(place, storage_options=storage) or _differ(
        pa.table(DeltaTable(place, storage_options=storage).to_pyarrow_table()), wanted
    ):
        write_deltalake(place, wanted, mode="overwrite", storage_options=storage)
    return place


def _typed(name: str, columns: Mapping[str, str], rows: Sequence[Sequence[str | None]]) -> pa.Table:
    texts = pa.table(
        [pa.array([row[place] for row in rows], pa.string()) for place in range(len(columns))], list(columns)
    )
    casts = ", ".join(f"CAST({quoted(each)} AS {kind}) AS {quoted(each)}" for each, kind in columns.items())
    try:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register(_TAKEN_ARROW, texts)
            return connection.sql(f"SELECT {casts} FROM {_TAKEN_ARROW}").to_arrow_table()
    except duckdb.Error as error:
        raise DbtRuntimeError(f"seed {name}: {error}") from error


def _differ(one: pa.Table, other: pa.Table) -> bool:
    """True if two tables do not hold the same rows, each as often."""
    with duckdb.connect() as connection:
        connection.register("one", one)
        connection.register("other", other)
        text = "SELECT COUNT(*) FROM ((FROM {0} EXCEPT ALL FROM {1}) UNION ALL (FROM {1} EXCEPT ALL FROM {0}))"
        (found,) = connection.execute(text.format("one", "other")).fetchall()
    return bool(found[0])
