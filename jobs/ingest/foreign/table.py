"""What a source asks of a table that others write, whatever its format: numbered versions, and the rows of each.

    version 12   its rows, all of them           a source that begins there
    version 13   what goes with it, what comes   every source that has begun before

A version means the same whenever it is read, or it is refused. Rows come in the order in which they always come, so a
place in a version is a row.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from strandline.jobs.ingest.foreign.origin import Kind

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
