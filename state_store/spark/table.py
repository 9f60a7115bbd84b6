"""A table of the lake in Spark: its rows at a version, its changes between versions, one commit per epoch.

The changes that a frame of upserts makes: the rows to store, the places of those that go, what to add to the digest.

It has one row per touched key: the stored columns of the new row, `__exists` (false: the key is deleted, and the other
columns hold only the key) and `__old`, the row stored before as a struct with its place (NULL: the key was absent).

Places are never collected one by one: Spark's tasks make a bitmap of 4 KiB for each run of 32,768 rows of a file.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap64
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import Staged, data_file, stage
from strandline.state_store.delta.entry import rebuild_hint
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState, NegativeWeight, VersionGone
from strandline.state_store.row_lanes import LANES
from strandline.state_store.spark.rows import RUN
from strandline.state_store.tablespec import (
    EXISTS,
    FILE,
    OLD,
    POSITION,
    STATE,
    VERSION,
    WEIGHT,
    TableSpec,
    quoted,
    schema_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.types import DataType

    from strandline.state_store.paths import LakePath
    from strandline.state_store.spark.rows import TableFiles


# One file per epoch while epochs are small: every file is a task for later reads. Above this, several tasks write the
# files in parallel.
_ROWS_PER_FILE = 500_000


class SparkTable(StoredTable):
    """One Delta table in a session; see `StoredTable`."""

    def __init__(self, spark: SparkSession, path: LakePath, spec: TableSpec) -> None:
        super().__init__(path, spec)
        self.spark = spark

    def read(self, version: int) -> DataFrame:
        """All stored columns of the rows at `version`, and their places: `__file` STRING and `__position` BIGINT.

        Raises:
            VersionGone: the version is not there, or is older than the table's retention.
        """
        self.check_version(version)
        with self._gone(version):
            return self._files.rows(self._snapshot(version))

    def changes(self, after: int | None, upto: int) -> DataFrame:
        """The changes in the versions after `after`, up to and including `upto`.

        Stored columns, `__weight` BIGINT and `_commit_version` BIGINT. Without `after`, the rows at `upto`, each with
        weight 1. The changes of several commits are not consolidated: a row may have +1 and −1.

        Raises:
            VersionGone: the log or a file no longer reaches back to `after`, or `upto` is not there yet.
            CorruptState: rows were deleted from an append table.
        """
        from pyspark.sql import functions as F

        self.check_version(upto)
        if after is None:
            weight, version = F.lit(1).cast("bigint").alias(WEIGHT), F.lit(upto).cast("bigint").alias(VERSION)
            return self.read(upto).drop(FILE, POSITION).select("*", weight, version)
        with self._gone(after + 1):
            return self._files.changes(self.commits(after, upto))

    def append(self, rows: DataFrame, record: CommitRecord) -> Head:
        """Insert rows (the stored columns, in any order), in one commit. `rows` is computed once.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = self.next(record)
        return self._add(head, record, self._staged(rows, record))

    def append_if_any(self, rows: DataFrame, record: CommitRecord) -> Head | None:
        """`append`, but without rows no commit is made: None. The rows are counted while they are written."""
        head = self.next(record)
        staged = self._staged(rows, record)
        if staged.totals["rows"] == 0:
            staged.discard()
            return None
        return self._add(head, record, staged)

    def apply(self, upserts: DataFrame, record: CommitRecord, after: Head | None = None) -> Head | None:
        """Commit the upserts of the touched keys; None, and no commit, when no row changes.

        Args:
            upserts: a frame of them, see above. It is computed once.
            after: as of `advance`.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            NegativeWeight: more rows would be deleted than there are.
            CommitConflict: another writer committed first.
            CorruptState: a row stored before is not where the frame says.
        """
        head = after or self.next(record)
        with _measured(upserts, self.spec, self._schema) as changes:
            if not changes.written and not changes.retracted:
                return None
            digest = Digest.parse(head.record.digest) + changes.digest
            if digest.count < 0:
                raise NegativeWeight(f"'{self.spec.name}' would have {digest.count} rows", where=str(self.path))
            retracted = {data_file(self.path, url): places for url, places in changes.retracted.items()}
            taken = {data_file(self.path, url): each for url, each in changes.taken.items()}
            staged = None
            if changes.written:
                files = -(-changes.written // _ROWS_PER_FILE)
                rows = changes.rows.coalesce(files)
                staged = stage(rows, self.path, record.epoch, self.spec.indexed)
                staged = self._tagged(staged, changes.came)
        record = replace(record, inserted=changes.inserted, deleted=changes.deleted, digest=str(digest))
        return self.commit(head, record, RowChanges(staged, retracted, taken))

    def _tagged(self, staged: Staged, digest: Digest) -> Staged:
        """With what the rows come to, if one file holds all of them: of several, Spark does not say it of each."""
        return staged.tagged([digest], schema_json(self.spec.stored)) if len(staged.files) == 1 else staged

    def _staged(self, rows: DataFrame, record: CommitRecord) -> Staged:
        totals = _row_totals(self.spec, self._schema)
        return stage(_conformed(rows, self._schema), self.path, record.epoch, self.spec.indexed, totals)

    def _add(self, head: Head, record: CommitRecord, staged: Staged) -> Head:
        count = int(staged.totals["rows"])
        came = _lane_digest(staged.totals, "new", count)
        digest = Digest.parse(head.record.digest) + came
        record = replace(record, inserted=count, deleted=0, digest=str(digest))
        return self.commit(head, record, RowChanges(self._tagged(staged, came)))

    @cached_property
    def _files(self) -> TableFiles:
        from strandline.state_store.spark.rows import TableFiles

        return TableFiles(self.spark, self.path, self._schema)

    @cached_property
    def _schema(self) -> StructType:
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(self.spec.ddl)
        assert isinstance(schema, StructType)
        return schema

    @contextmanager
    def _gone(self, version: int) -> Iterator[None]:
        """Turns Spark's words for a missing file into VersionGone."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise VersionGone(
                f"a file of '{self.spec.name}' is gone, which version {version} needs",
                where=str(self.path),
                hint=rebuild_hint(self.spec.name),
            ) from error


# The lanes of a row and the equality of values, as Spark expressions. `digest` defines the lanes.


def lanes(columns: Iterable[tuple[Column, DataType]]) -> tuple[Column, Column]:
    """The two lanes of a row, BIGINT each: the same 64 bits as `digest.row_lanes`."""
    parts = [part for column, data_type in columns for part in _parts(column, data_type)]
    first, second = (F.xxhash64(F.lit(lane), *parts) for lane in LANES)
    return first, second


def same(left: Column, right: Column, data_type: DataType) -> Column:
    """True where two values are equal: NULL equals NULL, and the order of a map's entries does not count."""
    return _orderable(left, data_type).eqNullSafe(_orderable(right, data_type))


def _parts(value: Column, data_type: DataType) -> list[Column]:
    absent = F.isnull(value)
    if isinstance(data_type, StructType):
        return [absent, *(p for f in data_type.fields for p in _parts(value.getField(f.name), f.dataType))]
    if isinstance(data_type, ArrayType):
        inner = data_type.elementType
        return [absent, F.array_size(value), F.transform(value, lambda x: F.struct(*_parts(x, inner)))]
    if isinstance(data_type, MapType):
        entries = F.map_entries(value)
        hashes = F.transform(entries, lambda entry: _entry_hash(entry, data_type))
        mixed = F.aggregate(hashes, F.lit(0).cast("bigint"), lambda mixed, entry: mixed.bitwiseXOR(entry))
        return [absent, F.array_size(entries), mixed]
    return [absent, value]


def _entry_hash(entry: Column, data_type: MapType) -> Column:
    parts = [*_parts(entry.getField("key"), data_type.keyType), *_parts(entry.getField("value"), data_type.valueType)]
    return F.xxhash64(F.lit(LANES[0]), *parts)


def _orderable(value: Column, data_type: DataType) -> Column:
    """The value with its maps, which Spark does not compare, as arrays of entries sorted by key."""
    if not _has_map(data_type):
        return value
    if isinstance(data_type, MapType):
        entry = F.transform(F.map_entries(value), lambda e: _orderable_entry(e, data_type))
        return F.array_sort(entry)
    if isinstance(data_type, ArrayType):
        inner = data_type.elementType
        return F.transform(value, lambda x: _orderable(x, inner))
    assert isinstance(data_type, StructType)
    fields = [_orderable(value.getField(f.name), f.dataType).alias(f.name) for f in data_type.fields]
    return F.when(value.isNotNull(), F.struct(*fields))


def _orderable_entry(entry: Column, data_type: MapType) -> Column:
    key, value = entry.getField("key"), entry.getField("value")
    return F.struct(key.alias("key"), _orderable(value, data_type.valueType).alias("value"))


def _has_map(data_type: DataType) -> bool:
    if isinstance(data_type, ArrayType):
        return _has_map(data_type.elementType)
    if isinstance(data_type, StructType):
        return any(_has_map(field.dataType) for field in data_type.fields)
    return isinstance(data_type, MapType)


_HALF = 0xFFFFFFFF


@dataclass(frozen=True)
class _FrameChanges:
    """The changes of a frame of upserts, compared with the stored rows.

    Attributes:
        rows: the rows to store. Valid inside `_measured`.
        written: their number.
        retracted: {data file as a URL: positions of the stored rows that go}.
        taken: {data file as a URL: the digest of these rows}.
        came: the digest of the rows to store.
        inserted, deleted: visible rows inserted and deleted.
        digest: what to add to the table's digest.
    """

    rows: DataFrame
    written: int
    retracted: Mapping[str, BitMap64]
    taken: Mapping[str, Digest]
    came: Digest
    inserted: int
    deleted: int
    digest: Digest


@contextmanager
def _measured(upserts: DataFrame, spec: TableSpec, schema: StructType) -> Iterator[_FrameChanges]:
    """Compute `upserts` once, keep it for the duration of the block, and count its changes: one Spark job.

    Raises:
        CorruptState: a stored row is replaced twice, or its place is not known; the rule is wrong.
    """
    ours = not upserts.is_cached
    kept = upserts.persist() if ours else upserts
    try:
        yield _measure(kept, spec, schema)
    finally:
        if ours:
            kept.unpersist()


def _measure(kept: DataFrame, spec: TableSpec, schema: StructType) -> _FrameChanges:
    types = {field.name: field.dataType for field in schema.fields}
    # In the stored types: 1 as INT and 1 as BIGINT have different hashes.
    old = {name: F.col(OLD).getField(name).cast(data_type) for name, data_type in types.items()}
    new = {name: F.col(quoted(name)).cast(data_type) for name, data_type in types.items()}
    exists, had = F.coalesce(F.col(EXISTS), F.lit(False)), F.col(OLD).isNotNull()
    equal = {name: same(new[name], old[name], data_type) for name, data_type in types.items()}
    visible_equal = reduce(and_, (equal[name] for name in spec.visible), F.lit(True))
    changed = (exists | had) & ~(exists & had & visible_equal & equal.get(STATE, F.lit(True)))
    replaced = had & changed
    totals = {
        "replaced": replaced,
        "written": exists & changed,
        "inserted": exists & ~(had & visible_equal),
        "deleted": had & ~(exists & visible_equal),
    }
    sums = [F.count_if(condition).alias(name) for name, condition in totals.items()]
    sums += _lane_sums(_visible(new, types, spec), exists, "new")
    sums += _lane_sums(_visible(old, types, spec), had, "old")
    sums += _lane_sums(_visible(new, types, spec), exists & changed, "came")
    # Spark's functions count the places of a bitmap from 1.
    place = F.when(replaced, F.col(OLD).getField(POSITION) + 1)
    file = F.when(replaced, F.col(OLD).getField(FILE)).alias("file")
    grouped = kept.groupBy(file, F.bitmap_bucket_number(place).alias("run"))
    parts = grouped.agg(F.bitmap_construct_agg(F.bitmap_bit_position(place)).alias("places"), *sums).collect()
    names = [*totals, *(name for prefix in ("new", "old", "came") for name in _lane_names(prefix))]
    row = {name: sum(part[name] or 0 for part in parts) for name in names}
    retracted = _positions(parts)
    if sum(map(len, retracted.values())) != row["replaced"]:
        raise CorruptState(
            f"rows of '{spec.name}' cannot be told apart: a key has two upserts, or a stored row has no place"
        )
    deleted = _lane_digest(row, "old", row["deleted"])
    return _FrameChanges(
        rows=kept.where(changed & exists).select(*_stored(schema)),
        written=row["written"],
        retracted=retracted,
        taken=_taken(parts),
        came=_lane_digest(row, "came", row["written"]),
        inserted=row["inserted"],
        deleted=row["deleted"],
        digest=_lane_digest(row, "new", row["inserted"]) - deleted,
    )


def _positions(parts: Sequence[Row]) -> dict[str, BitMap64]:
    """{file: positions}, from the bitmaps of runs of its rows."""
    found: dict[str, BitMap64] = {}
    for part in parts:
        if part["file"] is not None:
            bits = np.unpackbits(np.frombuffer(part["places"], np.uint8), bitorder="little")
            first = (part["run"] - 1) * RUN
            found.setdefault(part["file"], BitMap64()).update(
                BitMap64((np.flatnonzero(bits) + first).astype(np.uint64))
            )
    return found


def _taken(parts: Sequence[Row]) -> dict[str, Digest]:
    """{file: the digest of its rows that go}."""
    found: dict[str, Digest] = {}
    for part in parts:
        if part["file"] is not None:
            digest = _lane_digest(part.asDict(), "old", part["replaced"])
            found[part["file"]] = found.get(part["file"], Digest()) + digest
    return found


def _row_totals(spec: TableSpec, schema: StructType) -> list[Column]:
    """The aggregates over inserted rows: their number, `rows`, and the lane sums for `lane_digest(…, "new", …)`."""
    types = {field.name: field.dataType for field in schema.fields}
    columns = {name: F.col(quoted(name)) for name in types}
    return [F.count(F.lit(1)).alias("rows"), *_lane_sums(_visible(columns, types, spec), F.lit(True), "new")]


def _lane_digest(row: Mapping[str, Any], prefix: str, count: int) -> Digest:
    """The digest of `count` rows from the sums of the halves of their lanes; the sums of no rows are NULL."""
    high, low = ([int(row[f"{prefix}_{half}{lane}"] or 0) for lane in (0, 1)] for half in ("high", "low"))
    first, second = ((h << 32) + low_sum for h, low_sum in zip(high, low, strict=True))
    return Digest() + Digest(first, second, count)


def _conformed(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with the stored columns, in order and of the stored types."""
    return rows.select(*_stored(schema))


def _stored(schema: StructType) -> list[Column]:
    return [F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in schema.fields]


def _visible(columns: Mapping[str, Column], types: Mapping[str, DataType], spec: TableSpec) -> tuple[Column, Column]:
    return lanes((columns[name], types[name]) for name in spec.visible)


def _lane_sums(pair: tuple[Column, Column], present: Column, prefix: str) -> list[Column]:
    """Sums of the 32-bit halves: a sum of whole lanes would overflow, which is an error in Spark."""
    halves = [half for lane in pair for half in (lane.bitwiseAND(F.lit(_HALF)), F.shiftrightunsigned(lane, 32))]
    named = zip(halves, _lane_names(prefix), strict=True)
    return [F.sum(F.when(present, half)).alias(name) for half, name in named]


def _lane_names(prefix: str) -> list[str]:
    return [f"{prefix}_{half}{number}" for number in (0, 1) for half in ("low", "high")]
