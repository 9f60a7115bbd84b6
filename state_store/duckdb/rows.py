"""Rows and changes of a table as DuckDB reads them: SELECTs over the data files that our log names.

    rows      read_parquet([files …]) without the places in the deletion vectors, each row with its place
    changes   of a commit that only adds: its files; of another: the rows by which the files differ (`delta.feed`)

A place is a number: the file's, in the order of the SELECT, and the row's in it.

Where the keys of the wanted rows are known, they are looked up in the files' arrangements (`state_store.arrangements`),
and only files without one are scanned. What a reading gives then are all rows with these keys, and others too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from strandline.state_store.arrangements import DataFile, column_at, distinct, hashes_of
from strandline.state_store.delta import rows
from strandline.state_store.delta.data_files import data_of, stated_checksum
from strandline.state_store.delta.deletion_vectors import deleted_positions, deleted_rows
from strandline.state_store.delta.log import inside
from strandline.state_store.delta.statistics import row_count, whole_bounds, without_nulls
from strandline.state_store.duckdb.engine import literal
from strandline.state_store.duckdb.statements import MOST_BYTES, MOST_ROWS
from strandline.state_store.errors import CorruptState
from strandline.state_store.tablespec import (
    FILE,
    POSITION,
    STATE,
    VERSION,
    WEIGHT,
    added_columns,
    arrow_schema,
    columns_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from strandline.state_store.arrangements import Arrangement, Arrangements
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.duckdb.engine import LocalFiles, RecentRows
    from strandline.state_store.paths import LakePath

_BITS: Final = 40
"""Bits of a place for the row's number in its file; what is left is for the file's: 8 million files of 10^12 rows."""
_HERE: Final = f"__gone.place = ({FILE} << {_BITS} | {POSITION})"


def _in_one(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Rows of that schema in one piece."""
    found = parts[0] if len(parts) == 1 else pa.concat_tables([schema.empty_table(), *parts])
    return found.combine_chunks()


def _placed(schema: pa.Schema) -> pa.Schema:
    """The stored columns and the place of a row."""
    return pa.schema([*schema, (FILE, pa.int64()), (POSITION, pa.int64())])


def _narrowed(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """The columns of a schema, of `__state` only its fields; None where some are of other types, or lacking."""
    if rows.schema.equals(schema):
        return rows
    columns = []
    for field in schema:
        place = rows.schema.get_field_index(field.name)
        if place < 0:
            return None
        column = rows.column(place)
        if field.name == STATE and column.type != field.type:
            column = _fewer_fields(column, field.type)
        if column is None or column.type != field.type:
            return None
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class Keys:
    """The rows to be read: those that have one of these keys.

    Attributes:
        columns: the key's, as they are stored: `__state.<field>` for a field of that struct.
        values: of the keys, a column for each of these.
    """

    columns: tuple[str, ...]
    values: pa.Table


@dataclass(frozen=True)
class _Hashed:
    """Keys by their hashes.

    Attributes:
        hashes: ascending, each once.
        each: of each key, in their order.
        numbers: the columns of whole numbers without NULL, in that order too.
    """

    columns: tuple[str, ...]
    hashes: NDArray[np.uint64]
    each: NDArray[np.uint64]
    numbers: tuple[tuple[str, NDArray[np.int64]], ...]

    @classmethod
    def of(cls, keys: Keys) -> _Hashed:
        """Hash them."""
        each = hashes_of(keys.values)
        numbers = [
            (name, column.to_numpy().astype(np.int64))
            for name, column in zip(keys.columns, keys.values.columns, strict=True)
            if pa.types.is_integer(column.type) and not column.null_count
        ]
        return cls(keys.columns, distinct([each]) if len(each) else each, each, tuple(numbers))

    def within(self, stats: str) -> NDArray[np.uint64]:
        """The hashes of the keys that a file can have by the bounds of its columns: where keys grow with time, an epoch
        brings many that no older file has."""
        kept = np.ones(len(self.each), np.bool_)
        for name, values in self.numbers:
            bounds = whole_bounds(stats, name)
            if bounds is not None:
                kept &= (values >= bounds[0]) & (values <= bounds[1])
        return self.hashes if kept.all() else distinct([self.each[kept]])


@dataclass(frozen=True)
class Part:
    """One of several parts of a version's rows: those of some of its data files.

    Attributes:
        number: which, from 0 on.
        parts: how many there are, in which every row is once.
    """

    number: int
    parts: int


@dataclass(frozen=True)
class PlacedRows:
    """The rows of a version.

    Attributes:
        text: a SELECT of the stored columns, `__file` and `__position` (BIGINT each).
        files: the data files by their numbers, relative to the table.
        without_nulls: columns in which no row has NULL, by what the log says of the files; `__state.<field>` for a
            field of that struct.
        found: rows that were looked up.
        scanned: rows of the files that the SELECT reads, deleted ones included.
    """

    text: str
    files: tuple[str, ...]
    without_nulls: frozenset[str] = frozenset()
    found: int = 0
    scanned: int = 0

    def positions(self, files: pa.Array, positions: pa.Array) -> dict[str, BitMap64]:
        """{data file: positions} of the rows with these places."""
        numbers, rows = np.asarray(files), np.asarray(positions).astype(np.uint64)
        return {self.files[number]: BitMap64(rows[numbers == number]) for number in np.unique(numbers).tolist()}


@dataclass(frozen=True)
class Computed:
    """The rows that a text gives, which another text has computed, with those of others.

    Attributes:
        stored: the rows before, of a keyed table.
    """

    rows: pa.Table
    stored: PlacedRows | None

    def run(self, _text: str) -> pa.Table:
        """The rows."""
        return self.rows


class TableRows:
    """The rows of one table, for one connection.

    Args:
        local: its data files on this machine's disk.
        schema: the stored columns.
        name: what relations of it on the connection are named by: `<name>_…`.
        arrangements: of data files; without them all are scanned.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        local: LocalFiles,
        path: LakePath,
        schema: pa.Schema,
        name: str,
        arrangements: Arrangements | None = None,
    ) -> None:
        self._connection = connection
        self._local = local
        self._arrangements = arrangements
        self._path = path
        self._schema = schema
        self._name = name

    def none(self) -> PlacedRows:
        """No rows."""
        return PlacedRows(f"SELECT * FROM {self._register('none', _placed(self._schema).empty_table())}", ())

    def none_held(self) -> tuple[PlacedRows, pa.Table]:
        """No rows, in memory."""
        return PlacedRows("", ()), _placed(self._schema).empty_table()

    def held(
        self, snapshot: Snapshot, files: RecentRows, gathered: RecentRows | None = None
    ) -> tuple[PlacedRows, pa.Table] | None:
        """All rows of a version in memory, the stored columns and their places; None where they have other columns.

        Args:
            files: rows of data files that are in memory already.
            gathered: rows of versions; None: nobody else asks for this one.

        Raises: as `at`.
        """
        name = f"{snapshot.table_id} {snapshot.version} {snapshot.sums.marks.files:x}"
        rows = None if gathered is None else gathered.find(self._path, name)
        if rows is None:
            rows = self._gathered(snapshot, files)
            if rows is None:
                return None
            if gathered is not None:
                gathered.put(self._path, name, rows, copied=True)
        narrowed = _narrowed(rows, self._schema)
        if narrowed is None:
            return None
        bodies = snapshot.files.values()
        known = [without_nulls(body.get("stats") or "") for body in bodies] or [frozenset[str]()]
        names = tuple(unquote(body["path"]) for body in bodies)
        whole = pa.Table.from_arrays([*narrowed.columns, rows[FILE], rows[POSITION]], schema=_placed(self._schema))
        return PlacedRows("", names, frozenset.intersection(*known)), whole

    def _gathered(self, snapshot: Snapshot, files: RecentRows) -> pa.Table | None:
        """All rows of a version with all columns and their places; None where a file has others."""
        stored = arrow_schema(snapshot.metadata["schemaString"])
        placed, parts = _placed(stored), []
        for number, (name, body) in enumerate(snapshot.files.items()):
            # Another tool's file may come back under its name with other rows.
            stated = stated_checksum(body)
            rows = None if stated is None else files.find(self._path, name)
            if rows is None:
                rows = data_of(self._path, inside(self._path, name), stated).to_table(schema=stored)
                rows = files.put(self._path, name, rows)
            positions = np.arange(rows.num_rows)
            if body.get("deletionVector") is not None:
                gone = deleted_positions(self._path, body["deletionVector"], rows.num_rows)
                positions = np.delete(positions, gone)
                rows = rows.take(pa.array(positions))
            whole = _narrowed(rows, stored)
            if whole is None:
                return None
            places = [pa.array(np.full(rows.num_rows, number)), pa.array(positions, pa.int64())]
            parts.append(pa.Table.from_arrays([*whole.columns, *places], schema=placed))
        return _in_one(parts, placed)

    def held_changes(self, commits: Iterable[Commit], recent: RecentRows) -> pa.Table | None:
        """The changes of the commits in memory, not consolidated: stored columns, `__weight`, `_commit_version`; None
        where they have other columns.

        Raises: as `at`.
        """
        marked = pa.schema([*self._schema, (WEIGHT, pa.int64()), (VERSION, pa.int64())])
        parts = []
        for commit in commits:
            if not commit.changes_rows:
                continue
            known = self._recent_or_read(commit, recent)
            if known is None:
                return None
            narrowed = _narrowed(known, self._schema)
            if narrowed is None:
                return None
            versions = pa.repeat(pa.scalar(commit.version, pa.int64()), known.num_rows)
            parts.append(pa.Table.from_arrays([*narrowed.columns, known[WEIGHT], versions], schema=marked))
        return _in_one(parts, marked)

    def _recent_or_read(self, commit: Commit, recent: RecentRows) -> pa.Table | None:
        """The changes of a commit, and of few rows that came by it for all who read them next; None: they are read from
        its files."""
        if commit.record is None or not commit.record.nonce:
            return None
        known = recent.find(self._path, commit.record.nonce)
        if known is not None or not commit.only_adds or commit.change_files or commit.record.inserted > MOST_ROWS:
            return known
        files = [data_of(self._path, file.path, file.checksum).to_table() for file in commit.added]
        if not files or any(each.schema != files[0].schema for each in files):
            return None
        came = pa.concat_tables(files)
        came = came.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), came.num_rows))
        return recent.put(self._path, commit.record.nonce, came)

    def at(self, snapshot: Snapshot, keys: Sequence[Keys] = (), part: Part | None = None) -> PlacedRows:
        """All rows of a version, or those with some keys.

        Args:
            keys: rows that have none of them may be left out, and need not be. Without any, all rows are wanted.
            part: the only rows that are wanted.

        Raises:
            VersionGone: a data file or a deletion vector is gone.
            CorruptState: one of them is broken.
        """
        live = self._live(snapshot, part)
        arranged = self._looked_up(live, keys) if keys else {}
        found = [each for each in live if each.name in arranged]
        rest = [each for each in live if each.name not in arranged]
        texts = [*self._scans(rest), *self._copies(found, arranged, len(rest))]
        if not texts:
            return self.none()
        known = (without_nulls(body.get("stats") or "") for body in snapshot.files.values())
        return PlacedRows(
            " UNION ALL ".join(texts),
            tuple(unquote(each.body["path"]) for each in [*rest, *found]),
            frozenset.intersection(*known),
            sum(rows.num_rows for rows in arranged.values()),
            sum(_count(each.body) for each in rest) if keys else 0,
        )

    def are_few(self, snapshot: Snapshot) -> bool:
        """True if its data files have so few rows, deleted ones included, that they may be held in memory."""
        try:
            rows = sum(row_count(body) for body in snapshot.files.values())
        except CorruptState:  # the log does not say
            return False
        return rows <= MOST_ROWS and sum(body["size"] for body in snapshot.files.values()) <= MOST_BYTES

    def suits_lookup(self, snapshot: Snapshot, keys: int) -> bool:
        """True if so few keys, of the rows that there are, may be looked up: in a file that is large enough for it."""
        made, counts = self._arrangements, [_count(body) for body in snapshot.files.values()]
        return (
            made is not None and max(counts, default=0) >= made.fewest_rows and keys <= made.largest_share * sum(counts)
        )

    def _scans(self, files: Sequence[_Live]) -> Iterator[str]:
        """SELECTs of all rows of files, numbered from 0."""
        vectors: list[Any] = []
        first = 0
        for (whole, lacking), group in groupby(files, key=lambda each: (each.whole, each.lacking)):
            scanned = list(group)
            scan = self._scan([each.copy for each in scanned], first, lacking)
            if not whole:
                for number, each in enumerate(scanned, first):
                    gone = np.array(deleted_rows(self._path, each.body["deletionVector"]).to_array(), np.int64)
                    vectors.append(gone | number << _BITS)
                # Before it is named: a SELECT takes the relation as it is then.
                scan = f"SELECT * FROM ({scan}) ANTI JOIN {self._name_of('gone')} AS __gone ON {_HERE}"
            first += len(scanned)
            yield scan
        if vectors:
            self._register("gone", pa.table({"place": pa.array(np.concatenate(vectors))}))

    def _looked_up(self, live: Sequence[_Live], keys: Sequence[Keys]) -> dict[str, pa.Table]:
        """{data file: the rows that have one of the keys, with their numbers in it}, of those that are arranged."""
        arrangements = self._arrangements
        if arrangements is None or any(not self._comparable(each) for each in keys):
            return {}
        hashed = [_Hashed.of(each) for each in keys]
        found = {}
        for each in live:
            rows = self._rows_in(arrangements, each, hashed)
            if rows is not None:
                found[each.name] = rows
        arrangements.drop_others(str(self._path), (each.name for each in live))
        return found

    def _rows_in(self, arrangements: Arrangements, each: _Live, hashed: Sequence[_Hashed]) -> pa.Table | None:
        stated = stated_checksum(each.body)
        count = _count(each.body)
        most = int(count * arrangements.largest_share)
        # Another tool's file may come back under its name with other rows.
        if stated is None:
            return None
        asked = [(keys.columns, keys.within(each.body.get("stats") or "")) for keys in hashed]
        if any(len(hashes) > most for _, hashes in asked):
            return None
        file = DataFile(str(self._path), each.name, stated, each.copy, count)
        parts: list[NDArray[np.int64]] = []
        arrangement: Arrangement | None = None
        for columns, hashes in asked:
            arrangement = None if self._lacks(each, columns) else arrangements.open(file, columns)
            numbers = None if arrangement is None else arrangement.find(hashes, most)
            if numbers is None:
                return None
            parts.append(numbers)
        assert arrangement is not None, "some keys are asked for"
        wanted = distinct(parts)
        if len(wanted) > most:
            return None
        if not each.whole:
            gone = deleted_rows(self._path, each.body["deletionVector"])
            wanted = np.array((BitMap64(wanted.astype(np.uint64)) - gone).to_array(), np.int64)
        rows = arrangement.take(wanted)
        return rows.append_column(POSITION, pa.array(wanted))

    def _lacks(self, each: _Live, columns: Sequence[str]) -> bool:
        return any(column.partition(".")[0] in each.lacking for column in columns)

    def _comparable(self, keys: Keys) -> bool:
        """True if equal values have equal hashes: they are of the type that is stored."""
        stored = self._schema.empty_table()
        return all(
            _plain(keys.values.column(place).type) == _plain(column_at(stored, path).type)
            for place, path in enumerate(keys.columns)
        )

    def _copies(self, files: Sequence[_Live], rows: Mapping[str, pa.Table], first: int) -> Iterator[str]:
        """SELECTs of rows that were looked up, their files numbered from `first`."""
        numbered = list(enumerate(files, first))
        for lacking, group in groupby(numbered, key=lambda each: each[1].lacking):
            there = [name for name in self._schema.names if name not in lacking]
            parts = []
            number = first
            for number, each in group:
                found = rows[each.name]
                marks = pa.repeat(pa.scalar(number, pa.int64()), found.num_rows)
                parts.append(found.select([*there, POSITION]).append_column(FILE, marks))
            name = self._register(f"found_{number}", pa.concat_tables(parts))
            yield self._widened(f"SELECT {', '.join(map(quoted, there))}, {FILE}, {POSITION} FROM {name}", lacking)

    def _live(self, snapshot: Snapshot, part: Part | None = None) -> list[_Live]:
        """The files of a version, those with deleted rows first: of the others no place need be looked at."""
        schema = snapshot.metadata["schemaString"]
        newer = self._newer(columns_of(schema))
        later = [name for name in added_columns(schema) if name in self._schema.names]
        found = []
        for name, body in _dealt(snapshot.files, part):
            copy = self._local.path_of(self._path, inside(self._path, name), stated_checksum(body))
            has = self._local.columns_of(copy) if later else frozenset()
            lacking = (*newer, *(each for each in later if each not in has))
            found.append(_Live(name, body.get("deletionVector") is None, lacking, copy, body))
        return sorted(found, key=lambda each: (each.whole, each.lacking))

    def as_changes(self, snapshot: Snapshot) -> str:
        """SELECT of all rows of a version as changes. Raises as `at`."""
        return self._marked(self.at(snapshot).text, 1, snapshot.version)

    def changes(self, commits: Iterable[Commit], recent: RecentRows) -> str:
        """SELECT of the changes of the commits, not consolidated: stored columns, `__weight`, `_commit_version`.

        Raises: as `at`.
        """
        parts = [self._changes_of(commit, recent) for commit in commits if commit.changes_rows]
        return " UNION ALL ".join(parts) or self._marked(self.none().text, 1, 0)

    def _changes_of(self, commit: Commit, recent: RecentRows) -> str:
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
        return self._widened(rows, newer)

    def _widened(self, rows: str, newer: Sequence[str]) -> str:
        """A SELECT of rows that lack some columns, with these."""
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


@dataclass(frozen=True)
class _Live:
    """A data file of a version.

    Attributes:
        name: as the log has it.
        whole: no row of it is deleted.
        lacking: the columns that it does not have.
        copy: where it can be read.
        body: its `add` action.
    """

    name: str
    whole: bool
    lacking: tuple[str, ...]
    copy: Path
    body: Mapping[str, Any]


def _dealt(files: Mapping[str, Mapping[str, Any]], part: Part | None) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The files of a part. The largest are dealt out first, so that all parts have about as many rows."""
    if part is None:
        return files.items()
    return sorted(files.items(), key=lambda each: (-_count(each[1]), each[0]))[part.number :: part.parts]


def _count(body: Mapping[str, Any]) -> int:
    """The rows of a file, deleted ones included; 0 where another tool's log does not say it."""
    try:
        return row_count(body)
    except CorruptState:
        return 0


def _fewer_fields(column: pa.ChunkedArray, wanted: pa.StructType) -> pa.ChunkedArray | None:
    """A struct with some of its fields; None where it lacks one."""
    found = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    names = [wanted.field(place).name for place in range(wanted.num_fields)]
    if any(found.type.get_field_index(name) < 0 for name in names):
        return None
    # Where the struct is NULL its fields are.
    fields = [pc.struct_field(found, name) for name in names]
    return pa.chunked_array([pa.StructArray.from_arrays(fields, fields=list(wanted), mask=found.is_null())])


def _plain(found: pa.DataType) -> pa.DataType:
    """The type of texts and bytes, however Arrow has them in memory."""
    if pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_large_binary(found) or pa.types.is_binary_view(found):
        return pa.binary()
    return found


def _fields(state: pa.StructType) -> str:
    names = (quoted(state.field(place).name) for place in range(state.num_fields))
    return ", ".join(f"{name} := ({STATE}).{name}" for name in names)


def quoted(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'
