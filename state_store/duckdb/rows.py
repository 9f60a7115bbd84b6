"""Rows and changes of a table as DuckDB reads them: SELECTs over the data files that our log names.

    rows      read_parquet([files …]) without the places in the deletion vectors, each row with its place
    changes   of a commit that only adds: its files; of another: the rows by which the files differ (`delta.feed`)

A place is a number: the file's, in the order of the SELECT, and the row's in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from strandline.state_store.delta import rows
from strandline.state_store.delta.data_files import stated_checksum
from strandline.state_store.delta.deletion_vectors import deleted_rows
from strandline.state_store.delta.log import inside
from strandline.state_store.delta.schema import added_columns, columns_of
from strandline.state_store.delta.statistics import without_nulls
from strandline.state_store.duckdb.engine import literal
from strandline.state_store.tablespec import FILE, POSITION, STATE, VERSION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from strandline.state_store.delta.log import Commit
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.duckdb.engine import LocalFiles, RecentChanges
    from strandline.state_store.paths import LakePath

_BITS: Final = 40
"""Bits of a place for the row's number in its file; what is left is for the file's: 8 million files of 10^12 rows."""
_HERE: Final = f"__gone.place = ({FILE} << {_BITS} | {POSITION})"


@dataclass(frozen=True)
class PlacedRows:
    """The rows of a version.

    Attributes:
        text: a SELECT of the stored columns, `__file` and `__position` (BIGINT each).
        files: the data files by their numbers, relative to the table.
        without_nulls: columns in which no row has NULL, by what the log says of the files; `__state.<field>` for a
            field of that struct.
    """

    text: str
    files: tuple[str, ...]
    without_nulls: frozenset[str] = frozenset()

    def positions(self, files: pa.Array, positions: pa.Array) -> dict[str, BitMap64]:
        """{data file: positions} of the rows with these places."""
        numbers, rows = np.asarray(files), np.asarray(positions).astype(np.uint64)
        return {self.files[number]: BitMap64(rows[numbers == number]) for number in np.unique(numbers).tolist()}


class TableRows:
    """The rows of one table, for one connection.

    Args:
        local: its data files on this machine's disk.
        schema: the stored columns.
        name: what relations of it on the connection are named by: `<name>_…`.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, local: LocalFiles, path: LakePath, schema: pa.Schema, name: str
    ) -> None:
        self._connection = connection
        self._local = local
        self._path = path
        self._schema = schema
        self._name = name

    def none(self) -> PlacedRows:
        """No rows."""
        placed = pa.schema([*self._schema, (FILE, pa.int64()), (POSITION, pa.int64())])
        return PlacedRows(f"SELECT * FROM {self._register('none', placed.empty_table())}", ())

    def at(self, snapshot: Snapshot) -> PlacedRows:
        """All rows of a version.

        Raises:
            VersionGone: a data file or a deletion vector is gone.
            CorruptState: one of them is broken.
        """
        parts: list[str] = []
        vectors: list[Any] = []
        files: list[str] = []
        for (whole, lacking), group in groupby(self._live(snapshot), key=itemgetter(0, 1)):
            found = list(group)
            scan = self._scan([copy for *_, copy, _ in found], len(files), lacking)
            for *_, body in found:
                if not whole:
                    gone = np.array(deleted_rows(self._path, body["deletionVector"]).to_array(), np.int64)
                    vectors.append(gone | len(files) << _BITS)
                files.append(unquote(body["path"]))
            without = f"SELECT * FROM ({scan}) ANTI JOIN {self._name_of('gone')} AS __gone ON {_HERE}"
            parts.append(scan if whole else without)
        if vectors:
            self._register("gone", pa.table({"place": pa.array(np.concatenate(vectors))}))
        if not parts:
            return self.none()
        known = (without_nulls(body.get("stats") or "") for body in snapshot.files.values())
        return PlacedRows(" UNION ALL ".join(parts), tuple(files), frozenset.intersection(*known))

    def _live(self, snapshot: Snapshot) -> list[tuple[bool, tuple[str, ...], Path, Mapping[str, Any]]]:
        """The files of a version: (no row is deleted, the columns it lacks, where it can be read, its `add` action).

        Those with deleted rows first: of the others no place need be looked at.
        """
        schema = snapshot.metadata["schemaString"]
        newer = self._newer(columns_of(schema))
        later = [name for name in added_columns(schema) if name in self._schema.names]
        found = []
        for name, body in snapshot.files.items():
            copy = self._local.path_of(self._path, inside(self._path, name), stated_checksum(body))
            has = self._local.columns_of(copy) if later else frozenset()
            lacking = (*newer, *(each for each in later if each not in has))
            found.append((body.get("deletionVector") is None, lacking, copy, body))
        return sorted(found, key=itemgetter(0, 1))

    def as_changes(self, snapshot: Snapshot) -> str:
        """SELECT of all rows of a version as changes. Raises as `at`."""
        return self._marked(self.at(snapshot).text, 1, snapshot.version)

    def changes(self, commits: Iterable[Commit], recent: RecentChanges) -> str:
        """SELECT of the changes of the commits, not consolidated: stored columns, `__weight`, `_commit_version`.

        Raises: as `at`.
        """
        parts = [self._changes_of(commit, recent) for commit in commits if commit.changes_rows]
        return " UNION ALL ".join(parts) or self._marked(self.none().text, 1, 0)

    def _changes_of(self, commit: Commit, recent: RecentChanges) -> str:
        known = recent.find(self._path, commit.record.nonce) if commit.record is not None else None
        if known is None and commit.only_adds and not commit.change_files:
            added = [self._local.path_of(self._path, file.path, file.checksum) for file in commit.added]
            newer = self._newer(pq.read_schema(added[0]).names)
            return self._marked(self._scan(added, 0, newer), 1, commit.version)
        if known is None or self._newer(known.column_names):
            known = rows.changes_of(self._path, commit, self._schema)
        name = self._register(str(commit.version), known)
        return f"SELECT {self._columns()}, {WEIGHT}, {commit.version}::BIGINT AS {VERSION} FROM {name}"

    def _newer(self, names: Sequence[str]) -> list[str]:
        """The columns that rows with only these do not have yet: the table was given them later."""
        return [name for name in self._schema.names if name not in names]

    def _scan(self, files: Sequence[Path], first: int, newer: Sequence[str]) -> str:
        listed = ", ".join(literal(str(file)) for file in files)
        place = f"file_index::BIGINT + {first} AS {FILE}, file_row_number AS {POSITION}"
        there = ", ".join(quoted(name) for name in self._schema.names if name not in newer)
        rows = f"SELECT {there}, {place} FROM read_parquet([{listed}], hive_partitioning = false)"
        if not newer:
            return rows
        # The relation without rows gives the columns that are NULL their types.
        return f"SELECT {self._columns()}, {FILE}, {POSITION} FROM ({rows} UNION ALL BY NAME {self.none().text})"

    def _marked(self, rows: str, weight: int, version: int) -> str:
        marks = f"{weight}::BIGINT AS {WEIGHT}, {version}::BIGINT AS {VERSION}"
        return f"SELECT {self._columns()}, {marks} FROM ({rows})"

    def _columns(self) -> str:
        """The stored columns. Of `__state` only the fields of this schema: what else it keeps, another definition may
        keep in another type, and commits before and after that are read together."""
        return ", ".join(
            f"struct_pack({_fields(each.type)}) AS {STATE}" if each.name == STATE else quoted(each.name)
            for each in self._schema
        )

    def _register(self, part: str, rows: pa.Table) -> str:
        """The quoted name of a relation of these rows."""
        self._connection.register(f"{self._name}_{part}", rows)
        return self._name_of(part)

    def _name_of(self, part: str) -> str:
        return quoted(f"{self._name}_{part}")


def _fields(state: pa.StructType) -> str:
    names = (quoted(state.field(place).name) for place in range(state.num_fields))
    return ", ".join(f"{name} := ({STATE}).{name}" for name in names)


def quoted(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'
