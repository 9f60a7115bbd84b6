"""A folder of Parquet files, into which others put files and change none: each file is a version, and comes whole.

    landing/day=2026-01-02/part-0.parquet    file 0     as the lake's record says (`FolderRecord`), in the order in
    landing/day=2026-01-03/part-0.parquet    file 1     which they were written and, of one moment, of their paths

A file whose path has a part that begins with `_` or `.` is none yet, or of no concern; nor is one with another suffix.
One without its last bytes is being written: it is looked at again, and an error when nobody has written to it for long.
A file that was changed, or removed, is an error, also when its rows are taken in: another content has no number.

The record of the files of a folder that were seen, for one source: the log that a folder does not keep itself.

    <lake>/folders/<record>/00000000000000000000.json    files 0, 1, 2, as one look found them
                            00000000000000000003.json    file 3, found by a later look
                            00000000000000000064.all     files 0 … 63: the record begins here for who opens it

A file has its number from the moment that an entry names it, and none before: an entry is put if its name is free, so
of several processes that look at once one decides. Whatever is killed afterwards, the numbers mean the same.
"""

from __future__ import annotations

import io
import logging
import os
import re
import time
from dataclasses import astuple, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from strandline.jobs.ingest.foreign.data_files import PATH, Node, columns_in, conformed, open_parquet
from strandline.jobs.ingest.foreign.table import Changes, mark_of
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import ForeignChanged, ForeignMissing, ForeignUnsupported, ForeignVersionGone
from strandline.state_store.errors import CorruptState, SettingsError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import create, make_folder, remove_file
from strandline.state_store.paths import Location, file_names, is_folder, within
from strandline.state_store.storage import lake_path
from strandline.state_store.stored_state import check_format, members_in, sealed_members

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.ingest.foreign.table import Kind, Origin
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath
    from strandline.state_store.storage import StorageOptions


_SUFFIXES: Final = (".parquet", ".parq", ".pq")
_BATCH: Final = 10_000
_PARTITION: Final = re.compile(r"([^=/]+)=([^/]*)")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_PATIENCE_MS: Final = 600_000
"""How long a file may lie there without its last bytes: whoever writes one writes on within that time."""
_AT_ONCE: Final = 1_000
"""Files that one entry of the record names: to open as many footers takes a second."""
_AGAIN: Final = (
    "put the file back as it was; or DROP the source with its views and CREATE it again over the folder as it is"
)

log = logging.getLogger("strandline.ingest")


def open_folder(origin: Origin, options: StorageOptions, lake: LakeLayout) -> ParquetFolder:
    """The folder that a source begins at, with its record. Raises ForeignMissing: it is none that can be opened."""
    return ParquetFolder(folder_at(origin.location, options), lake.folder_record(origin.record), origin.record)


def folder_at(location: str, options: StorageOptions) -> LakePath:
    """The folder at a path or URL. Raises ForeignMissing: it names none."""
    try:
        return lake_path(location, options)
    except SettingsError as error:
        raise ForeignMissing(f"'{location}' names no folder: {error.message}", hint=error.hint) from error


def columns_of_folder(folder: LakePath) -> tuple[Node, ...] | None:
    """The columns of the file that comes first, and those that folders' names say (`day=…`), which are VARCHAR; None
    while there is no file."""
    for file in listed(folder):
        columns = columns_in(_opened(folder, file).schema_arrow)
        known = {each.name for each in columns}
        parts = (name for name in partitions_in(file.path) if name not in known)
        return (*columns, *(Node(name, t.VARCHAR, PATH, name) for name in parts))
    return None


def listed(folder: LakePath) -> list[SeenFile]:
    """The Parquet files of a folder in the order of their numbers, as far as one look can tell; rows are not counted.

    Raises:
        ForeignMissing: there is no such folder.
    """
    files = list(_in_store(folder) if isinstance(folder, Location) else _on_disk(folder))
    if not files and not is_folder(folder):
        raise ForeignMissing(f"there is no folder at '{folder}'", hint="name a folder: a path, s3://, gs:// or az://")
    return sorted(files, key=lambda each: (each.modified, each.path))


def partitions_in(path: str) -> dict[str, str | None]:
    """{column: value} as the folders' names say, in lower case; None for NULL."""
    found = (_PARTITION.fullmatch(part) for part in PurePosixPath(path).parts[:-1])
    values = {unquote(each[1]).lower(): unquote(each[2]) for each in found if each is not None}
    return {name: None if value == _NO_VALUE else value for name, value in values.items()}


class ParquetFolder:
    """The versions of a folder: its files, by their numbers. See `foreign.table`.

    Args:
        path: the folder.
        record: where the lake keeps which files were seen.
    """

    kind: Kind = "parquet"

    def __init__(self, path: LakePath, record: LakePath, name: str) -> None:
        self.path = path
        self._record = FolderRecord(record)
        self._record.load()
        self._name = name
        self._new: list[SeenFile] = []

    def head(self) -> int:
        """The number of the newest file, also of those that nobody has written down yet."""
        self._look()
        return len(self._record.files) + len(self._new) - 1

    def settled(self) -> int:
        """The number of the newest file that has one for ever; what is new gets its numbers."""
        self._look()
        while self._new:
            if self._record.add(self._new[:_AT_ONCE]):
                self._new = self._new[_AT_ONCE:]
            else:
                self._look()
        return len(self._record.files) - 1

    def identity(self) -> str:
        return self._name

    def had_identity(self, identity: str) -> bool:
        return identity == self.identity()

    def mark(self, version: int) -> int | None:
        """Of the file that has the number, or would get it: the lake's record may have lost its newest entries."""
        file = self._file(version)
        return mark_of(f"{file.path}\0{file.size}\0{file.mark}".encode())

    def known_columns(self) -> None:
        """Each file says for itself which columns it has."""

    def about(self, version: int) -> str:
        return f"'{self.path}', file '{self._file(version).path}'"

    def time_of(self, version: int) -> int:
        return self._file(version).modified

    def is_whole(self, version: int) -> bool:
        """Always: nothing is said of files that belong together."""
        return True

    def lost_columns(self, version: int) -> frozenset[str]:
        """None: columns are what their names say."""
        return frozenset()

    def check_after(self, version: int) -> None:
        """Nothing: each look checks all files."""

    def rows(self, version: int, first: int) -> Iterator[pa.Table]:
        """No source begins with the rows of a version: it begins with the first file."""
        raise AssertionError("it begins with the first file")

    def changes(self, version: int) -> Iterator[Changes]:
        """The rows of a file."""
        file = self._file(version)
        content = _opened(self.path, file)
        nodes = [each for each in columns_in(content.schema_arrow) if each.type is not None]
        parts = {name: value for name, value in partitions_in(file.path).items() if not _among(name, nodes)}
        for batch in content.iter_batches(_BATCH, columns=[each.physical for each in nodes], use_threads=False):
            columns = {each.name: conformed(batch.column(each.physical), each) for each in nodes}
            yield Changes(pa.table(columns), texts=parts)

    def count(self, version: int, *, snapshot: bool) -> int:
        return self._file(version).rows

    def size(self, version: int, *, snapshot: bool) -> int:
        return self._file(version).size

    def check_files(self, version: int, *, snapshot: bool) -> None:
        """Check that a file is there as it was. A look has done so for all."""
        self._file(version)

    def _file(self, version: int) -> SeenFile:
        recorded = self._record.files
        if version >= len(recorded) + len(self._new):
            self._look()
        return recorded[version] if version < len(recorded) else self._new[version - len(recorded)]

    def _look(self) -> None:
        """Compare what is there with what was seen; what is new is kept in mind.

        Raises:
            ForeignChanged: a file was changed or removed.
            ForeignUnsupported: one is no Parquet file.
        """
        self._record.load()
        there = {each.path: each for each in listed(self.path)}
        for seen in self._record.files:
            now = there.pop(seen.path, None)
            if now is None or (now.size, now.mark) != (seen.size, seen.mark):
                what = "was removed" if now is None else "is not the one that was seen"
                raise ForeignChanged(f"the file '{seen.path}' of '{self.path}' {what}", hint=_AGAIN)
        known = {(each.path, each.mark): each for each in self._new}
        found = (known.get((each.path, each.mark)) or self._counted(each) for each in there.values())
        self._new = [each for each in found if each is not None]

    def _counted(self, file: SeenFile) -> SeenFile | None:
        """The file with its rows; None while it is being written."""
        try:
            rows = _opened(self.path, file).metadata.num_rows
        except (ForeignChanged, ForeignVersionGone):
            return None  # another one by now, or none: the next look sees it
        except ForeignUnsupported:
            if time.time() * 1000 - file.modified > _PATIENCE_MS:
                raise
            log.warning("the file '%s' of '%s' has no end yet: it is being written", file.path, self.path)
            return None
        return SeenFile(file.path, file.size, file.mark, file.modified, rows)


def _among(name: str, nodes: list[Node]) -> bool:
    return any(each.name == name for each in nodes)


def _opened(folder: LakePath, file: SeenFile) -> Any:
    """The file as it was seen.

    Raises:
        ForeignVersionGone: it is gone. ForeignChanged: it is another one.
        ForeignUnsupported: it is no Parquet file.
    """
    place = folder
    for part in PurePosixPath(file.path).parts:
        place = place / part
    try:
        if isinstance(place, Path):
            about = place.stat()
            now = about.st_size, str(about.st_mtime_ns)
            source: Any = place
        else:
            data, etag = place.read_with_etag()
            now = len(data), etag
            source = io.BytesIO(data)
        if (now[0], _plain(now[1])) != (file.size, _plain(file.mark)):
            raise ForeignChanged(f"the file '{file.path}' of '{folder}' is not the one that was seen", hint=_AGAIN)
        return open_parquet(source)
    except FileNotFoundError as error:
        raise ForeignVersionGone(f"the file '{file.path}' of '{folder}' was removed", hint=_AGAIN) from error
    except (OSError, pa.ArrowException) as error:
        raise ForeignUnsupported(
            f"the file '{file.path}' of '{folder}' does not read as Parquet: {error}",
            hint="put a whole file there under another name, and take this one away, if it was never read",
        ) from error


def _plain(mark: str) -> str:
    """The etag without the version, which listings leave out."""
    return mark.partition("\n")[0]


def _on_disk(folder: Path) -> Iterator[SeenFile]:
    for inner, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        for path in (Path(inner, name) for name in names if not _is_hidden(name) and name.endswith(_SUFFIXES)):
            try:
                about = path.stat()
            except FileNotFoundError:  # renamed since it was listed
                continue
            modified = about.st_mtime_ns
            yield SeenFile(within(path, folder), about.st_size, str(modified), modified // 1_000_000, 0)


def _in_store(folder: Location) -> Iterator[SeenFile]:
    for place, about in folder.entries():
        path = within(place, folder)
        if path.endswith(_SUFFIXES) and not any(_is_hidden(part) for part in PurePosixPath(path).parts):
            yield SeenFile(path, about.size, about.mark, about.modified, 0)


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


_FORMAT: Final = 1
_WHAT: Final = "the record of a folder's files"
_TOGETHER: Final = 64
"""Entries after which all files are written into one: an opening reads no more than so many."""


@dataclass(frozen=True)
class SeenFile:
    """A file as it was when it was seen.

    Attributes:
        path: below the folder, with '/'.
        size: bytes.
        mark: what another content under the same name would not have (`ListedObject`).
        modified: in milliseconds since the epoch.
        rows: how many it has.
    """

    path: str
    size: int
    mark: str
    modified: int
    rows: int


class FolderRecord:
    """The files of one source, in the order of their numbers. Not safe for two threads.

    Raises (all methods):
        CorruptState: an entry does not read back as it was written, or is missing.
    """

    def __init__(self, path: LakePath) -> None:
        self._path = path
        self._since = 0  # entries since the last that has all files
        self.files: list[SeenFile] = []

    def load(self) -> None:
        """Read what was added since the last time."""
        for _ in range(3):  # entries that one with all files stands for are removed at some time
            try:
                self._load()
            except FileNotFoundError:
                continue
            return
        raise self._broken("an entry is missing")

    def add(self, files: Sequence[SeenFile]) -> bool:
        """Give files the next numbers; False when another process was faster: look again."""
        make_folder(self._path)
        failpoint("before-files-recorded")
        if not create(self._entry(len(self.files)), self._sealed(files)):
            return False
        failpoint("after-files-recorded")
        self.files += files
        self._since += 1
        if self._since >= _TOGETHER:
            self._write_together()
        return True

    def _load(self) -> None:
        try:
            names = set(file_names(self._path))
        except FileNotFoundError:
            names = set()
        together = max((name for name in names if name.endswith(".all")), default="")
        if together and _number(together) > len(self.files):
            self.files = self._read(together)
            self._since = 0
        while (name := self._entry(len(self.files)).name) in names:
            self.files += self._read(name)
            self._since += 1
        entries = (_number(name) for name in names if name.endswith((".json", ".all")))
        if max(entries, default=0) > len(self.files):
            raise self._broken(f"the entry from file {len(self.files)} on is missing")

    def _write_together(self) -> None:
        """Write all files into one entry, and remove the entries that the one before it has."""
        failpoint("before-files-together")
        create(self._path / f"{len(self.files):020d}.all", self._sealed(self.files))
        failpoint("after-files-together")
        self._since = 0
        names = sorted(file_names(self._path))
        # The newest two stay, and what was added since the older: a backup, or another process, may be reading it.
        kept = [_number(name) for name in names if name.endswith(".all")][-2:]
        if len(kept) == 2:
            for name in names:
                if name.endswith((".json", ".all")) and _number(name) < kept[0]:
                    remove_file(self._path / name)

    def _entry(self, first: int) -> LakePath:
        return self._path / f"{first:020d}.json"

    def _sealed(self, files: Sequence[SeenFile]) -> bytes:
        return sealed_members({"format": _FORMAT, "files": [astuple(each) for each in files]})

    def _read(self, name: str) -> list[SeenFile]:
        data = (self._path / name).read_bytes()
        try:
            members = members_in(data)
            check_format(_WHAT, members["format"], _FORMAT, str(self._path / name))
            return [SeenFile(*each) for each in members["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise self._broken(f"'{name}' does not read back as it was written") from error

    def _broken(self, what: str) -> CorruptState:
        return CorruptState(
            f"{_WHAT}: {what}",
            where=str(self._path),
            hint="restore the lake from a backup; or DROP the source with its views and CREATE it again",
        )


def _number(name: str) -> int:
    return int(name.partition(".")[0])
