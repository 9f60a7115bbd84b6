"""A foreign Delta table as a source reads it: versions, and the rows of each (`jobs.ingest.foreign.table`).

    change files            each row with what became of it                UPDATE, DELETE, MERGE with change feed
    only new files          all their rows come                            append
    one file, two vectors   the rows that only one of the two leaves       the same with deletion vectors
    files for files         the rows that are not in both, one by one      copy on write, OVERWRITE, RESTORE

A commit that only rearranges rows (OPTIMIZE, ZORDER BY, REORG) says so in its actions: nothing of it is read.
"""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.jobs.ingest.foreign.data_files import (
    conformed,
    found_in,
    lost_names,
    named,
    open_parquet,
    partition_values,
    path_of,
    without_shared,
)
from strandline.jobs.ingest.foreign.delta_table import ForeignDelta, live_rows
from strandline.jobs.ingest.foreign.table import Changes, mark_of, rows_from
from strandline.jobs.ingest.formats.coerce import Misfit
from strandline.jobs.model.errors import (
    DeltaMissing,
    DeltaSchemaChanged,
    DeltaUnsupported,
    InvalidQuery,
    TypeMismatch,
    UnknownName,
)
from strandline.state_store.delta.deletion_vectors import deleted_positions
from strandline.state_store.delta.rows import CHANGE_TYPE, INSERTIONS
from strandline.state_store.errors import CorruptState, KeyRefused, SettingsError, VersionGone
from strandline.state_store.storage import lake_path
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from strandline.jobs.ingest.foreign.data_files import Node
    from strandline.jobs.ingest.foreign.delta_table import Action, Commit, Schema
    from strandline.jobs.ingest.foreign.table import Kind, Origin
    from strandline.jobs.model.definitions import Column, Source
    from strandline.state_store.storage import StorageOptions


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
        """The id of the table: CREATE OR REPLACE gives it another one, in the same log."""
        return self._table.schema(self.head()).id

    def had_identity(self, identity: str) -> bool:
        return identity in self._table.ids()

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

    def lost_columns(self, version: int) -> frozenset[str]:
        """By their names in data files. Where columns are no longer mapped these are others, of the same columns; and
        where no file stays, as by REPLACE, there is no row that a column of the same name could be wrong for."""
        if self._table.commit(version).metadata is None:
            return frozenset()
        before, after = self._table.schema(version - 1), self._table.schema(version)
        mapped = after.mapping != "none" and not self._replaces_all(version)
        return lost_names(before.columns, after.columns, lambda node: node.physical if mapped else node.name)

    def _replaces_all(self, version: int) -> bool:
        """True if a commit removes every file of the version before."""
        removed = {str(body["path"]) for body in self._table.commit(version).removes}
        return removed.issuperset(str(body["path"]) for body in self._table.files(version - 1))

    def check_after(self, version: int) -> None:
        """Nothing: a log does not go back."""

    def rows(self, version: int, first: int) -> Iterator[pa.Table]:
        return rows_of(self._table, version, first)

    def changes(self, version: int) -> Iterator[Changes]:
        return changes_of(self._table, version)

    def count(self, version: int, *, snapshot: bool) -> int:
        return _count_of(self._table, version) if snapshot else self._table.commit(version).rows

    def size(self, version: int, *, snapshot: bool) -> int:
        if not snapshot:
            return self._table.commit(version).size
        return sum(int(each.get("size") or 0) for each in self._table.files(version))

    def check_files(self, version: int, *, snapshot: bool) -> None:
        check_files(self._table, version, snapshot=snapshot)


_BATCH: Final = 10_000
"""Rows that are read at once: as many as a run of records has."""


def rows_of(table: ForeignDelta, version: int, first: int = 0) -> Iterator[pa.Table]:
    """The rows of a version, in the order of its files' paths, from the one at place `first` on.

    Raises:
        DeltaVersionGone: a file is gone. DeltaUnsupported, DeltaSchemaChanged: it cannot be read.
    """
    yield from rows_from(first, table.files(version), live_rows, _Reader(table, version).live)


def _count_of(table: ForeignDelta, version: int) -> int:
    """How many rows a version has."""
    reader = _Reader(table, version)
    return sum(reader.count(body) for body in table.files(version))


def changes_of(table: ForeignDelta, version: int) -> Iterator[Changes]:
    """What a commit changes: first the rows that go, then those that come. Errors as of `rows_of`."""
    commit = table.commit(version)
    after = _Reader(table, version)
    if commit.changes:
        listed = [after.listed(body) for body in commit.changes]
        yield from (Changes(gone, gone=True) for gone, _ in listed if gone.num_rows)
        yield from (Changes(came) for _, came in listed if came.num_rows)
    elif commit.removes:
        yield from _compared(table, commit, after)
    else:
        for body in commit.adds:
            yield from (Changes(rows) for rows in after.live(body))


def check_files(table: ForeignDelta, version: int, *, snapshot: bool) -> None:
    """Raise DeltaVersionGone unless the files are there that hold the rows of a version, or what its commit changes."""
    commit = table.commit(version)
    bodies = table.files(version) if snapshot else commit.changes or (*commit.adds, *commit.removes)
    for body in bodies:
        name = path_of(str(body["path"]))
        if not (table.path / name).exists():
            raise table.gone(version, f"VACUUM took the file '{name}'")


def _compared(table: ForeignDelta, commit: Commit, after: _Reader) -> Iterator[Changes]:
    """The rows that are in the files of one side only, each as often as it is there more often."""
    before = _Reader(table, commit.version - 1)
    was = {str(body["path"]): body for body in commit.removes}
    gone, came = [], []
    for body in commit.adds:
        other = was.pop(str(body["path"]), None)
        if other is None:
            came += list(after.live(body))
        else:
            first, second = after.between(other, body)
            gone.append(first)
            came.append(second)
    gone += [rows for body in _with_partitions(table, commit.version - 1, was) for rows in before.live(body)]
    if gone and came:
        only_gone, only_came = without_shared(_whole(gone, before), _whole(came, after))
        gone, came = [only_gone], [only_came]
    yield from (Changes(rows, gone=True) for rows in gone if rows.num_rows)
    yield from (Changes(rows) for rows in came if rows.num_rows)


def _with_partitions(table: ForeignDelta, version: int, removed: Mapping[str, Action]) -> list[Action]:
    """The files that are removed, with the values of their partitions.

    A removal may leave them out, as those of RESTORE do: then they are those of the file in the version before.
    """
    known = {path: body.get("partitionValues") for path, body in removed.items()}
    if table.schema(version).partitions and not all(known.values()):
        before = {str(body["path"]): body.get("partitionValues") for body in table.files(version)}
        known = {path: values or before.get(path) for path, values in known.items()}
    return [{**body, "partitionValues": known[path]} for path, body in removed.items()]


def _whole(parts: Sequence[pa.Table], reader: _Reader) -> pa.Table:
    return pa.concat_tables([reader.empty, *parts])


class _Reader:
    """Reads data files as rows of one version."""

    def __init__(self, table: ForeignDelta, version: int) -> None:
        self._table, self._version = table, version
        self._schema: Schema = table.schema(version)
        self._columns = [each for each in self._schema.columns if each.type is not None]

    @property
    def empty(self) -> pa.Table:
        """No rows."""
        types = named(self._columns)
        return pa.schema([(name, sql_type.arrow()) for name, sql_type in types.items()]).empty_table()

    def live(self, body: Action) -> Iterator[pa.Table]:
        """The rows of a file that its deletion vector leaves."""
        file = self._open(body)
        gone = self._gone(body, file.metadata.num_rows)
        begin = 0
        for rows in self._batches(file, body):
            first, last = np.searchsorted(gone, (begin, begin + rows.num_rows))
            if first != last:
                kept = np.ones(rows.num_rows, np.bool_)
                kept[gone[first:last] - begin] = False
                begin += rows.num_rows
                yield rows.filter(pa.array(kept))
            else:
                begin += rows.num_rows
                yield rows

    def between(self, before: Action, after: Action) -> tuple[pa.Table, pa.Table]:
        """Of one file, the rows that only the first deletion vector leaves, and those that only the second leaves."""
        file = self._open(after)
        count = file.metadata.num_rows
        was, now = (self._gone(body, count) for body in (before, after))
        gone, came = np.setdiff1d(now, was), np.setdiff1d(was, now)
        if not len(gone) and not len(came):
            return self.empty, self.empty
        rows = pa.concat_tables([self.empty, *self._batches(file, after)])
        return rows.take(pa.array(gone)), rows.take(pa.array(came))

    def listed(self, body: Action) -> tuple[pa.Table, pa.Table]:
        """The rows of a file of changes: those that go, and those that come."""
        file = self._open(body)
        rows = pa.concat_tables([self.empty, *self._batches(file, body)])
        came = pc.is_in(file.read([CHANGE_TYPE])[CHANGE_TYPE].cast(pa.string()), value_set=pa.array(INSERTIONS))
        return rows.filter(pc.invert(came)), rows.filter(came)

    def count(self, body: Action) -> int:
        """How many rows of a file there are."""
        known = live_rows(body)
        if known is not None:
            return known
        rows = self._open(body).metadata.num_rows
        return int(rows) - len(self._gone(body, rows))

    def _batches(self, file: pq.ParquetFile, body: Action) -> Iterator[pa.Table]:
        stored = file.schema_arrow
        places = {
            node.name: found_in(stored, node) for node in self._columns if node.name not in self._schema.partitions
        }
        wanted = [found.name for found in places.values() if found is not None]
        if not wanted:  # all columns are newer than the file, or in the log
            counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            yield from (self._conformed(None, count, places, body) for count in counts)
            return
        for batch in file.iter_batches(_BATCH, columns=wanted, use_threads=False):
            yield self._conformed(batch, batch.num_rows, places, body)

    def _conformed(
        self, batch: pa.RecordBatch | None, rows: int, places: dict[str, pa.Field | None], body: Action
    ) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for node in self._columns:
            assert node.type is not None, "those of other types are left out"
            found = places.get(node.name)
            try:
                if node.name in self._schema.partitions:
                    text = self._partition(body, node)
                    columns[node.name] = partition_values(text, node.type, rows, single=node.said == "float")
                elif found is None or batch is None:
                    columns[node.name] = pa.nulls(rows, node.type.arrow())
                else:
                    columns[node.name] = conformed(batch.column(found.name), node)
            except Misfit as error:
                raise DeltaSchemaChanged(
                    f"column '{node.name}' of '{self._table.path}', version {self._version}: {error}",
                    hint="a file has values that are not of the table's column",
                ) from error
        return pa.table(columns)

    def _partition(self, body: Action, node: Node) -> str | None:
        values: dict[str, Any] = body.get("partitionValues") or {}
        for name in (node.physical, node.name):
            if name in values:
                found = values[name]
                return None if found is None else str(found)
        found = next((value for name, value in values.items() if name.lower() == node.name), None)
        if found is None and not values:
            raise DeltaUnsupported(
                f"version {self._version} of '{self._table.path}' removes a file without the values of its partition",
                hint="write with extended file metadata, as Spark and delta-rs do",
            )
        return None if found is None else str(found)

    def _gone(self, body: Action, rows: int) -> NDArray[np.int64]:
        try:
            return deleted_positions(self._table.path, body.get("deletionVector"), rows)
        except VersionGone as error:
            raise self._table.gone(self._version, "VACUUM took a deletion vector") from error
        except CorruptState as error:
            raise DeltaUnsupported(f"{error.message}, version {self._version}", hint=_CLONE) from error

    def _open(self, body: Action) -> pq.ParquetFile:
        name = path_of(str(body["path"]))
        if "://" in name or name.startswith(("/", "file:")) or ".." in PurePosixPath(name).parts:
            raise DeltaUnsupported(
                f"version {self._version} of '{self._table.path}' names a file outside the table: '{name}'", hint=_CLONE
            )
        try:
            place = self._table.path / name
            source = place if isinstance(place, Path) else io.BytesIO(place.read_bytes())
            return open_parquet(source)
        except FileNotFoundError as error:
            raise self._table.gone(self._version, f"VACUUM took the file '{name}'") from error
        except (OSError, pa.ArrowException, KeyRefused) as error:
            raise DeltaUnsupported(f"the file '{name}' of '{self._table.path}' does not read: {error}") from error


_CLONE: Final = "a shallow clone reads the files of another table: name that table, or make a deep clone"
