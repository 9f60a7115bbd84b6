"""The outcome of a check, as data: it holds, it does not, or it could not be made, and why; and the last proof of each
view.

A proof says when all of its rows were found to be those of its SQL, or were not.

    <lake>/proved/<view>.json

No row depends on one, but an operator does: it has a checksum, and damage is said in its place.
"""

from __future__ import annotations

import logging
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.forecast import PROOF, note_measured
from strandline.state_store import files
from strandline.state_store.delta import reader
from strandline.state_store.errors import CorruptState, StoreError
from strandline.state_store.stored_state import members_since, sealed_members
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.jobs.model.definitions import View
    from strandline.state_store.layout import LakeLayout


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check.

    Attributes:
        ok: None when the check could not be made; `what` is the reason then.
        what: one sentence: what was found.
        where: the place of a fault: a file, a folder; None: the table's folder.
        hint: what to type next; None: the way out that holds for the whole table.
    """

    ok: bool | None
    what: str
    where: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Check:
    """One check of one table, with what it found: see `Outcome`. Only a failed one has a place and a hint."""

    table: str
    check: str
    ok: bool | None
    what: str
    where: str | None = None
    hint: str | None = None


def passed(what: str) -> Outcome:
    """What was looked at is as it must be."""
    return Outcome(True, what)


def failed(what: str, where: object = None, hint: str | None = None) -> Outcome:
    """What was looked at is not as it must be."""
    return Outcome(False, what, None if where is None else str(where), hint)


def skipped(why: str) -> Outcome:
    """The check could not be made."""
    return Outcome(None, why)


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 file`, `3 files`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def sized(size: int) -> str:
    """A number of bytes as people read it: `8.5 kB`, `3.1 MB`, `1.2 GB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


log = logging.getLogger("strandline")

_FORMAT: Final = 2
"""Since it they have a checksum."""


@dataclass(frozen=True)
class Proof:
    """What the last proof of a view came to.

    Attributes:
        at: milliseconds since the epoch.
        version: of the view's table, when the proof was done.
        ok: the rows are those of its SQL, and every check of its table held.
        why: what did not hold.
    """

    at: int
    version: int
    ok: bool
    why: str = ""


def note_proofs(
    lake: LakeLayout, views: Iterable[View], checks: Iterable[Check], now_ms: int, took: Mapping[str, float]
) -> None:
    """Note what deep checks came to and took, of the views whose SQL was computed again.

    Args:
        took: {view: seconds of its checks}.
    """
    by_table: dict[str, list[Check]] = {}
    for each in checks:
        by_table.setdefault(each.table, []).append(each)
    for view in views:
        found = by_table.get(view.name, [])
        computed = any(each.check == "recompute" and each.ok is not None for each in found)
        wrong = next((f"{each.check}: {each.what}" for each in found if each.ok is False), "")
        if computed or wrong:
            try:
                _note(lake, view.name, now_ms, wrong)
            except StoreError as error:  # a proof of a lake that is only read is one all the same
                log.warning("the proof of '%s' is not kept in the lake: %s", view.name, error.message)
        if computed and not wrong and view.name in took:
            note_measured(lake, PROOF, view.name, took[view.name])


def _note(lake: LakeLayout, view: str, now_ms: int, wrong: str) -> None:
    version = -1
    with suppress(StoreError):  # what is broken has no version
        head = reader.head(lake.table(view))
        version = -1 if head is None else head.version
    path = lake.proof(view)
    files.make_folder(path.parent)
    files.replace(path, sealed_members({"format": _FORMAT, **asdict(Proof(now_ms, version, not wrong, wrong))}))


def last_proof(lake: LakeLayout, view: str) -> Proof | None:
    """The last proof of a view; None where there is none.

    Raises:
        CorruptState: it does not read back.
        StorageDenied, StorageUnavailable: the object store does not say.
    """
    path = lake.proof(view)
    try:
        return Proof(**members_since(path.read_bytes(), _FORMAT))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise CorruptState(
            "its last proof does not read back",
            where=str(path),
            hint=sentence("type: strandline verify {} --deep", Name(view, shlex.quote)),
        ) from error
