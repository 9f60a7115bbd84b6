"""What a proof or a drill of a view will take, by what those before it took.

    <lake>/measured/<kind>/<view>.json      {"crc": …, "format": 1, "rows": 1200, "seconds": 0.31}

    seconds = fixed + by_row × rows         a line through the last measurement of each view of the lake

The rows are those of all tables that a view is computed from, and its own. A view that was measured takes what it took
then, moved along the line to the rows that there are now. Of another the line itself is an estimate.

As long as all measurements are of one size nothing tells a row's share. Then all of it counts as the rows' where there
are more of them now, so that growth is not told too low.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.model.report import CostFit
from strandline.state_store import files
from strandline.state_store.delta import reader
from strandline.state_store.errors import StoreError
from strandline.state_store.paths import files_in, folders_in, side_by_side
from strandline.state_store.stored_state import members_in, sealed_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

log = logging.getLogger("strandline")

PROOF: Final = "proof"
"""The kind of all proofs of a view together; a drill is of the kind that its scenario is called."""
_FORMAT: Final = 1

Basis = Literal["measured", "estimated", "not known yet"]


@dataclass(frozen=True)
class Forecast:
    """What one proof or drill will take.

    Attributes:
        seconds: None: nothing of its kind was measured in this lake.
        basis: `measured`: of this view; `estimated`: of others.
    """

    seconds: float | None
    basis: Basis


@dataclass(frozen=True)
class Whole:
    """What several of them will take, one after the other.

    Attributes:
        seconds: of those of which something is known.
        number, estimated, unknown: of all, of those that are estimates, and of those of which nothing is known.
    """

    seconds: float
    number: int
    estimated: int
    unknown: int

    def __str__(self) -> str:
        if self.number == self.unknown:
            return "not known yet"
        besides = [f"{self.estimated} of {self.number} estimated"] if self.estimated else []
        besides += [f"{self.unknown} of {self.number} not known yet"] if self.unknown else []
        return f"{self.seconds:.1f} s" + (f" ({', '.join(besides)})" if besides else "")


UNKNOWN: Final = Forecast(None, "not known yet")


def whole(forecasts: Iterable[Forecast]) -> Whole:
    """Add forecasts up."""
    every = [*forecasts]
    by_basis = [each.basis for each in every]
    seconds = round(sum(each.seconds or 0.0 for each in every), 3)
    return Whole(seconds, len(every), by_basis.count("estimated"), by_basis.count("not known yet"))


@dataclass(frozen=True)
class _Measured:
    rows: int
    seconds: float


def note_measured(lake: LakeLayout, kind: str, view: str, seconds: float) -> None:
    """Keep what a proof or drill of a view took. A lake that is only read keeps none."""
    try:
        path = lake.measured(kind) / lake.proof(view).name
        files.make_folder(path.parent)
        found = _Measured(_Rows(lake).of(view), round(seconds, 4))
        files.replace(path, sealed_members({"format": _FORMAT, **asdict(found)}))
    except StoreError as error:
        log.warning("what '%s' of '%s' took is not kept in the lake: %s", kind, view, error.message)


class Forecasts:
    """The forecasts of one lake, at one moment."""

    def __init__(self, lake: LakeLayout) -> None:
        self._lake, self._rows = lake, _Rows(lake)
        self._known: dict[str, dict[str, _Measured]] = {}

    def of_drills(self, view: str) -> Whole | None:
        """The forecast of the drills of a view, of each kind that was measured in this lake; None: none was."""
        kinds = [each.name for each in folders_in(self._lake.measured(PROOF).parent) if each.name != PROOF]
        return whole(self.of(kind, view) for kind in kinds) if kinds else None

    def of(self, kind: str, view: str) -> Forecast:
        """The forecast of a proof or a drill. A table that does not read has no rows here: the check itself says so."""
        if kind not in self._known:
            self._known[kind] = dict(_measured(self._lake, kind))
        known = self._known[kind]
        if not known:
            return UNKNOWN
        own, fit = known.get(self._lake.proof(view).name), CostFit()
        for each in known.values():
            fit.add(each.rows, each.seconds)
        begin = own or _Measured(round(fit.rows / fit.refreshes), fit.seconds / fit.refreshes)
        return Forecast(_moved(begin, self._rows.of(view), fit), "measured" if own is not None else "estimated")


def _moved(begin: _Measured, rows: int, fit: CostFit) -> float:
    """The seconds of a measurement, moved along the line to so many rows."""
    of_all = begin.seconds * rows / max(begin.rows, 1)  # if nothing of it were fixed
    by_line = begin.seconds + fit.by_row() * (rows - begin.rows)
    grows = rows > begin.rows
    return round(of_all if grows and not fit.has_spread else max(by_line, begin.seconds if grows else of_all), 3)


def _measured(lake: LakeLayout, kind: str) -> Iterator[tuple[str, _Measured]]:
    """(name of the file, measurement) of a kind. One that does not read back is none: the next one replaces it."""
    folder = lake.measured(kind)
    for name, found in side_by_side(_read, files_in(folder, ".json"), folder):
        if found is not None:
            yield name, found


def _read(path: LakePath) -> tuple[str, _Measured | None]:
    try:
        members = members_in(path.read_bytes())
        if members.pop("format", None) == _FORMAT:
            return path.name, _Measured(**members)
    except (OSError, ValueError, TypeError, StoreError) as error:
        log.debug("a measurement does not read: %s: %s", path, error)
    return path.name, None


class _Rows:
    """The rows that a proof of a view reads: its own, and those of all tables that it is computed from."""

    def __init__(self, lake: LakeLayout) -> None:
        self._lake = lake
        self._heads: dict[str, Head | None] = {}

    def of(self, view: str) -> int:
        names, total = [view], 0
        for name in names:
            head = self._head(name)
            if head is not None:
                total += head.record.rows
                read = (entry.rpartition("/")[2] for entry in head.record.versions)
                names += [each for each in dict.fromkeys(read) if each not in names]
        return total

    def _head(self, table: str) -> Head | None:
        if table not in self._heads:
            try:
                self._heads[table] = reader.head(self._lake.table(table))
            except StoreError:
                self._heads[table] = None
        return self._heads[table]
