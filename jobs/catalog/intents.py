"""The intents of changes that a kill cannot leave half done: the replacement of a definition, and a drop.

A replacement: an intent is put first, a table's commit decides.

    intent ──> swap, one commit of the view's table ──> definition ──> tables of the former one ──> intent removed
    intent ──> further columns for a source's tables ─> definition ──────────────────────────────> intent removed

Until that commit the former definition stands, from then on the next one, whatever the definition's own file says
still. Whoever holds the lock of its pipeline takes an intent from wherever it stands to its end: a run that is at work
finds it at its next micro-batch, and one that begins ends those of processes that were killed. While an intent does not
read back, nobody knows which of the two definitions stands: neither does, until it is said again.

A drop: an intent is put first, then what it names is deleted, then the intent.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from strandline.jobs.catalog import manifest
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.catalog.stored_definition import from_json, to_json
from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import RefreshFailed
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import forget, marked
from strandline.state_store.errors import CorruptState, StorageDenied, StorageUnavailable, StrandlineError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, remove_file, remove_folder, sync_folder
from strandline.state_store.files import replace as replace_file
from strandline.state_store.layout import LakeLayout, name_of, safe_name
from strandline.state_store.paths import LakePath, files_in, folders_in, is_folder
from strandline.state_store.stored_state import members_since, of_members, sealed_members
from strandline.state_store.wording import Name, sentence

FORMAT = 1
_SEALED_FORMAT = 2
"""Of replacements: since then they have a checksum. Those of format 1, begun before, are read as they are."""


SAY_AGAIN: Final = (
    "say the definition that is to stand: its CREATE OR REPLACE, or strandline apply FILE.sql; "
    "or DROP it and CREATE it again"
)
"""What to type where an intent of a replacement does not read back."""


@dataclass(frozen=True)
class Replacement:
    """The intent to put a definition in the place of a view's, or of a source's that gets further columns.

    Attributes:
        definition: the next one.
        epoch: of the table that decides, which the deciding commit will make; None before it is planned.
        refused: why it was given up; None as long as it may come.
        table: the table that decides; empty: that of the definition's name.
        shared: the shared tables of the definition in whose place it comes.
        unproved: why the rows of a view were not compared with its SQL; None: they were, or there are none.
    """

    definition: Source | View
    epoch: int | None = None
    refused: str | None = None
    table: str = ""
    shared: tuple[str, ...] = ()
    unproved: str | None = None

    @property
    def name(self) -> str:
        """The name of the view or source."""
        return self.definition.name

    def done(self, lake: LakeLayout) -> bool:
        """True if the table has the deciding commit: the definition stands.

        Raises:
            StorageDenied, StorageUnavailable: the object store does not say.
        """
        if self.epoch is None:
            return False
        try:
            head = reader.head(lake.table(self.table or self.name))
        except (StorageDenied, StorageUnavailable):
            raise  # the table may well have it
        except StrandlineError:
            return False  # a table that does not read says nothing; whoever ends the intent will hear why
        return head is not None and head.record.epoch >= self.epoch


def put_replacement(replacement: Replacement, lake: LakeLayout) -> None:
    """Put the intent, or another state of it, durably. The catalog's lock must be held."""
    folder = _replacements_folder(lake)
    make_folder(folder)
    body = json.loads(to_json(0, replacement.definition))
    decided = {"epoch": replacement.epoch, "table": replacement.table, "refused": replacement.refused}
    stays = {"shared": replacement.shared, "unproved": replacement.unproved}
    document = {"format": _SEALED_FORMAT, **decided, **stays, "next": body}
    failpoint("before-replacement-intent")
    replace_file(replacement_file(replacement.name, lake), sealed_members(document))
    sync_folder(lake.catalog)
    failpoint("after-replacement-intent")


def find_replacement(name: str, lake: LakeLayout) -> Replacement | None:
    """The intent for a view or source, refused ones too; None when there is none.

    Raises:
        CorruptState: it does not read back.
    """
    return _read_replacement(replacement_file(name, lake))


def replacements(lake: LakeLayout) -> tuple[list[Replacement], dict[str, bytes]]:
    """The intents that have neither ended nor been refused; and of those that do not read back what is left, by the
    names of the definitions."""
    begun: list[Replacement] = []
    damaged: dict[str, bytes] = {}
    for path in files_in(_replacements_folder(lake), ".json"):
        try:
            found = _read_replacement(path)
        except CorruptState:
            damaged[name_of(path.stem)] = path.read_bytes()
            continue
        begun += [found] if found is not None and found.refused is None else []
    return begun, damaged


def begun_replacements(lake: LakeLayout) -> list[Replacement]:
    """The intents that read back, and have neither ended nor been refused."""
    return replacements(lake)[0]


def begun_replacements_in(pipeline: str, lake: LakeLayout) -> list[Replacement]:
    """Those for the definitions of a pipeline."""
    return [each for each in begun_replacements(lake) if each.definition.pipeline == pipeline]


def plan_epoch(replacement: Replacement, epoch: int, table: str, lake: LakeLayout) -> None:
    """Note which commit will decide; from then on nobody takes the intent back.

    Raises:
        RefreshFailed: it was taken back.
    """
    with locked(lake.catalog):
        if find_replacement(replacement.name, lake) != replacement:
            raise RefreshFailed("the replacement was taken back")
        put_replacement(replace(replacement, epoch=epoch, table=table), lake)


def refuse_replacement(replacement: Replacement, why: str, lake: LakeLayout) -> None:
    """Give an intent up, before its swap; the reason stands until whoever put it has read it."""
    put_replacement(replace(replacement, epoch=None, refused=why), lake)


def end_replacement(name: str, lake: LakeLayout) -> None:
    """Remove the intent for a name, if there is one."""
    remove_file(replacement_file(name, lake))
    sync_folder(lake.catalog)


def _read_replacement(path: LakePath) -> Replacement | None:
    """The intent in a file; None when there is no such file.

    Raises:
        CorruptState: it does not read back. The deciding commit comes after it, and may have come.
        StorageDenied, StorageUnavailable: the object store does not say. An intent that is only out of sight must not
            be taken for none: the epoch of its swap could then be another's.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        # The epoch and the table say whether the swap is done: a flipped bit of them must not decide it.
        document = members_since(data, _SEALED_FORMAT)
        definition = from_json(json.dumps(document["next"], ensure_ascii=False).encode(), str(path)).definition
        if not isinstance(definition, Source | View):
            raise ValueError(definition)
        table, shared = document.get("table", ""), tuple(document.get("shared", ()))
        return Replacement(definition, document["epoch"], document["refused"], table, shared, document.get("unproved"))
    except (ValueError, KeyError, TypeError, StrandlineError) as error:
        name = Name(name_of(path.stem))
        raise CorruptState(
            sentence("the intent of the replacement of '{}' does not read back", name), where=str(path), hint=SAY_AGAIN
        ) from error


def replacement_file(name: str, lake: LakeLayout) -> LakePath:
    """The file of the intent for a view or source."""
    return _replacements_folder(lake) / f"{safe_name(name)}.json"


def _replacements_folder(lake: LakeLayout) -> LakePath:
    return lake.catalog / "replacing"


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


def begin_drop(drop: DropIntent, lake: LakeLayout) -> None:
    """Put the intent, durably."""
    folder = _drops_folder(lake)
    make_folder(folder)
    content = {"name": drop.name, "removed": drop.removed, "shared": drop.shared}
    document = {"format": FORMAT, "crc": of_members(content, ascii_only=False), **content}
    failpoint("before-drop-intent")
    replace_file(folder / f"{safe_name(drop.name)}.json", json.dumps(document, ensure_ascii=False).encode())
    sync_folder(lake.catalog)
    failpoint("after-drop-intent")


def begun_drops(lake: LakeLayout) -> list[DropIntent]:
    """The drops that have begun and not ended."""
    return [_read_drop(path, lake) for path in files_in(_drops_folder(lake), ".json")]


def finish_drop(drop: DropIntent, lake: LakeLayout) -> None:
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
    end_replacement(drop.name, lake)
    failpoint("after-drop-tables")
    intent = _drops_folder(lake) / f"{safe_name(drop.name)}.json"
    for path in (*_never_put(_drops_folder(lake)), intent):
        remove_file(path)
    sync_folder(_drops_folder(lake))
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


def _read_drop(path: LakePath, lake: LakeLayout) -> DropIntent:
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


def _drops_folder(lake: LakeLayout) -> LakePath:
    return lake.catalog / "dropping"
