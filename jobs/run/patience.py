"""Which views may wait: FRESHNESS says for how long a view may lack what has come.

    FRESHNESS = '5 minutes'      refreshed once what has come first is about to be five minutes old
    FRESHNESS = 'downstream'     refreshed when what reads it is
    without it                   refreshed with each epoch

A refresh costs what it costs for one event and for a thousand, so what waits is cheaper. A view is never more patient
than the most impatient target above it: one of an hour that a view of a minute reads is refreshed within the minute.
A view without a target takes its inputs as it finds them, and asks nothing of them.

    sales ──> by_shop (1 hour) ──> top_shops (1 minute) ──> page (none)
              waits 1 minute       waits 1 minute           each epoch; it changes once a minute

What reads a table that is lost or damaged does not wait: its refresh says so, as that of any other view does.

Snowflake's dynamic tables have the same two forms of TARGET_LAG. What waits is a continuous run's alone: a drain ends
with every view refreshed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.jobs.model import tables
from strandline.state_store.delta import heads
from strandline.state_store.errors import StoreError
from strandline.state_store.paths import side_by_side

if TYPE_CHECKING:
    from strandline.jobs.run.schedule import Levels, RefreshUnit
    from strandline.state_store.layout import LakeLayout

_AHEAD_SECONDS: Final = 2.0
"""How long before its target a refresh begins, beside the time that it takes: the run looks once a second, and a
micro-batch may be at work."""
_TIMES_LAST: Final = 1.5
"""The time that a refresh is expected to take, of the last one's: it has more to do the longer it has waited."""


def patience(levels: Levels) -> dict[str, float]:
    """{unit: for how many seconds it may lack what has come} of those that may wait; infinite for what nobody asks."""
    wanted: dict[str, float] = {}
    found: dict[str, float] = {}
    for item in (item for level in reversed(levels) for item in level):
        above = wanted.get(item.target, math.inf)
        own = item.freshness if item.freshness is not None else math.inf if item.serves else 0.0
        found[item.name] = min(own, above)
        for name in item.inputs:
            # A stage that views share is part of each of them, so a view without a target asks for it at once.
            asks = found[item.name] if item.freshness is not None or tables.is_shared(name) else above
            wanted[name] = min(wanted.get(name, math.inf), asks)
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def without(levels: Levels, waiting: Collection[str]) -> Levels:
    """The levels without the units that wait; what reads them finds their tables as they stand."""
    return [[item for item in level if item.name not in waiting] for level in levels] if waiting else levels


Versions = dict[str, int | None]
"""{table: its newest version}; None of one that was not made yet."""


@dataclass
class Deferrals:
    """What waits in one run, and since when.

    Attributes:
        looked: {unit that waits: when its last refresh began and ended}, in milliseconds since the epoch.
    """

    levels: Levels
    looked: dict[str, tuple[int, int]] = field(default_factory=dict)
    _patience: Mapping[str, float] = field(init=False)
    _seen: dict[str, Versions] = field(default_factory=dict)
    """{unit: the versions of its inputs that it reflects}"""
    _since: dict[str, float] = field(default_factory=dict)
    """{unit: since when something has waited for it}, by the monotonic clock."""
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """{unit: when its last refresh began and ended}"""

    def __post_init__(self) -> None:
        self._patience = patience(self.levels)

    def choose(self, lake: LakeLayout, now: float | None) -> frozenset[str]:
        """The units that may wait now; nothing is missed by that, since their inputs' logs are read on from where they
        were left.

        Args:
            now: by the monotonic clock, when the epoch that is refreshed began; None: nothing may wait.
        """
        waiting: set[str] = set()
        moving: dict[str, float] = {}
        found = _versions(lake, {name for item in self._patient() for name in item.inputs})
        for item in self._patient():
            present = {name: found[name] for name in item.inputs if name in found}
            reads = len(present) == len(item.inputs)
            coming = [moving[name] for name in item.inputs if name in moving]
            if now is not None and (coming or present != self._seen.get(item.name)):
                self._since[item.name] = min([self._since.get(item.name, now), *coming])
            if now is not None and reads and item.name in self._last and not self._is_due(item.name, now):
                waiting.add(item.name)
                continue
            self._seen[item.name] = present
            if item.name in self._since:
                moving[item.target] = self._since[item.name]
        self.looked = {name: self._last[name] for name in waiting}
        return frozenset(waiting)

    def done(self, lake: LakeLayout, now: float, waiting: Collection[str], moments: tuple[int, int]) -> None:
        """Note a refresh of all units but those that wait.

        Args:
            now: as of `choose`.
            moments: when it began and ended, in milliseconds since the epoch.
        """
        own = {item.target for level in self.levels for item in level}
        found = _versions(lake, {name for item in self._patient() for name in own.intersection(item.inputs)})
        for item in self._patient():
            # What this run itself committed in this refresh, later levels of it have read, but for those that wait.
            present = {name: found[name] for name in item.inputs if name in found}
            if item.name in waiting:
                if any(version != self._seen[item.name].get(name) for name, version in present.items()):
                    self._since.setdefault(item.name, now)
                continue
            self._seen[item.name] |= present
            self._since.pop(item.name, None)
            self._last[item.name] = moments

    def are_due(self, now: float) -> bool:
        """True if something has waited for as long as it may."""
        return any(self._is_due(name, now) for name in self._since)

    def _patient(self) -> Iterable[RefreshUnit]:
        return (item for level in self.levels for item in level if item.name in self._patience)

    def _is_due(self, name: str, now: float) -> bool:
        if name not in self._since:
            return False
        began, ended = self._last.get(name, (0, 0))
        ahead = _AHEAD_SECONDS + _TIMES_LAST * (ended - began) / 1000
        return now - self._since[name] >= self._patience[name] - ahead


def _versions(lake: LakeLayout, names: Collection[str]) -> Versions:
    """{table: its newest version} of those that read."""
    found = side_by_side(lambda name: _version(lake, name), sorted(names), lake.root)
    return {name: versions[0] for name, versions in zip(sorted(names), found, strict=True) if versions}


def _version(lake: LakeLayout, name: str) -> tuple[int | None, ...]:
    """The newest version of a table; nothing where it does not read."""
    try:
        head = heads.head(lake, name)
    except StoreError:
        return ()
    return (None if head is None else head.version,)
