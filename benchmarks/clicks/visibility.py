"""When each click became visible, read off the tables afterwards: measuring costs the pipeline nothing while it runs.

    click (partition, offset, due)  ──the event log's first commit past its offset──>  taken in
                                    ──each view's first commit whose vector reaches that──>  visible

A pull reads tables at their newest commits, so a click is visible to it from the moment at which a commit that reflects
it has its name in the table's log. That moment is the time of the entry's last change of status (`st_ctime`): an entry
is written aside, linked to its name, and never touched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from strandline.state_store.delta import log, reader
from strandline.state_store.layout import LakeLayout

EVENT_LOG: Final = "clicks"
"""Also the name of its topic."""
Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Clicks:
    """Clicks in the order in which they were due; all times in seconds since the epoch.

    Attributes:
        due: when each was to be produced.
        taken: when the event log had it.
        visible: when all views had it.
    """

    due: Floats
    taken: Floats
    visible: Floats

    def between(self, begin: float, end: float) -> Clicks:
        """Those with begin <= due < end."""
        chosen = (self.due >= begin) & (self.due < end)
        return Clicks(self.due[chosen], self.taken[chosen], self.visible[chosen])


class Visibility:
    """What each version of the tables reflects. What was read once is kept: versions do not change."""

    def __init__(self, lake: LakeLayout) -> None:
        self._lake = lake
        self._known: dict[tuple[str, int], dict[int, int]] = {}

    def clicks(self, views: Sequence[str]) -> Clicks:
        """All the clicks that every view reflects.

        Raises:
            StoreError: a table does not read.
        """
        rows = reader.read_rows(self._lake.table(EVENT_LOG), columns=["_partition", "_offset", "_timestamp"])
        partitions, offsets = rows["_partition"].to_numpy(), rows["_offset"].to_numpy()
        due = rows["_timestamp"].cast(pa.int64()).to_numpy() / 1e6
        taken = self._moments(EVENT_LOG, partitions, offsets)
        visible = np.max([self._moments(view, partitions, offsets) for view in views], axis=0)
        order = np.argsort(due, kind="stable")
        order = order[np.isfinite(visible[order])]
        return Clicks(due[order], taken[order], visible[order])

    def reflected(self, view: str) -> int:
        """The number of clicks that the newest commit of a view reflects; 0 before its first."""
        newest = log.newest_version(self._lake.table(view))
        return 0 if newest is None else sum(self._reached(view, newest).values())

    def _moments(self, table: str, partitions: Integers, offsets: Integers) -> Floats:
        """The time of the first commit past each offset; infinite where there is none yet."""
        versions = log.versions(self._lake.table(table))
        times = np.array([*(self._moment(table, version) for version in versions), np.inf])
        found = np.full(len(offsets), np.inf)
        for partition in np.unique(partitions):
            reached = [self._reached(table, version).get(int(partition), 0) for version in versions]
            mine = partitions == partition
            found[mine] = times[np.searchsorted(reached, offsets[mine], side="right")]
        return found

    def _reached(self, table: str, version: int) -> dict[int, int]:
        """{partition: next offset} of the clicks that a version reflects, through all that it was computed from."""
        known = self._known.get((table, version))
        if known is None:
            record = reader.record_at(self._lake.table(table), version)
            if record.offsets:
                known = {int(name): offset for name, offset in record.offsets.get(EVENT_LOG, {}).items()}
            else:
                inputs = [self._reached(name, at.version) for name, at in record.vector.items()]
                known = next((each for each in inputs if each), {})
            self._known[table, version] = known
        return known

    def _moment(self, table: str, version: int) -> float:
        entry = log.commit_file(self._lake.table(table), version)
        assert isinstance(entry, Path), "the lake is in a file system"
        return entry.stat().st_ctime
