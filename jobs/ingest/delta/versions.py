"""A foreign Delta table as a source reads it: versions, and the rows of each (`jobs.ingest.foreign.table`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ingest.delta.table import ForeignDelta
from strandline.jobs.ingest.foreign.table import mark_of
from strandline.jobs.model.errors import DeltaMissing, InvalidQuery, TypeMismatch, UnknownName
from strandline.state_store.errors import SettingsError
from strandline.state_store.storage.open import lake_path
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.ingest.foreign.origin import Kind, Origin
    from strandline.jobs.ingest.foreign.table import Changes
    from strandline.jobs.model.definitions import Column, Source
    from strandline.state_store.storage.open import StorageOptions


def open_delta(location: str, options: StorageOptions) -> ForeignDelta:
    """The foreign table at a path or URL. Nothing is read yet. Raises DeltaMissing: it is none that can be opened."""
    try:
        return ForeignDelta(lake_path(location, options))
    except SettingsError as error:
        raise DeltaMissing(f"'{location}' names no Delta table: {error.message}", hint=error.hint) from error


def check_new_columns(
    source: Source, columns: Sequence[Column], taken: int | None, origin: Origin, options: StorageOptions
) -> None:
    """Check that a source over a Delta table can get columns which the table got: no row was read without a value of
    theirs. The rows that are in the lake have NULL there, as the table has.

    Args:
        taken: the newest version of which rows were read; None: none was.

    Raises:
        UnknownName, TypeMismatch: the table has no such column, or one of another type.
        InvalidQuery: it had the column when rows were read.
        DeltaMissing, DeltaVersionGone: the table, or the schema of that version, cannot be read.
    """
    table = open_delta(origin.location, options)
    there = {node.name: node for node in table.schema(table.head()).columns}
    before = {(node.physical, node.id) for node in table.schema(taken).columns} if taken is not None else set()
    for column in columns:
        node = there.get(column.name)
        if node is None:
            raise UnknownName.among("column", column.name, there)
        if node.type != column.type:
            raise TypeMismatch(
                f"column '{column.name}' is {node.type or node.said} in '{origin.location}', not {column.type}"
            )
        if (node.physical, node.id) in before:
            raise InvalidQuery(
                sentence(
                    "'{}' cannot get column '{}': '{}' has had it since version {} or before, and the rows up to there "
                    "were read without it",
                    Name(source.name),
                    column.name,
                    origin.location,
                    taken,
                ),
                hint="DROP the source with its views, and CREATE it again; it begins with the table as it is now",
            )


class DeltaVersions:
    """The versions of a Delta table: those of its log."""

    kind: Kind = "delta"

    def __init__(self, table: ForeignDelta) -> None:
        self._table = table

    def head(self) -> int:
        return self._table.head()

    def settled(self) -> int:
        """The newest version: the log says for ever what it is."""
        return self.head()

    def identity(self) -> str:
        """The id of the table."""
        return self._table.schema(self.head()).id

    def mark(self, version: int) -> int | None:
        content = self._table.content(version)
        return None if content is None else mark_of(content)

    def known_columns(self) -> frozenset[str]:
        return frozenset(node.name for node in self._table.schema(self.head()).columns)

    def about(self, version: int) -> str:
        return f"'{self._table.path}', version {version}"

    def time_of(self, version: int) -> int:
        return self._table.timestamp(version)

    def is_whole(self, version: int) -> bool:
        """Always: each version follows from the one before it."""
        return True

    def check_after(self, version: int) -> None:
        """Nothing: a log does not go back."""

    def rows(self, version: int, first: int) -> Iterator[pa.Table]:
        from strandline.jobs.ingest.delta.rows import rows_of

        return rows_of(self._table, version, first)

    def changes(self, version: int) -> Iterator[Changes]:
        from strandline.jobs.ingest.delta.rows import changes_of

        return changes_of(self._table, version)

    def count(self, version: int, *, snapshot: bool) -> int:
        from strandline.jobs.ingest.delta.rows import count_of

        return count_of(self._table, version) if snapshot else self._table.commit(version).rows

    def size(self, version: int, *, snapshot: bool) -> int:
        if not snapshot:
            return self._table.commit(version).size
        return sum(int(each.get("size") or 0) for each in self._table.files(version))

    def check_files(self, version: int, *, snapshot: bool) -> None:
        from strandline.jobs.ingest.delta.rows import check_files

        check_files(self._table, version, snapshot=snapshot)
