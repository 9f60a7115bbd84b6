"""Heads of a lake's tables, by name: None for a table that was never made, an error for one that is lost.

A log does not tell that its newest commits were lost: it ends earlier, and looks as it did then. Others tell it: what
was computed from a later version names that in its vector. Whoever answers from a table, or says how it is, asks them
(`newest_version`, `WholeHeads`); a refresh does not, since it finds the same where it reads that vector, and its next
commit of the table sets it right.
"""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.log import LOG
from strandline.state_store.errors import CommitsLost, StoreError, TableLost
from strandline.state_store.files import Unchanged, make_folder, move_folder, remove_file, replace
from strandline.state_store.layout import name_of
from strandline.state_store.paths import files_in, folders_in, is_folder, side_by_side
from strandline.state_store.stored_state import members_in, sealed_members
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


# Marks of tables that were begun, outside of their folders: they tell a lost table from one that never was.
#
#     <lake>/begun/<table>.json     {"table": its identity}: written once it has a commit, removed before it is removed
#
# A table without a log and without a mark has not been made yet: it has no rows. One without a log and with a mark is
# lost, and nobody may say that it has no rows.


def check_not_lost(lake: LakeLayout, table: str) -> None:
    """Raise TableLost if a table without a log was made before.

    Raises:
        TableLost: it has.
    """
    if mark(lake, table).exists():
        raise TableLost(
            sentence("the table of '{}' is lost: it had commits, and its log is not there any more", Name(table)),
            where=str(lake.table(table)),
            hint=sentence(
                "put its folder back from a backup, or compute its rows again: strandline rebuild {}",
                Name(table, shlex.quote),
            ),
        )


def note(lake: LakeLayout, table: str, identity: str) -> None:
    """Mark that a table has a commit.

    Args:
        identity: Delta's id of the table.
    """
    file = mark(lake, table)
    if not file.exists():
        make_folder(file.parent)
        replace(file, sealed_members({"table": identity}))


def forget(lake: LakeLayout, table: str) -> None:
    """Forget a table that is about to be removed, or moved out of the way."""
    remove_file(mark(lake, table))


def marked(lake: LakeLayout) -> Iterable[str]:
    """The names of the tables that were begun."""
    return [name_of(file.stem) for file in files_in(lake.begun, ".json")]


def identity(lake: LakeLayout, table: str) -> str | None:
    """Delta's id of a table as it was noted; None where none was, or the note does not read back."""
    try:
        return str(members_in(mark(lake, table).read_bytes())["table"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def mark(lake: LakeLayout, table: str) -> LakePath:
    """The file of a table's mark."""
    return lake.begun / f"{lake.table(table).name}.json"


# Tables set aside: moved out of the way of a new one, and kept for inspection.


def set_aside(lake: LakeLayout, table: str) -> LakePath | None:
    """Move a table's folder to `<lake>/aside/`; None when there is no such table. On a disk it is one step."""
    path = lake.table(table)
    forget(lake, table)
    if not is_folder(path):
        return None
    make_folder(lake.aside)
    target = lake.aside / f"{path.name}-{time.time_ns()}"
    move_folder(path, target)
    return target


_VECTORS: Final = Unchanged["Mapping[str, TableVersion]"](4 << 20)
"""Every answer asks for those of all tables: some microseconds each, for some thousand of tables."""


def head(lake: LakeLayout, table: str) -> Head | None:
    """The head of a table; None when it has not been made yet.

    Raises:
        TableLost: it was made, and its log is not there any more.
        CorruptState, ForeignWrite: as of `reader.head`.
    """
    found = reader.head(lake.table(table))
    if found is None:
        check_not_lost(lake, table)
    return found


def newest_version(lake: LakeLayout, table: str) -> int | None:
    """The newest version of a table, to answer from; None when it has not been made yet.

    Raises:
        TableLost: it was made, and its log is not there any more.
        CommitsLost: another table was computed from a later version of it.
    """
    found = log.newest_version(lake.table(table))
    if found is None:
        check_not_lost(lake, table)
    else:
        check_whole(lake, table, found)
    return found


def check_whole(lake: LakeLayout, table: str, newest: int) -> None:
    """Raise CommitsLost if another table was computed from a later version than the newest."""
    _check_read(lake, table, newest, (reading for tables, reading in _readings(lake) if table in tables))


class WholeHeads:
    """Heads of the whole tables of a lake, at one moment: for whoever asks for many of them at once."""

    def __init__(self, lake: LakeLayout) -> None:
        self.lake = lake

    def head(self, table: str) -> Head | None:
        """The head of a table; None when it has not been made yet.

        Raises:
            TableLost: it was made, and its log is not there any more.
            CommitsLost: another table was computed from a later version of it.
            CorruptState, ForeignWrite: as of `reader.head`.
        """
        found = head(self.lake, table)
        if found is not None:
            _check_read(self.lake, table, found.version, self._read.get(table, ()))
        return found

    @cached_property
    def _read(self) -> dict[str, list[_Reading]]:
        found: dict[str, list[_Reading]] = {}
        for tables, reading in _readings(self.lake):
            for table in set(tables):
                found.setdefault(table, []).append(reading)
        return found


_Reading = tuple[str, "TableVersion"]
"""A table by its name in the lake's folder, and the version of another from which its newest commit was computed."""


def _readings(lake: LakeLayout) -> Iterator[tuple[tuple[str, str], _Reading]]:
    """Each entry of each newest vector: the two names that it may mean, and what it says."""
    for reader_of_it, vector in side_by_side(lambda folder: (folder.name, _vector(folder)), _logs(lake), lake.tables):
        for entry, at in vector.items():
            yield (entry, entry.partition("/")[2]), (reader_of_it, at)


def _check_read(lake: LakeLayout, table: str, newest: int, read: Iterable[_Reading]) -> None:
    for reader_of_it, at in read:
        if at.version <= newest:
            continue
        newest = log.newest_version(lake.table(table)) or 0  # it may have moved on meanwhile
        if at.version > newest and at.table in ("", reader.record_at(lake.table(table), newest, ours=False).table):
            raise CommitsLost(
                sentence(
                    "the newest commits of '{}' are lost: it is at {}, and '{}' was computed from its version {}",
                    Name(table),
                    f"version {newest}",
                    Name(name_of(reader_of_it)),
                    at.version,
                ),
                where=str(lake.table(table)),
                hint=sentence(
                    "put its folder back from a backup, or compute its rows again: strandline rebuild {}",
                    Name(table, shlex.quote),
                ),
            )


def _logs(lake: LakeLayout) -> list[LakePath]:
    return list(folders_in(lake.tables))


def _vector(folder: LakePath) -> Mapping[str, TableVersion]:
    """What a table was computed from by its newest record; nothing where that does not read: its own readers are told.

    It is read again when a name has come into the folder of its log, or has gone from it.
    """

    def read() -> Mapping[str, TableVersion]:
        found = log.newest_version(folder)
        return {} if found is None else reader.record_at(folder, found, ours=False).vector

    try:
        return _VECTORS.read(folder / LOG, read)
    except (FileNotFoundError, StoreError):
        return {}


def note_all(lake: LakeLayout) -> None:
    """Mark every table that has a commit and no mark: what a kill has left out, and tables older than marks."""
    known = {file.stem for file in files_in(lake.begun, ".json")}
    for folder in folders_in(lake.tables):
        if folder.name not in known:
            with suppress(StoreError):  # who reads it is told what is wrong with it
                found = reader.head(folder)
                if found is not None:
                    note(lake, name_of(folder.name), found.record.table)
