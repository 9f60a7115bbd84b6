"""What tables reflect beyond the vectors of their last commits, as their pipeline noted it.

    orders@1   orders@2   orders@3   orders@4
    large@7 ── vector: orders@1 ───────────┐
    <lake>/reached/<pipeline>.json:  large@7 reflects orders@4

A change that leaves a table as it is makes no commit of it, so its vector stays behind. The pipeline that found that
out writes it down here, once for all of its tables: a query that joins `large` with `orders` need not go back to
`orders@1`, and a reader who waits for the record behind `orders@4` need not wait for a change of `large`.

It is a note: no row depends on it. One that is lost, or does not read back, leaves the answers as old as the vectors.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.commits import TableVersion
from strandline.state_store.errors import StoreError
from strandline.state_store.files import Unchanged, make_folder, replace
from strandline.state_store.stored_state import members_in, sealed_members

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

log = logging.getLogger("strandline")


@dataclass(frozen=True)
class Reached:
    """What the rows of one table reflect.

    Attributes:
        version: of the table, when that was found; merged files make later ones of the same rows.
        table: the identity that the table was given when it was made.
        digest: of its rows.
        fingerprint: of the definition that they are of.
        inputs: {entry of its vector: the version of the input}; entries that are not named are as the vector says.
    """

    version: int
    table: str
    digest: str
    fingerprint: str
    inputs: Mapping[str, TableVersion]

    def of(self, version: int, record: CommitRecord) -> bool:
        """True if it holds of a version of the table with this record, and says more than that."""
        rows = (record.table, record.digest, record.fingerprint)
        same = version >= self.version and rows == (self.table, self.digest, self.fingerprint)
        behind = (record.vector.get(entry) for entry in self.inputs)
        reached = zip(behind, self.inputs.values(), strict=True)
        return same and all(before is not None and before.version <= at.version for before, at in reached)


# Several views mostly stand at the same versions of the same inputs, so what is written names those once:
#
#     {"reached": [{"inputs": {"orders": [4, …]}, "tables": {"large": [7, …], …}}, …]}

_NOTHING: Final[Mapping[str, Reached]] = {}
_KNOWN: Final = Unchanged["Mapping[str, Reached]"](16 << 20)
"""Of a thousand views the note has a tenth of a megabyte."""
_OBJECT_SECONDS: Final = 1.0
"""How old the note of an object store may be: a process that follows many tables asks for it again and again."""
_OBJECTS: Final[dict[LakePath, tuple[float, Mapping[str, Reached]]]] = {}


def read_reached(lake: LakeLayout, pipeline: str) -> Mapping[str, Reached]:
    """What a pipeline noted last, by table; nothing where nothing is noted, or it does not read back.

    The same object as before where nothing was noted since, but for what was noted in the last moments.
    """
    file = lake.reached(pipeline)
    if isinstance(file, Path):
        return _read(file)
    at, known = _OBJECTS.get(file, (-_OBJECT_SECONDS, _NOTHING))
    if time.monotonic() - at >= _OBJECT_SECONDS:
        found = _read(file)
        known = known if found == known else found
        _OBJECTS[file] = (time.monotonic(), known)
    return known


def _read(file: LakePath) -> Mapping[str, Reached]:
    try:
        return _KNOWN.read(file, lambda: _decoded(file.read_bytes()))
    except (OSError, StoreError, ValueError, KeyError, TypeError, AttributeError):
        return _NOTHING


def _decoded(data: bytes) -> Mapping[str, Reached]:
    found: dict[str, Reached] = {}
    for group in members_in(data)["reached"]:
        inputs = {entry: TableVersion(*at) for entry, at in group["inputs"].items()}
        for name, (version, table, digest, fingerprint) in group["tables"].items():
            found[name] = Reached(version, table, digest, fingerprint, inputs)
    return found


def _encoded(reached: Mapping[str, Reached]) -> bytes:
    groups: dict[tuple[tuple[str, TableVersion], ...], dict[str, Any]] = {}
    for name, each in sorted(reached.items()):
        of_inputs = tuple(sorted(each.inputs.items()))
        inputs = {entry: [at.version, at.table, at.nonce] for entry, at in of_inputs}
        group = groups.setdefault(of_inputs, {"inputs": inputs, "tables": {}})
        group["tables"][name] = [each.version, each.table, each.digest, each.fingerprint]
    return sealed_members({"reached": list(groups.values())})


class ReachedNotes:
    """The notes of one pipeline, as its only writer keeps them.

    Args:
        tables: those of the pipeline as it is now; what is noted of others goes.
    """

    def __init__(self, lake: LakeLayout, pipeline: str, tables: Collection[str]) -> None:
        self._lake = lake
        self._pipeline = pipeline
        known = read_reached(lake, pipeline)
        self._known = {name: each for name, each in known.items() if name in tables}

    def note(self, refreshed: Collection[str], reached: Mapping[str, Reached]) -> None:
        """Note what a refresh came to. A note that cannot be written is logged, and the rows are as right without it.

        Args:
            refreshed: tables of which nothing is left to say, unless they are among `reached`.
        """
        now = {name: each for name, each in self._known.items() if name not in refreshed} | dict(reached)
        if now == self._known:
            return
        self._known = now
        file = self._lake.reached(self._pipeline)
        try:
            make_folder(file.parent)
            replace(file, _encoded(now), for_good=False)
            _OBJECTS.pop(file, None)  # whoever ran this here reads it at once
        except StoreError as error:
            log.warning("what the views reflect could not be noted, so some answers will be older: %s", error)
