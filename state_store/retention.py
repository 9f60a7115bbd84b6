"""Retention: how far back a table is kept, and for whom.

    commits   0 … … … … … … … first … … … … newest
              └──── may go ────┘     └── kept for the horizon, a lease, or a table that was computed from it

`first` is the smallest version that anybody needs. The feed below it is folded: the rows of `first` stand for all
changes up to it, the newest row per key, as in a compacted topic. A restore begins there and plays the changes after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from strandline.state_store import leases
from strandline.state_store.errors import LeaseHeld
from strandline.state_store.layout import table_at
from strandline.state_store.tablespec import RECOVERY_HORIZON_MS
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class Need:
    """A version of a table that somebody needs, with the changes after it.

    Attributes:
        kind: the horizon of recovery, a reader's lease, or a table whose vector names the version.
        who: the reader, or the table; empty for the horizon.
        until: of a lease, its end: milliseconds since the epoch.
    """

    kind: Literal["horizon", "lease", "vector"]
    version: int
    who: str = ""
    until: int | None = None

    def __str__(self) -> str:
        name = {
            "horizon": "the recovery horizon",
            "lease": f"the lease of '{self.who}'",
            "vector": sentence("'{}'", Name(self.who)),
        }
        return sentence("version {} for {}", self.version, name[self.kind])


@dataclass(frozen=True)
class Retention:
    """What a clean-up is asked to keep.

    Attributes:
        horizon_ms: every version of this age (milliseconds) can be read afterwards.
        before: an explicit version instead: what is older goes, whatever its age.
        needs: of tables that were computed from this one.
        fold: the log begins at `first` afterwards, with a checkpoint of it: what the older versions alone need goes
            at once. Otherwise the log goes back to an older checkpoint, and files go when they are a week old.
    """

    horizon_ms: int = RECOVERY_HORIZON_MS
    before: int | None = None
    needs: tuple[Need, ...] = field(default=())
    fold: bool = False


def check_leases(path: LakePath, leased: Sequence[Need], first: int) -> None:
    """Raise LeaseHeld if a version below `first` is leased."""
    held = min((need for need in leased if need.version < first), key=lambda need: need.version, default=None)
    if held is not None:
        raise LeaseHeld(
            sentence(
                "reader '{}' still needs version {} of '{}': nothing below it goes",
                held.who,
                held.version,
                table_at(path),
            ),
            where=str(path / leases.FOLDER),
            hint=f"keep version {held.version} on, or wait until the reader has gone on; a dead reader's lease ends "
            f"by itself after {leases.LEASE_DAYS} days",
        )
