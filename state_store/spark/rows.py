"""Rows and changes of a table in Spark, read from the files that our log names.

Delta's own reader computes a snapshot by Spark jobs for each new version, which costs more than an epoch; our log knows
the files in a millisecond. Rows deleted in a file are left out by a join with its deletion vector, cut into runs:

    rows (…, __file, __position)  ⟕  vectors (file, run, words)     run = position div 32,768; 512 words of 64 bits

The changes of a commit follow from the same runs: a file that comes is its rows with weight +1, a file that goes its
rows with −1, and one that gets another vector the rows by which the vectors differ. A commit that lists its changes in
files of their own is read from those alone, as Delta's protocol says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from strandline.state_store.delta.data_files import broken, checksum, data_file, reading, stated_checksum, verify
from strandline.state_store.delta.deletion_vectors import deleted_rows
from strandline.state_store.delta.log import inside
from strandline.state_store.delta.rows import CHANGE_TYPE, INSERTIONS
from strandline.state_store.paths import Location, within
from strandline.state_store.tablespec import FILE, POSITION, VERSION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, SparkSession

    from strandline.state_store.delta.log import Commit, DataFile
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath


# Checks of data files before Spark opens them, by the checksums in the actions that added them.
#
# Spark compares the checksums of Parquet's pages; a footer has none, and one flipped bit there gives other rows. On a
# disk the driver sums a file up once, at 1.8 GB/s, as every other reader does (`delta.data_files`). Objects are
# summed up in Spark's tasks, so that the cluster fetches them side by side, and once in a session: an object never
# changes once a commit names it.

_REMEMBERED: Final = 1 << 16
"""Objects, some 20 MB of names at most: more than compaction leaves a lake. Then all are summed up again."""


def verify_files(spark: SparkSession, table: LakePath, files: Mapping[str, str | None]) -> None:
    """Check that data files are as they were written; those that state no checksum are not looked at.

    Args:
        files: {path relative to the table: stated checksum}.

    Raises:
        VersionGone: one is not there.
        CorruptState: one is not as it was written.
    """
    stated = {inside(table, name): found for name, found in files.items() if found is not None}
    for file, found in stated.items():
        if isinstance(file, Path):
            verify(table, file, found)
    objects = {file: found for file, found in stated.items() if isinstance(file, Location)}
    known = _known(spark.sparkContext.applicationId)
    new = {file: found for file, found in objects.items() if (file.url, found) not in known}
    if not new:
        return
    with reading(table):
        for file, sum_of_it in _sums(spark, list(new)):
            if sum_of_it is None:
                raise FileNotFoundError(str(file))
            if sum_of_it != new[file]:
                raise broken(table, file)
    if len(known) + len(new) > _REMEMBERED:
        known.clear()
    known.update((file.url, found) for file, found in new.items())


def _sums(spark: SparkSession, objects: list[Location]) -> Iterator[tuple[Location, str | None]]:
    """Each object with its checksum, None if it is not there: one job."""
    context = spark.sparkContext
    slices = min(len(objects), context.defaultParallelism)
    return zip(objects, context.parallelize(objects, slices).map(_sum).collect(), strict=True)


def _sum(file: Location) -> str | None:
    """In a task."""
    try:
        return checksum(file)
    except FileNotFoundError:
        return None


# One session at a time is at work in a process.
@lru_cache(maxsize=1)
def _known(_application: str) -> set[tuple[str, str]]:
    return set()


RUN: Final = 32_768
"""The rows of a file that one bitmap covers: what one of Spark's own holds (`bitmap_construct_agg`)."""
_VECTORS: Final = pa.schema(
    {"file": pa.string(), "run": pa.int64(), "words": pa.list_(pa.int64()), VERSION: pa.int64(), WEIGHT: pa.int64()}
)


@dataclass(frozen=True)
class _Part:
    """Rows of one file that a commit changes: those at `places`, or with `but` all others."""

    file: str
    places: BitMap64
    version: int
    weight: int
    but: bool = False


class TableFiles:
    """The data files of one table, for one session.

    Args:
        schema: the stored columns.
    """

    def __init__(self, spark: SparkSession, path: LakePath, schema: StructType) -> None:
        self._spark = spark
        self._path = path
        self._schema = schema

    def rows(self, snapshot: Snapshot) -> DataFrame:
        """The stored columns of all rows, and `__file` STRING, `__position` BIGINT.

        Raises:
            VersionGone: a deletion vector or a data file is gone; a data file that states no checksum and is gone is an
                AnalysisException.
            CorruptState: a deletion vector or a data file is broken.
        """
        files = {unquote(name): body.get("deletionVector") for name, body in snapshot.files.items()}
        if not files:
            return self._none()
        rows, urls = self._scan({unquote(name): stated_checksum(body) for name, body in snapshot.files.items()})
        parts = [
            _Part(urls[name], deleted_rows(self._path, vector), snapshot.version, -1)
            for name, vector in files.items()
            if vector is not None
        ]
        if not parts:
            return rows
        vectors = F.broadcast(self._vectors(parts)).alias("__v")
        joined = rows.alias("__r").join(vectors, _same_run(), "left")
        return joined.where(F.col("__v.words").isNull() | ~_contained()).select("__r.*")

    def changes(self, commits: Iterable[Commit]) -> DataFrame:
        """The changes of the commits, not consolidated: stored columns, `__weight` BIGINT, `_commit_version` BIGINT.

        Raises: as `rows`.
        """
        made = list(commits)
        found = [self._listed(commit) for commit in made if commit.change_files]
        found += self._compared([commit for commit in made if not commit.change_files])
        if not found:
            marks = [F.lit(0).cast("bigint").alias(name) for name in (WEIGHT, VERSION)]
            return self._none().select(*self._stored(), *marks)
        return reduce(DataFrame.unionAll, found)

    def _listed(self, commit: Commit) -> DataFrame:
        """The changes of a commit that lists them."""
        files = {self._name(file): file.checksum for file in commit.change_files}
        verify_files(self._spark, self._path, files)
        listed = self._spark.read.schema(StructType([*self._schema.fields, StructField(CHANGE_TYPE, StringType())]))
        rows = listed.parquet(*(str(self._path / name) for name in files))
        weight = F.when(F.col(CHANGE_TYPE).isin(*INSERTIONS), 1).otherwise(-1).cast("bigint")
        version = F.lit(commit.version).cast("bigint")
        return rows.select(*self._stored(), weight.alias(WEIGHT), version.alias(VERSION))

    def _compared(self, commits: Sequence[Commit]) -> list[DataFrame]:
        """The changes of commits that follow from the files before and after, in at most two parts."""
        stated: dict[str, str | None] = {}
        parts: list[_Part] = []
        for commit in commits:
            parts += self._parts(commit)
            stated |= {self._name(file): file.checksum for file in (*commit.removed, *commit.added)}
        if not parts:
            return []
        rows, urls = self._scan({part.file: stated[part.file] for part in parts})
        named = [replace(part, file=urls[part.file]) for part in parts]
        some = [part for part in named if not part.but]
        found = [self._all_but(rows, [part for part in named if part.but])] if len(some) < len(named) else []
        if some:
            vectors = F.broadcast(self._vectors(some)).alias("__v")
            found.append(rows.alias("__r").join(vectors, _same_run()).where(_contained()))
        return [each.select(*self._stored("__r."), f"__v.{WEIGHT}", f"__v.{VERSION}") for each in found]

    def _all_but(self, rows: DataFrame, parts: Sequence[_Part]) -> DataFrame:
        """The rows of whole files but for some, with the marks of their parts."""
        listed = self._spark.createDataFrame(
            [(part.file, part.version, part.weight) for part in parts],
            f"file STRING, {VERSION} BIGINT, {WEIGHT} BIGINT",
        )
        on = F.col(f"__r.{FILE}") == F.col("__v.file")
        found = rows.alias("__r").join(F.broadcast(listed).alias("__v"), on)
        some = [part for part in parts if part.places]
        if not some:
            return found
        vectors = F.broadcast(self._vectors(some)).alias("__x")
        same = _same_run("__x") & (F.col(f"__v.{VERSION}") == F.col(f"__x.{VERSION}"))
        return found.join(vectors, same, "left").where(F.col("__x.words").isNull() | ~_contained("__x"))

    def _parts(self, commit: Commit) -> list[_Part]:
        """What a commit does to each file. No row is in two parts of one commit."""
        before, after = ({self._name(file): file for file in files} for files in (commit.removed, commit.added))
        parts = []
        for name in before | after:
            gone, there = (self._vector(files.get(name)) for files in (before, after))
            if name in before and name in after:
                marks = ((there - gone, -1), (gone - there, 1))
                parts += [_Part(name, places, commit.version, weight) for places, weight in marks if places]
            elif name in before:
                parts.append(_Part(name, gone, commit.version, -1, but=True))
            else:
                parts.append(_Part(name, there, commit.version, 1, but=True))
        return parts

    def _name(self, file: DataFile) -> str:
        return within(file.path, self._path)

    def _vector(self, file: DataFile | None) -> BitMap64:
        vector = None if file is None else file.deletion_vector
        return BitMap64() if vector is None else deleted_rows(self._path, vector)

    def _scan(self, files: Mapping[str, str | None]) -> tuple[DataFrame, dict[str, str]]:
        """The rows of files with their places, and {file: the URL by which the rows call it}.

        Args:
            files: {file: its stated checksum}.
        """
        verify_files(self._spark, self._path, files)
        scan = self._spark.read.schema(self._schema).parquet(*(str(self._path / name) for name in files))
        # Spark lists a local file as file:///…, and calls it file:/… in its rows.
        listed = [url.replace("file:///", "file:/", 1) for url in scan.inputFiles()]
        urls = {data_file(self._path, url): url for url in listed}
        place = [F.col("_metadata.file_path").alias(FILE), F.col("_metadata.row_index").alias(POSITION)]
        return scan.select("*", *place), urls

    def _vectors(self, parts: Sequence[_Part]) -> DataFrame:
        table = pa.Table.from_pylist([row for part in parts for row in _runs(part)], _VECTORS)
        return self._spark.createDataFrame(table)

    def _none(self) -> DataFrame:
        place = [F.lit(None).cast("string").alias(FILE), F.lit(None).cast("bigint").alias(POSITION)]
        return self._spark.createDataFrame([], self._schema).select("*", *place)

    def _stored(self, prefix: str = "") -> list[Column]:
        return [F.col(f"{prefix}`{field.name.replace('`', '``')}`") for field in self._schema.fields]


def _same_run(vectors: str = "__v") -> Column:
    run = F.expr(f"__r.{POSITION} DIV {RUN}")
    return (F.col(f"__r.{FILE}") == F.col(f"{vectors}.file")) & (run == F.col(f"{vectors}.run"))


def _contained(vectors: str = "__v") -> Column:
    """The condition that the row's bit is set in its run's bitmap."""
    word = f"get({vectors}.words, CAST(__r.{POSITION} % {RUN} DIV 64 AS INT))"
    return F.expr(f"shiftright({word}, CAST(__r.{POSITION} % 64 AS INT)) & 1 = 1")


def _runs(part: _Part) -> Iterable[Mapping[str, Any]]:
    """The positions of a part, at least one, as rows of `_VECTORS`."""
    positions = np.array(part.places.to_array(), np.int64)
    runs, firsts = np.unique(positions // RUN, return_index=True)
    for run, places in zip(runs.tolist(), np.split(positions, firsts[1:]), strict=True):
        bits = np.zeros(RUN, np.uint8)
        bits[places - run * RUN] = 1
        words = np.packbits(bits, bitorder="little").view(np.int64).tolist()
        yield {"file": part.file, "run": run, "words": words, VERSION: part.version, WEIGHT: part.weight}
