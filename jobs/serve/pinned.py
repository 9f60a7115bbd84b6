"""A pinned cut: versions of many tables that fit together, to be read again for as long as it is held.

    pin ──> {by_town: 12, by_day: 7, …}, until … ──text──> a token that a client sends back with each request

What is pinned is one consistent cut (`jobs.serve.cut`) of all tables that keep up. A table that stands far behind the
others would drag them back to where it is, so it is left out; whoever reads it at the cut is told so.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.cut import Cut, newest_cut
from strandline.jobs.serve.errors import CutExpired, NoConsistentCut, RequestRefused
from strandline.jobs.serve.reflected import Reflected, reflected
from strandline.state_store.checksum import members_in, sealed_members
from strandline.state_store.commits import TableVersion
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.state_store.layout import Lake

_DRAG_MS: Final = 10_000
"""So much older than its newest version may the pinned version of a table be, for another table's sake: some epochs."""
_LONGEST_TEXT: Final = 100_000
_AGAIN: Final = "pin a new cut: POST /v1/cuts, or begin a new transaction"


@dataclass(frozen=True)
class Pinned:
    """A pinned cut.

    Attributes:
        tables: the commit of each; None: the table was not there yet, and has no rows.
        until: when it expires, milliseconds since the epoch.
    """

    tables: Mapping[str, TableVersion | None]
    until: int

    @property
    def versions(self) -> dict[str, int]:
        """{table: version} of those that have one."""
        return {name: at.version for name, at in self.tables.items() if at is not None}

    def text(self) -> str:
        """The token that stands for it."""
        tables = {name: None if at is None else [at.version, at.table, at.nonce] for name, at in self.tables.items()}
        return base64.urlsafe_b64encode(zlib.compress(sealed_members({"tables": tables, "until": self.until}))).decode()

    @classmethod
    def read(cls, text: str) -> Pinned:
        """The cut that a token stands for.

        Raises:
            RequestRefused: it is no token of a cut.
        """
        try:
            unpacked = zlib.decompressobj().decompress(base64.urlsafe_b64decode(text[:_LONGEST_TEXT]), _LONGEST_TEXT)
            found = members_in(unpacked)
            tables = {name: None if at is None else TableVersion(*at) for name, at in found["tables"].items()}
            return cls(tables, int(found["until"]))
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise RequestRefused("'cut' is none that was pinned here", hint="POST /v1/cuts answers with one") from error

    def cut(self, names: Iterable[str], lake: Lake) -> Cut:
        """The cut of these tables.

        Raises:
            CutExpired: its time is over, or a version is not kept any more.
            NoConsistentCut: a table is not in it.
        """
        return Cut({name: self.at(name, lake) for name in sorted(set(names))})

    def at(self, name: str, lake: Lake) -> Reflected | None:
        """What a table's version reflects; None where it was not there. Errors as of `cut`."""
        if log.now_ms() > self.until:
            raise CutExpired("the cut has expired", hint=_AGAIN)
        if name not in self.tables:
            raise NoConsistentCut(
                f"'{name}' is not in the pinned cut: it was made since, or stood far behind the others", hint=_AGAIN
            )
        pinned = self.tables[name]
        if pinned is None:
            return None
        try:
            if reader.version_at(lake.table(name), pinned.version).same(pinned):
                return reflected(lake, name, pinned.version)
        except VersionGone as error:
            raise CutExpired(f"version {pinned.version} of '{name}' is not kept any more", hint=_AGAIN) from error
        raise CutExpired(f"version {pinned.version} of '{name}' is another commit now", hint=_AGAIN)


def pin(tables: Iterable[str], lake: Lake, seconds: float, first: Sequence[str] = ()) -> Pinned:
    """Pin the newest consistent cut.

    Args:
        tables: all that may be read.
        first: of those, the ones for whose sake others are left out.

    Raises: as `newest_cut`, of `first`.
    """
    names = [name for name in sorted(set(tables)) if name not in first]
    found = _cut_of_all([*first, *names], lake)
    if found is None:
        found = newest_cut(first, lake)
        for name in names:
            found = _with(name, found, lake) or found
    held = {
        name: None if at is None else reader.version_at(lake.table(name), at.version)
        for name, at in found.tables.items()
    }
    return Pinned(held, log.now_ms() + int(seconds * 1000))


def _cut_of_all(names: Sequence[str], lake: Lake) -> Cut | None:
    """The newest cut of all these tables; None where there is none, or one drags others back."""
    try:
        found = newest_cut(names, lake)
        return None if any(_dragged(newest_cut([name], lake), found) for name in names) else found
    except (StoreError, NoConsistentCut):
        return None


def _with(name: str, cut: Cut, lake: Lake) -> Cut | None:
    """The cut with one more table; None where that cannot be read, has no place in it, or drags others back."""
    try:
        found = newest_cut([*cut.tables, name], lake)
    except (StoreError, NoConsistentCut):
        return None
    return None if _dragged(cut, found) else found


def _dragged(before: Cut, after: Cut) -> bool:
    """True if a table of the cut stands much further back in the other one."""
    for name, at in before.tables.items():
        now = after.tables[name]
        if at is not None and (now is None or at.committed - now.committed > _DRAG_MS):
            return True
    return False
