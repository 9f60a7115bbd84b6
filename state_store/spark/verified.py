"""Data files summed up before Spark opens them, by the checksums in the actions that added them.

Spark compares the checksums of Parquet's pages; a footer has none, and one flipped bit there gives other rows. On a
disk the driver sums a file up once, at 1.8 GB/s, as every other reader does (`delta.data_files`). Objects are summed up
in Spark's tasks, so that the cluster fetches them side by side, and once in a session: an object never changes once a
commit names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.state_store.delta.data_files import broken, reading, verify
from strandline.state_store.delta.log import inside
from strandline.state_store.delta.staging import checksum
from strandline.state_store.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.state_store.paths import LakePath

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
