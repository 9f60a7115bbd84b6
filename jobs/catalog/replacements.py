"""Replacements of views that a kill cannot leave half done: an intent is put first, the table's commit decides.

    intent ──> swap, one commit of the view's table ──> definition ──> tables of the former one ──> intent removed

Until that commit the former definition stands, from then on the next one, whatever the view's own file says still.
Whoever holds the lock of the view's pipeline takes an intent from wherever it stands to its end: a run that is at work
finds it at its next micro-batch, and one that begins ends those of processes that were killed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.catalog.as_json import from_json, to_json
from jobs.model.definitions import View
from state_store.delta import reader
from state_store.errors import StorageDenied, StorageUnavailable, StrandlineError
from state_store.failpoints import failpoint
from state_store.files import make_folder, sync_folder
from state_store.files import replace as replace_file
from state_store.folders import remove_file
from state_store.layout import safe_name
from state_store.paths import files_in

if TYPE_CHECKING:
    from state_store.layout import Lake
    from state_store.paths import LakePath

FORMAT = 1


@dataclass(frozen=True)
class Replacement:
    """The intent to put a definition in the place of a view's.

    Attributes:
        definition: the next one.
        epoch: of the view's table, that the swap will make; None before it is planned.
        refused: why the swap was given up; None as long as it may come.
    """

    definition: View
    epoch: int | None = None
    refused: str | None = None

    @property
    def name(self) -> str:
        """The name of the view."""
        return self.definition.name

    def done(self, lake: Lake) -> bool:
        """True if the table has the swap's commit: the definition is the view's.

        Raises:
            StorageDenied, StorageUnavailable: the object store does not say.
        """
        if self.epoch is None:
            return False
        try:
            head = reader.head(lake.table(self.name))
        except (StorageDenied, StorageUnavailable):
            raise  # the table may well have it
        except StrandlineError:
            return False  # a table that does not read says nothing; whoever ends the intent will hear why
        return head is not None and head.record.epoch >= self.epoch


def put(replacement: Replacement, lake: Lake) -> None:
    """Put the intent, or another state of it, durably. The catalog's lock must be held."""
    folder = _folder(lake)
    make_folder(folder)
    body = json.loads(to_json(0, replacement.definition))
    document = {"format": FORMAT, "epoch": replacement.epoch, "refused": replacement.refused, "next": body}
    failpoint("before-replacement-intent")
    replace_file(_file(replacement.name, lake), json.dumps(document, ensure_ascii=False).encode())
    sync_folder(lake.catalog)
    failpoint("after-replacement-intent")


def find(name: str, lake: Lake) -> Replacement | None:
    """The intent for a view, refused ones too; None when there is none, or none that reads back."""
    return _read(_file(name, lake))


def begun(lake: Lake) -> list[Replacement]:
    """The intents that have neither ended nor been refused."""
    found = (_read(path) for path in files_in(_folder(lake), ".json"))
    return [each for each in found if each is not None and each.refused is None]


def begun_in(pipeline: str, lake: Lake) -> list[Replacement]:
    """Those for the views of a pipeline."""
    return [each for each in begun(lake) if each.definition.pipeline == pipeline]


def refuse(replacement: Replacement, why: str, lake: Lake) -> None:
    """Give an intent up, before its swap; the reason stands until whoever put it has read it."""
    put(replace(replacement, epoch=None, refused=why), lake)


def end(name: str, lake: Lake) -> None:
    """Remove the intent for a view, if there is one."""
    remove_file(_file(name, lake))
    sync_folder(lake.catalog)


def _read(path: LakePath) -> Replacement | None:
    """The intent in a file. One that does not read back was never a view's: the swap comes after it was written.

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
        _, definition = from_json(json.dumps(document["next"], ensure_ascii=False).encode(), str(path))
        if document["format"] != FORMAT or not isinstance(definition, View):
            return None
        return Replacement(definition, document["epoch"], document["refused"])
    except (ValueError, KeyError, TypeError, StrandlineError):
        return None


def _file(name: str, lake: Lake) -> LakePath:
    return _folder(lake) / f"{safe_name(name)}.json"


def _folder(lake: Lake) -> LakePath:
    return lake.catalog / "replacing"
