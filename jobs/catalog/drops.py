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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from strandline.jobs.catalog import manifest, replacements
from strandline.jobs.catalog.stored_definition import from_json
from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.state_store.delta.heads import forget, marked
from strandline.state_store.errors import StrandlineError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, remove_file, remove_folder, replace, sync_folder
from strandline.state_store.layout import LakeLayout, name_of, safe_name
from strandline.state_store.paths import LakePath, files_in, folders_in, is_folder
from strandline.state_store.stored_state import of_members

FORMAT = 1
_DOOMED = ".dropped-"
"""Before the name of a table's folder that is being deleted: no definition has a table of such a name."""


@dataclass(frozen=True)
class DropIntent:
    """The intent to drop a definition.

    Attributes:
        name: of the definition; its tables are those that belong to the name.
        removed: the names of the definitions that go, in order: the queries into a stream, then the stream.
        shared: the shared tables that nothing reads any more.
    """

    name: str
    removed: tuple[str, ...]
    shared: tuple[str, ...] = ()


def begin(drop: DropIntent, lake: LakeLayout) -> None:
    """Put the intent, durably."""
    folder = _folder(lake)
    make_folder(folder)
    content = {"name": drop.name, "removed": drop.removed, "shared": drop.shared}
    document = {"format": FORMAT, "crc": of_members(content, ascii_only=False), **content}
    failpoint("before-drop-intent")
    replace(folder / f"{safe_name(drop.name)}.json", json.dumps(document, ensure_ascii=False).encode())
    sync_folder(lake.catalog)
    failpoint("after-drop-intent")


def begun(lake: LakeLayout) -> list[DropIntent]:
    """The drops that have begun and not ended."""
    return [_read(path, lake) for path in files_in(_folder(lake), ".json")]


def finish(drop: DropIntent, lake: LakeLayout) -> None:
    """Delete all that the drop names, and then its intent; what is gone already is left out."""
    for name in drop.removed:
        _forget_files(name, lake)
        remove_file(lake.catalog / f"{safe_name(name)}.json")
        remove_file(lake.compiled(name))
        failpoint("after-drop-definition")
    sync_folder(lake.catalog)
    manifest.forget(lake, tuple(manifest.key_of(name) for name in drop.removed))
    if is_folder(lake.tables):
        for name in (drop.name, *drop.shared):
            _delete_tables(name, lake)
        sync_folder(lake.tables)
    replacements.end(drop.name, lake)
    failpoint("after-drop-tables")
    intent = _folder(lake) / f"{safe_name(drop.name)}.json"
    for path in (*_never_put(_folder(lake)), intent):
        remove_file(path)
    sync_folder(_folder(lake))
    failpoint("after-drop-end")


def table_paths(name: str, lake: LakeLayout) -> list[LakePath]:
    """The tables in the lake that belong to this name only, in the order to drop them."""
    there = [name_of(path.name) for path in folders_in(lake.tables)]
    return [lake.table(each) for each in tables.owned_by(name, there)]


def _delete_tables(name: str, lake: LakeLayout) -> None:
    """Delete the tables of a name: a folder is renamed first, so a reader sees all of a table or nothing.

    An object store has nothing to rename: there the log goes first, so a reader sees an older version or nothing.
    """
    if isinstance(lake.tables, Path):
        for doomed in _doomed(name, lake.tables):
            remove_folder(doomed)
    for each in tables.owned_by(name, marked(lake)):
        forget(lake, each)
    for table in table_paths(name, lake):
        if isinstance(table, Path):
            doomed = table.with_name(_DOOMED + table.name)
            os.replace(table, doomed)
            failpoint("after-drop-rename")
            remove_folder(doomed)
        else:
            remove_folder(table)
        failpoint("after-drop-table")


def _forget_files(name: str, lake: LakeLayout) -> None:
    """Delete the record of the files that a source over a folder has seen: no other one goes on with it."""
    file = lake.catalog / f"{safe_name(name)}.json"
    try:
        definition = from_json(file.read_bytes(), str(file)).definition
    except (FileNotFoundError, StrandlineError):
        return  # gone already; of one that does not read back, the record stays
    origin = origin_of(definition.topic) if isinstance(definition, Source) else None
    if origin is not None and origin.record:
        if is_folder(record := lake.folder_record(origin.record)):
            remove_folder(record)
        failpoint("after-drop-record")


def _doomed(name: str, folder: Path) -> Iterator[Path]:
    """What a killed drop has renamed and not deleted."""
    names = {name_of(path.name.removeprefix(_DOOMED)): path for path in folder.glob(f"{_DOOMED}*")}
    return (names[each] for each in tables.owned_by(name, names))


def _read(path: LakePath, lake: LakeLayout) -> DropIntent:
    """The intent in a file. Of one that does not read back the name is left, which tells all but the shared tables."""
    name = name_of(path.stem)
    try:
        document = json.loads(path.read_bytes().decode())
        version, crc = document.pop("format"), document.pop("crc")
        if version == FORMAT and crc == of_members(document, ascii_only=False) and document["name"] == name:
            return DropIntent(name, tuple(document["removed"]), tuple(document["shared"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return DropIntent(name, (*_feeding(name, files_in(lake.catalog, ".json")), name))


def _feeding(stream: str, files: Iterable[LakePath]) -> Iterator[str]:
    for name in sorted(name_of(path.stem) for path in files):
        fed = tables.fed_stream(name)
        if fed is not None and fed[0] == stream:
            yield name


def _never_put(folder: LakePath) -> Iterator[Path]:
    """Intents of processes that were killed before they had their name."""
    return folder.glob(".*.tmp") if isinstance(folder, Path) else iter(())


def _folder(lake: LakeLayout) -> LakePath:
    return lake.catalog / "dropping"
