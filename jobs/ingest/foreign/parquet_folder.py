"""A folder of Parquet files, into which others put files and change none: each file is a version, and comes whole.

    landing/day=2026-01-02/part-0.parquet    file 0     as the lake's record says (`folder_record`), in the order in
    landing/day=2026-01-03/part-0.parquet    file 1     which they were written and, of one moment, of their paths

A file whose path has a part that begins with `_` or `.` is none yet, or of no concern; nor is one with another suffix.
One without its last bytes is being written: it is looked at again, and an error when nobody has written to it for long.
A file that was changed, or removed, is an error, also when its rows are taken in: another content has no number.
"""

from __future__ import annotations

import io
import logging
import os
import re
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.jobs.ingest.foreign.columns import PATH, Node, columns_in
from strandline.jobs.ingest.foreign.folder_record import FolderRecord, SeenFile
from strandline.jobs.ingest.foreign.table import Changes, mark_of
from strandline.jobs.ingest.foreign.values import conformed
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import ForeignChanged, ForeignMissing, ForeignUnsupported, ForeignVersionGone
from strandline.state_store.errors import SettingsError
from strandline.state_store.paths import Location, is_folder, within
from strandline.state_store.storage.open import lake_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.ingest.foreign.origin import Kind, Origin
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath
    from strandline.state_store.storage.open import StorageOptions

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
        return pq.ParquetFile(source, page_checksum_verification=True)
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
