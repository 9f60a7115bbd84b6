"""The heads of a lake's tables, by name: a lost table is an error, one that was never made is None.

A log does not tell that its newest commits were lost: it ends earlier, and looks as it did then. Others tell it: what
was computed from a later version names that in its vector. Whoever answers from a table asks them (`newest_version`); a
refresh does not, since it finds the same where it reads that vector, and its next commit of the table sets it right.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from strandline.state_store.begun import check_not_lost, note
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.log import LOG
from strandline.state_store.errors import CommitsLost, StoreError
from strandline.state_store.files import Unchanged
from strandline.state_store.layout import name_of
from strandline.state_store.paths import files_in, folders_in, side_by_side
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.layout import Lake
    from strandline.state_store.paths import LakePath

_VECTORS: Final = Unchanged["Mapping[str, TableVersion]"](4 << 20)
"""Every answer asks for those of all tables: some microseconds each, for some thousand of tables."""


def head(lake: Lake, table: str) -> Head | None:
    """The head of a table; None when it has not been made yet.

    Raises:
        TableLost: it was made, and its log is not there any more.
        CorruptState, ForeignWrite: as of `reader.head`.
    """
    found = reader.head(lake.table(table))
    if found is None:
        check_not_lost(lake, table)
    return found


def newest_version(lake: Lake, table: str) -> int | None:
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


def check_whole(lake: Lake, table: str, newest: int) -> None:
    """Raise CommitsLost if another table was computed from a later version than the newest."""
    for reader_of_it, vector in side_by_side(lambda folder: (folder.name, _vector(folder)), _logs(lake), lake.tables):
        for entry, at in vector.items():
            if at.version <= newest or table not in (entry, entry.partition("/")[2]):
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


def _logs(lake: Lake) -> list[LakePath]:
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


def note_all(lake: Lake) -> None:
    """Note every table that has a commit and no mark: what a kill has left out, and tables older than marks."""
    known = {file.stem for file in files_in(lake.begun, ".json")}
    for folder in folders_in(lake.tables):
        if folder.name not in known:
            with suppress(StoreError):  # who reads it is told what is wrong with it
                found = reader.head(folder)
                if found is not None:
                    note(lake, name_of(folder.name), found.record.table)
