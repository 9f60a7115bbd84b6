"""What a kernel keeps from one epoch to the next: all of it can be read again from the lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.state_store.delta.snapshots import Snapshots
from strandline.state_store.kernel.local_files import LocalFiles
from strandline.state_store.kernel.recent import RecentChanges

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Kept:
    """What a kernel keeps. Safe for several threads.

    Attributes:
        recent: changes that were committed a moment ago.
        snapshots: of the tables, which follow their logs.
        local: their data files on this machine's disk.
    """

    recent: RecentChanges
    snapshots: Snapshots
    local: LocalFiles

    @classmethod
    def nothing(cls, copies: Path) -> Kept:
        """At the start.

        Args:
            copies: the folder for copies of data files, see `LocalFiles`.
        """
        return cls(RecentChanges(), Snapshots(), LocalFiles(copies))
