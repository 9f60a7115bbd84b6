"""Replacements of definitions that a kill cannot leave half done: an intent is put first, a table's commit decides.

    intent ──> swap, one commit of the view's table ──> definition ──> tables of the former one ──> intent removed
    intent ──> further columns for a source's tables ─> definition ──────────────────────────────> intent removed

Until that commit the former definition stands, from then on the next one, whatever the definition's own file says
still. Whoever holds the lock of its pipeline takes an intent from wherever it stands to its end: a run that is at work
finds it at its next micro-batch, and one that begins ends those of processes that were killed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog.lock import locked
from strandline.jobs.catalog.stored_definition import from_json, to_json
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import RefreshFailed
from strandline.state_store.delta import reader
from strandline.state_store.errors import StorageDenied, StorageUnavailable, StrandlineError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, remove_file, sync_folder
from strandline.state_store.files import replace as replace_file
from strandline.state_store.layout import safe_name
from strandline.state_store.paths import files_in

if TYPE_CHECKING:
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

FORMAT = 1


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


def put(replacement: Replacement, lake: LakeLayout) -> None:
    """Put the intent, or another state of it, durably. The catalog's lock must be held."""
    folder = _folder(lake)
    make_folder(folder)
    body = json.loads(to_json(0, replacement.definition))
    decided = {"epoch": replacement.epoch, "table": replacement.table, "refused": replacement.refused}
    stays = {"shared": replacement.shared, "unproved": replacement.unproved}
    document = {"format": FORMAT, **decided, **stays, "next": body}
    failpoint("before-replacement-intent")
    replace_file(_file(replacement.name, lake), json.dumps(document, ensure_ascii=False).encode())
    sync_folder(lake.catalog)
    failpoint("after-replacement-intent")


def find(name: str, lake: LakeLayout) -> Replacement | None:
    """The intent for a view or source, refused ones too; None when there is none, or none that reads back."""
    return _read(_file(name, lake))


def begun(lake: LakeLayout) -> list[Replacement]:
    """The intents that have neither ended nor been refused."""
    found = (_read(path) for path in files_in(_folder(lake), ".json"))
    return [each for each in found if each is not None and each.refused is None]


def begun_in(pipeline: str, lake: LakeLayout) -> list[Replacement]:
    """Those for the definitions of a pipeline."""
    return [each for each in begun(lake) if each.definition.pipeline == pipeline]


def plan_epoch(replacement: Replacement, epoch: int, table: str, lake: LakeLayout) -> None:
    """Note which commit will decide; from then on nobody takes the intent back.

    Raises:
        RefreshFailed: it was taken back.
    """
    with locked(lake.catalog):
        if find(replacement.name, lake) != replacement:
            raise RefreshFailed("the replacement was taken back")
        put(replace(replacement, epoch=epoch, table=table), lake)


def refuse(replacement: Replacement, why: str, lake: LakeLayout) -> None:
    """Give an intent up, before its swap; the reason stands until whoever put it has read it."""
    put(replace(replacement, epoch=None, refused=why), lake)


def end(name: str, lake: LakeLayout) -> None:
    """Remove the intent for a name, if there is one."""
    remove_file(_file(name, lake))
    sync_folder(lake.catalog)


def _read(path: LakePath) -> Replacement | None:
    """The intent in a file. One that does not read back never stood: the deciding commit comes after it.

    Raises:
        StorageDenied, StorageUnavailable: the object store does not say. An intent that is only out of sight must not
            be taken for none: the epoch of its swap could then be another's.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        document = json.loads(data)
        definition = from_json(json.dumps(document["next"], ensure_ascii=False).encode(), str(path)).definition
        if document["format"] != FORMAT or not isinstance(definition, Source | View):
            return None
        table, shared = document.get("table", ""), tuple(document.get("shared", ()))
        return Replacement(definition, document["epoch"], document["refused"], table, shared, document.get("unproved"))
    except (ValueError, KeyError, TypeError, StrandlineError):
        return None


def _file(name: str, lake: LakeLayout) -> LakePath:
    return _folder(lake) / f"{safe_name(name)}.json"


def _folder(lake: LakeLayout) -> LakePath:
    return lake.catalog / "replacing"
