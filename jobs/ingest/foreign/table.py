"""What a source asks of a table that others write, whatever its format: numbered versions, and the rows of each.

    version 12   its rows, all of them           a source that begins there
    version 13   what goes with it, what comes   every source that has begun before

A version means the same whenever it is read, or it is refused. Rows come in the order in which they always come, so a
place in a version is a row.

The origin of a source over a table of others, as the name of a topic: which table, and where the source begins.

    delta:/data/orders@12            the rows of version 12, then the changes of each later commit
    delta:s3://lake/orders>11        the changes of each commit after version 11, without the rows that it has
    iceberg:prod.shop.orders@7       the same of an Iceberg table: its versions are the snapshots' sequence numbers
    parquet:/data/landing@3f0c9d…    the files of a folder, in the order of the lake's record of that name

No topic of Kafka or of the lake has a colon in its name, so the name alone tells which log a source is read from.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa


Kind = Literal["delta", "iceberg", "parquet"]

_TEXT: Final = re.compile(
    r"(?P<kind>delta|iceberg):(?P<location>.+)(?P<way>[@>])(?P<version>-?\d+)"
    r"|parquet:(?P<folder>.+)@(?P<record>[0-9a-f]{32})",
    re.DOTALL,
)


@dataclass(frozen=True)
class Origin:
    """A place in the history of a table.

    Attributes:
        location: the table's path, URL or name.
        version: that the source begins with.
        snapshot: its rows are taken in; else only the changes after it.
        record: of a folder, the name of the record that says which files were seen: one for each source that is made.
    """

    location: str
    version: int
    snapshot: bool = True
    kind: Kind = "delta"
    record: str = ""

    def __str__(self) -> str:
        if self.kind == "parquet":
            return f"{self.kind}:{self.location}@{self.record}"
        return f"{self.kind}:{self.location}{'@' if self.snapshot else '>'}{self.version}"

    @property
    def first_version(self) -> int:
        """The first version that is read."""
        return self.version if self.snapshot else self.version + 1


def of_folder(location: str, record: str) -> Origin:
    """The origin of a source over a folder: it begins with the first file, number 0."""
    return Origin(location, -1, snapshot=False, kind="parquet", record=record)


def origin_of(topic: str) -> Origin | None:
    """The origin that a topic's name says; None for a topic of Kafka or of the lake."""
    found = _TEXT.fullmatch(topic)
    if found is None:
        return None
    if found["record"] is not None:
        return of_folder(found["folder"], found["record"])
    return Origin(found["location"], int(found["version"]), found["way"] == "@", cast("Kind", found["kind"]))


F = TypeVar("F")


def mark_of(content: bytes) -> int:
    """A number of 31 bits, as terms of leaders have, for what a version was read from."""
    return zlib.crc32(content) & 0x7FFF_FFFF


@dataclass(frozen=True)
class Changes:
    """Some rows of a version, all of which come or all of which go.

    Attributes:
        rows: the columns that the language has types for, by their names.
        gone: they are taken away.
        texts: {column: its one value} of those that the rows' place says as text.
    """

    rows: pa.Table
    gone: bool = False
    texts: Mapping[str, str | None] = field(default_factory=dict)


def rows_from(
    place: int, files: Iterable[F], count: Callable[[F], int | None], read: Callable[[F], Iterator[pa.Table]]
) -> Iterator[pa.Table]:
    """The rows of files, one after the other, from a place on; a file before it is not read.

    Args:
        count: its rows; None: not known before it is read.
    """
    for file in files:
        known = count(file) if place else None
        if known is not None and known <= place:
            place -= known
            continue
        for rows in read(file):
            if place >= rows.num_rows:
                place -= rows.num_rows
            else:
                yield rows.slice(place)
                place = 0


class ForeignTable(Protocol):
    """A table of others. Not safe for two threads.

    `snapshot` says that of the version all rows are meant, not what changed with it.

    Raises (all methods):
        DeltaMissing, ForeignMissing: there is none.
        DeltaVersionGone, ForeignVersionGone: the version, or a file of it, was removed.
        DeltaUnsupported, ForeignUnsupported: it cannot be read.
        ForeignChanged: what was taken in is not what it was.
        StorageUnavailable, StorageDenied, SourceUnavailable: of where it lies.
    """

    @property
    def kind(self) -> Kind:
        """Its format."""
        ...

    def head(self) -> int:
        """The newest version; one before the first where there is none yet."""
        ...

    def settled(self) -> int:
        """The newest version, which means from now on what it means now. Only a run asks for it: it may write down in
        the lake what the table does not keep itself."""
        ...

    def identity(self) -> str:
        """What tells the table from another one at the same place."""
        ...

    def had_identity(self, identity: str) -> bool:
        """True if it had that identity at a version that its history still has."""
        ...

    def mark(self, version: int) -> int | None:
        """What tells the version from another one of its number, in 31 bits; None: nobody can tell any more."""
        ...

    def known_columns(self) -> frozenset[str] | None:
        """The columns that it has at its newest version; a row without one of them is from before. None: the table
        does not say, so any may be missing in some rows."""
        ...

    def about(self, version: int) -> str:
        """Table and version, for messages."""
        ...

    def time_of(self, version: int) -> int:
        """When the version came about, in milliseconds since the epoch."""
        ...

    def is_whole(self, version: int) -> bool:
        """True if a run may end after this version."""
        ...

    def lost_columns(self, version: int) -> frozenset[str]:
        """The columns that the version before had, and that with this one are gone, or are others of the same name:
        the rows that are there have other values in them than those that were read."""
        ...

    def check_after(self, version: int) -> None:
        """Check, before what follows a version is read, that the table's history still has it."""
        ...

    def rows(self, version: int, first: int) -> Iterator[pa.Table]:
        """The rows of a version, from the one at place `first` on."""
        ...

    def changes(self, version: int) -> Iterator[Changes]:
        """What changes with a version: first what goes, then what comes."""
        ...

    def count(self, version: int, *, snapshot: bool) -> int:
        """The rows of the version, or about those that come and go with it."""
        ...

    def size(self, version: int, *, snapshot: bool) -> int:
        """About the bytes of the files that hold those rows."""
        ...

    def check_files(self, version: int, *, snapshot: bool) -> None:
        """Check that the files are there that hold those rows."""
        ...
