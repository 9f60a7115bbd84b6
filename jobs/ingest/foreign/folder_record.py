"""The record of the files of a folder that were seen, for one source: the log that a folder does not keep itself.

    <lake>/folders/<record>/00000000000000000000.json    files 0, 1, 2, as one look found them
                            00000000000000000003.json    file 3, found by a later look
                            00000000000000000064.all     files 0 … 63: the record begins here for who opens it

A file has its number from the moment that an entry names it, and none before: an entry is put if its name is free, so
of several processes that look at once one decides. Whatever is killed afterwards, the numbers mean the same.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from strandline.state_store.checksum import members_in, sealed_members
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import create, make_folder, remove_file
from strandline.state_store.formats import check_format
from strandline.state_store.paths import file_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.state_store.paths import LakePath

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
