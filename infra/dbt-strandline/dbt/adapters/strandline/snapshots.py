"""dbt's snapshots: a Delta table of the lake's folder `snapshots`, into which each `dbt snapshot` merges, and a source
over it, so that views over a snapshot take in the rows that begin and end.

Which rows those are, dbt's own text for the strategy says (`snapshot_staging_table`), as a pull query over the source.
One merge is one version: killed at any moment, all of a snapshot is taken or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from dbt.adapters.strandline.storage import quoted, storage_options
from dbt_common.exceptions import DbtRuntimeError
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from strandline.state_store.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    import strandline

_KIND: Final = "dbt_change_type"
_KEY: Final = "dbt_unique_key"
"""Columns of dbt's text that are not the snapshot's; those of a key of several columns have a number behind."""


class Snapshot:
    """One snapshot.

    Attributes:
        key: what the column is called that tells its rows apart, `dbt_scd_id`.
    """

    def __init__(self, name: str, key: str, lake: strandline.Lake) -> None:
        self.name = name
        self.key = key
        self.place = f"{str(lake.settings.lake).rstrip('/')}/snapshots/{name}"
        self._lake = lake
        self._storage = storage_options(lake.settings)

    def make(self, select: str) -> None:
        """Make its table, without rows, with the columns of a SELECT; what is there stays."""
        if not DeltaTable.is_deltatable(self.place, storage_options=self._storage):
            empty = self._lake.query_arrow(f"SELECT * FROM ({select}) LIMIT 0")
            write_deltalake(self.place, empty, storage_options=self._storage)

    @property
    def declaration(self) -> str:
        """The statement of the source over it."""
        place = self.place.replace("'", "''")
        return f"CREATE TABLE IF NOT EXISTS {quoted(self.name)} WITH (DELTA = '{place}', KEY = '{self.key}')"

    def new_columns(self, select: str) -> dict[str, str]:
        """{column: its type} of those of dbt's text that the source does not have."""
        there = {each["name"] for each in self._lake.describe(self.name)["columns"]}
        found = self._lake.columns(select)
        return {each: kind for each, kind in found.items() if each not in there and not _is_helper(each)}

    def add_columns(self, names: Iterable[str], select: str) -> None:
        """Give its table the columns of a SELECT that it does not have yet."""
        empty = self._lake.query_arrow(f"SELECT * FROM ({select}) LIMIT 0").select(list(names))
        write_deltalake(self.place, empty, mode="append", schema_mode="merge", storage_options=self._storage)

    def take(self, select: str, valid_to: str) -> tuple[int, int]:
        """Merge what dbt's text says now, in one commit.

        Args:
            valid_to: what this column is called.

        Returns:
            How many rows end, and how many begin.

        Raises:
            DbtRuntimeError: `unique_key` is not unique; or the table cannot be written. Nothing was taken.
        """
        found = self._lake.query_arrow(select)
        begin = found.filter(pc.equal(found[_KIND], "insert"))
        self._check_unique(begin)
        columns = [each for each in found.column_names if not _is_helper(each)]
        if found.num_rows:
            try:
                (
                    DeltaTable(self.place, storage_options=self._storage)
                    .merge(found, f"t.{quoted(self.key)} = s.{quoted(self.key)}", "s", "t")
                    .when_matched_update({quoted(valid_to): f"s.{quoted(valid_to)}"}, f"s.{_KIND} <> 'insert'")
                    .when_not_matched_insert({quoted(each): f"s.{quoted(each)}" for each in columns})
                    .execute()
                )
            except DeltaError as error:
                raise DbtRuntimeError(f"snapshot {self.name}: {error}") from error
            failpoint("after-snapshot-merge")
        return found.num_rows - begin.num_rows, begin.num_rows

    def _check_unique(self, begin: pa.Table) -> None:
        keys = [each for each in begin.column_names if each.startswith(_KEY)]
        counts = begin.group_by(keys).aggregate([([], "count_all")])
        several = counts.filter(pc.greater(counts["count_all"], 1))
        if several.num_rows:
            first = ", ".join(str(value) for name, value in several.slice(0, 1).to_pylist()[0].items() if name in keys)
            raise DbtRuntimeError(
                f"{several.num_rows} values of unique_key have several rows in the query of the snapshot {self.name}, "
                f"such as {first}: a snapshot keeps one present row of each"
            )


def _is_helper(column: str) -> bool:
    return column in (_KIND, _KEY) or column.startswith(f"{_KEY}_")
