"""Drops that a kill cannot leave half done: an intent is put first, then what it names is deleted, then the intent.

    intent ──> files of the definitions ──> tables, rows before the log that they reflect ──> intent removed

From the intent on, its definitions are gone for every reader of the catalog. Whoever changes the catalog, or runs a
pipeline, first ends the drops that somebody else began and did not end: nobody finds the rows of a former definition.
All of it happens under the lock of the catalog. The writer's lock, which a drop holds when it puts the intent, is not
needed to end it: a run that begins after the intent knows nothing of its definitions.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jobs.model import tables
from state_store.checksum import of_members
from state_store.failpoints import failpoint
from state_store.files import replace, sync_folder
from state_store.layout import Lake, name_of, safe_name

FORMAT = 1
_DOOMED = ".dropped-"
"""Before the name of a table's folder that is being deleted: no definition has a table of such a name."""


@dataclass(frozen=True)
class Drop:
    """The intent to drop a definition.

    Attributes:
        name: of the definition; its tables are those that belong to the name.
        removed: the names of the definitions that go, in order: the queries into a stream, then the stream.
        shared: the shared tables that nothing reads any more.
    """

    name: str
    removed: tuple[str, ...]
    shared: tuple[str, ...] = ()


def begin(drop: Drop, lake: Lake) -> None:
    """Put the intent, durably."""
    folder = _folder(lake)
    folder.mkdir(exist_ok=True)
    content = {"name": drop.name, "removed": drop.removed, "shared": drop.shared}
    document = {"format": FORMAT, "crc": of_members(content, ascii_only=False), **content}
    failpoint("before-drop-intent")
    replace(folder / f"{safe_name(drop.name)}.json", json.dumps(document, ensure_ascii=False).encode())
    sync_folder(lake.catalog)
    failpoint("after-drop-intent")


def begun(lake: Lake) -> list[Drop]:
    """The drops that have begun and not ended."""
    return [_read(path, lake) for path in sorted(_folder(lake).glob("*.json"))]


def finish(drop: Drop, lake: Lake) -> None:
    """Delete all that the drop names, and then its intent; what is gone already is left out."""
    for name in drop.removed:
        (lake.catalog / f"{safe_name(name)}.json").unlink(missing_ok=True)
        failpoint("after-drop-definition")
    sync_folder(lake.catalog)
    if lake.tables.exists():
        for name in (drop.name, *drop.shared):
            _delete_tables(name, lake)
        sync_folder(lake.tables)
    failpoint("after-drop-tables")
    intent = _folder(lake) / f"{safe_name(drop.name)}.json"
    for path in (*_folder(lake).glob(".*.tmp"), intent):  # and intents that were never put
        path.unlink(missing_ok=True)
    sync_folder(_folder(lake))
    failpoint("after-drop-end")


def table_paths(name: str, lake: Lake) -> list[Path]:
    """The tables in the lake that belong to this name only, in the order to drop them."""
    try:
        there = [name_of(path.name) for path in lake.tables.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:  # nothing has run yet
        return []
    return [lake.table(each) for each in tables.owned_by(name, there)]


def _delete_tables(name: str, lake: Lake) -> None:
    """Delete the tables of a name: a folder is renamed first, so a reader sees all of a table or nothing."""
    for doomed in _doomed(name, lake):
        shutil.rmtree(doomed)
    for table in table_paths(name, lake):
        doomed = table.with_name(_DOOMED + table.name)
        os.replace(table, doomed)
        failpoint("after-drop-rename")
        shutil.rmtree(doomed)
        failpoint("after-drop-table")


def _doomed(name: str, lake: Lake) -> Iterator[Path]:
    """What a killed drop has renamed and not deleted."""
    names = {name_of(path.name.removeprefix(_DOOMED)): path for path in lake.tables.glob(f"{_DOOMED}*")}
    return (names[each] for each in tables.owned_by(name, names))


def _read(path: Path, lake: Lake) -> Drop:
    """The intent in a file. Of one that does not read back the name is left, which tells all but the shared tables."""
    name = name_of(path.stem)
    try:
        document = json.loads(path.read_bytes().decode())
        version, crc = document.pop("format"), document.pop("crc")
        if version == FORMAT and crc == of_members(document, ascii_only=False) and document["name"] == name:
            return Drop(name, tuple(document["removed"]), tuple(document["shared"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return Drop(name, (*_feeding(name, lake.catalog.glob("*.json")), name))


def _feeding(stream: str, files: Iterable[Path]) -> Iterator[str]:
    for name in sorted(name_of(path.stem) for path in files):
        fed = tables.fed_stream(name)
        if fed is not None and fed[0] == stream:
            yield name


def _folder(lake: Lake) -> Path:
    return lake.catalog / "dropping"
