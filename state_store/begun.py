"""Tables that were begun: a mark for each outside of its folder, which tells a lost table from one that never was.

    <lake>/begun/<table>.json     {"table": its identity}: written once it has a commit, removed before it is removed

A table without a log and without a mark has not been made yet: it has no rows. One without a log and with a mark is
lost, and nobody may say that it has no rows.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

from strandline.state_store.checksum import members_in, sealed_members
from strandline.state_store.errors import TableLost
from strandline.state_store.files import make_folder, move_folder, remove_file, replace
from strandline.state_store.layout import name_of
from strandline.state_store.paths import files_in, is_folder
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.state_store.layout import Lake
    from strandline.state_store.paths import LakePath


def check_not_lost(lake: Lake, table: str) -> None:
    """Check, of a table without a log, that it has not been made yet.

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


def note(lake: Lake, table: str, identity: str) -> None:
    """Note that a table has a commit.

    Args:
        identity: Delta's id of the table.
    """
    file = mark(lake, table)
    if not file.exists():
        make_folder(file.parent)
        replace(file, sealed_members({"table": identity}))


def forget(lake: Lake, table: str) -> None:
    """Forget a table that is about to be removed, or moved out of the way."""
    remove_file(mark(lake, table))


def marked(lake: Lake) -> Iterable[str]:
    """The names of the tables that were begun."""
    return [name_of(file.stem) for file in files_in(lake.begun, ".json")]


def identity(lake: Lake, table: str) -> str | None:
    """Delta's id of a table as it was noted; None where none was, or the note does not read back."""
    try:
        return str(members_in(mark(lake, table).read_bytes())["table"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def mark(lake: Lake, table: str) -> LakePath:
    """The file of a table's mark."""
    return lake.begun / f"{lake.table(table).name}.json"


# Tables set aside: moved out of the way of one that is begun anew, and kept for whoever wants to look.


def set_aside(lake: Lake, table: str) -> LakePath | None:
    """Move a table's folder to `<lake>/aside/`; None when there is no such table. On a disk it is one step."""
    path = lake.table(table)
    forget(lake, table)
    if not is_folder(path):
        return None
    make_folder(lake.aside)
    target = lake.aside / f"{path.name}-{time.time_ns()}"
    move_folder(path, target)
    return target
