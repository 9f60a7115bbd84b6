"""The heads of a lake's tables, by name: a lost table is an error, one that was never made is None."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from state_store.begun import check_not_lost, note
from state_store.delta import log, reader
from state_store.errors import StoreError
from state_store.layout import name_of
from state_store.paths import files_in, folders_in

if TYPE_CHECKING:
    from state_store.commits import Head
    from state_store.layout import Lake


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
    """The newest version of a table; None when it has not been made yet. Raises TableLost."""
    found = log.newest_version(lake.table(table))
    if found is None:
        check_not_lost(lake, table)
    return found


def note_all(lake: Lake) -> None:
    """Note every table that has a commit and no mark: what a kill has left out, and tables older than marks."""
    known = {file.stem for file in files_in(lake.begun, ".json")}
    for folder in folders_in(lake.tables):
        if folder.name not in known:
            with suppress(StoreError):  # who reads it is told what is wrong with it
                found = reader.head(folder)
                if found is not None:
                    note(lake, name_of(folder.name), found.record.table)
