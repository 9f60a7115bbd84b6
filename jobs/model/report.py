"""The report of a run, as numbers with stable names, and the steps that an operation reports while it runs.

A report says what the refreshes of a view cost, and what they would at another FRESHNESS.

A refresh costs something for being one (its rule is planned, its files and its commit are made), and something for each
changed row that it takes in:

    seconds = fixed + by_row × rows        fitted to the refreshes of a run by least squares

A view that may wait longer takes in the same rows by fewer refreshes: only the first part falls. Rows that cancel each
other while it waits are counted all the same, so what another target would cost is an upper bound of this part.

The changes of a table since one of its versions are counted by its commits alone, whoever made them: a run counts what
it does itself; what it committed in the moment before it was killed is in no run's count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta import reader
from strandline.state_store.errors import TableMissing, VersionGone

if TYPE_CHECKING:
    from strandline.state_store.commits import Head
    from strandline.state_store.paths import LakePath


DAY_SECONDS: Final = 86_400.0
_TARGETS: Final = (1.0, 60.0, 600.0, 3_600.0)
"""Seconds of FRESHNESS that people choose between: a second, a minute, ten minutes, an hour."""
LEAST_RUN_SECONDS: Final = 60.0
"""A run of some seconds says little of a day: its first epoch computes what later ones only touch."""


@dataclass
class CostFit:
    """The sums of a least-squares fit of the refreshes of one table: seconds over rows taken in."""

    refreshes: int = 0
    rows: float = 0.0
    rows_squared: float = 0.0
    seconds: float = 0.0
    rows_seconds: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """Add a refresh that took in changes."""
        self.refreshes += 1
        self.rows += rows
        self.rows_squared += float(rows) * rows
        self.seconds += seconds
        self.rows_seconds += rows * seconds

    @property
    def _spread(self) -> float:
        return self.rows_squared - self.rows * self.rows / self.refreshes

    @property
    def has_spread(self) -> bool:
        """True if there are refreshes of different sizes, so that something tells what a row costs."""
        return self.refreshes > 0 and self._spread > 1e-9 * self.rows_squared

    def by_row(self) -> float:
        """The seconds of a row, from 0 to what leaves nothing fixed.

        Refreshes that are all as large tell nothing of it. They are small then, as a rule: all of it counts as fixed.
        """
        if not self.rows:
            return 0.0
        if not self.has_spread:
            return 0.0
        slope = (self.rows_seconds - self.rows * self.seconds / self.refreshes) / self._spread
        return min(max(slope, 0.0), self.seconds / self.rows)


@dataclass(frozen=True)
class RefreshCosts:
    """What the refreshes of a view and of its inner stages have cost in a run.

    Attributes:
        refreshes: of the view's own table, by changes.
        fixed_seconds: of one refresh, with those of the inner stages.
        rows_seconds: of all rows that they took in.
    """

    refreshes: int
    fixed_seconds: float
    rows_seconds: float

    @classmethod
    def of(cls, own: CostFit, stages: Iterable[CostFit]) -> RefreshCosts | None:
        """Combine the fits of a view's tables; None as long as the view has not been refreshed by changes."""
        if not own.refreshes:
            return None
        fits = [own, *stages]
        by_rows = sum(each.by_row() * each.rows for each in fits)
        fixed = sum(each.seconds for each in fits) - by_rows
        return cls(own.refreshes, round(fixed / own.refreshes, 6), round(by_rows, 6))

    def seconds_a_day(self, lasted: float, rounds: int) -> dict[str, float]:
        """{FRESHNESS in seconds, `none` for a view that follows each round: the seconds that refreshes cost a day}.

        Args:
            lasted: seconds of the run.
            rounds: of the run: there is nothing to do more often than something comes.
        """
        every = rounds / lasted * DAY_SECONDS
        by_rows = self.rows_seconds / lasted * DAY_SECONDS
        times = {"none": every} | {f"{target:g}": min(every, DAY_SECONDS / target) for target in _TARGETS}
        return {target: round(number * self.fixed_seconds + by_rows, 1) for target, number in times.items()}


@dataclass(frozen=True)
class EarlyEvents:
    """The events of a stream that looked up a table as of a time before its first row.

    Attributes:
        stream, table: whose events, and what they looked up.
        events: so many of all `of` events.
    """

    stream: str
    table: str
    events: int
    of: int

    def in_words(self, table: str) -> str:
        """Describe them, with the name that people see of the table."""
        return f"{self.events} of {self.of} events found no row of {table} that early"


@dataclass(frozen=True)
class TableReport:
    """The state of a table after a run, and the changes that the run made.

    Attributes:
        rows: visible rows at `version`.
        bytes: size of the data files of `version`.
        inserted: rows added by this run (a changed row counts here and in `deleted`).
        deleted: rows removed by this run.
        seconds: wall clock spent on this table in this run.
        mode, reason: of the last commit.
        late: rows of the inputs that came too late for their window and are left out, up to `version`, in all stages of
            the view; None where no row is ever late.
        early: the events that looked up a table before it had a row.
        costs: of a view's refreshes by changes; None where there were none.
        requests: {verb: requests to an object store} of a view's refreshes, with those of its inner stages; none of a
            lake on a disk, and those of the JVM are not known.
    """

    name: str
    version: int
    epoch: int
    rows: int
    bytes: int
    inserted: int
    deleted: int
    seconds: float
    vector: dict[str, int]
    offsets: dict[str, dict[str, int]]
    mode: str
    reason: str
    digest: str
    late: int | None = None
    early: tuple[EarlyEvents, ...] = ()
    costs: RefreshCosts | None = None
    requests: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunReport:
    """One run of a pipeline: a drain, or a continuous run up to its stop.

    Attributes:
        held: {table: what is wrong with its newest rows, from which nothing is computed}.
    """

    pipeline: str
    epochs: int
    seconds: float
    tables: tuple[TableReport, ...]
    held: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a run, after its commit and the refresh of its views.

    Attributes:
        number: from 1, in this run.
        events: rows taken into the event logs; an event that two sources read counts twice.
        seconds: wall clock from the first record read to the last view committed.
        stopped: tables that a fault stopped, or that are held, since the run began.
        left: counts what waits now, where that was only estimated before the run: the changes of a Delta table.
    """

    number: int
    events: int
    seconds: float
    stopped: int = 0
    left: Callable[[], int | None] | None = None


# Steps of an operation that may take minutes, for whoever waits for it.
#
# begin ── micro_batch ── micro_batch ── … ──> done ──> begin of the next


class Steps(Protocol):
    """Listener to the steps of an operation."""

    def begin(self, what: str, rows: int = 0) -> None:
        """Begin a step; the one before has ended.

        Args:
            what: it does, in words: `computing 'by_shop'`.
            rows: that it reads; 0: it is not known, or none.
        """

    def micro_batch(self, batch: MicroBatch) -> None:
        """Report a part of the events of the step."""

    def done(self, what: str) -> None:
        """End the last step with a summary in words."""


class _Unwatched:
    """Listener that does nothing."""

    def begin(self, what: str, rows: int = 0) -> None:
        """Do nothing."""

    def micro_batch(self, batch: MicroBatch) -> None:
        """Do nothing."""

    def done(self, what: str) -> None:
        """Do nothing."""


UNWATCHED: Final[Steps] = _Unwatched()
"""The steps of an operation that nobody waits for."""


MOST_COMMITS: Final = 500
"""Of a table that nobody has looked at for long the newest commits are counted: reading one takes 0.1 ms, so 50 ms."""


@dataclass(frozen=True)
class Counted:
    """The rows that commits inserted and deleted.

    Attributes:
        commits: how many were counted, of those that change rows.
        whole: False if there were more, which are gone or were too many to count.
    """

    inserted: int
    deleted: int
    commits: int
    whole: bool


def count(path: LakePath, after: int, upto: int) -> Counted:
    """Count the commits after `after` up to and including `upto`, the newest first.

    Raises:
        CorruptState: a commit does not read back.
    """
    inserted = deleted = commits = 0
    for version in range(upto, after, -1):
        if upto - version >= MOST_COMMITS:
            return Counted(inserted, deleted, commits, whole=False)
        try:
            commit = delta_log.read_commit(path, version)
        except (VersionGone, TableMissing):
            return Counted(inserted, deleted, commits, whole=False)
        if commit.record is not None and commit.changes_rows:
            inserted += commit.record.inserted
            deleted += commit.record.deleted
            commits += 1
    return Counted(inserted, deleted, commits, whole=True)


def committed(table: str, path: LakePath, after: int | None) -> TableReport | None:
    """The report of a table at its newest version, with the changes after a version; None while it has no commit.

    Args:
        after: the last version that was reported; None: none was. A version that the table has not reached is one of
            a former table of that name, and counts as none.

    Raises:
        CorruptState: its log does not read back.
    """
    head = reader.head(path)
    if head is None:
        return None
    known = after if after is not None and after <= head.version else -1
    counted = count(path, known, head.version)
    return report_at(head, table, path, inserted=counted.inserted, deleted=counted.deleted, late=head.record.late)


def counted_since(report: TableReport, path: LakePath, told: int | None) -> TableReport:
    """The report with the rows by the commits since the version that was told last; as it is where they cannot be
    counted whole.

    Raises:
        CorruptState: a commit does not read back.
    """
    if told is None or told > report.version:
        return report
    found = count(path, told, report.version)
    return replace(report, inserted=found.inserted, deleted=found.deleted) if found.whole else report


def report_at(
    head: Head, table: str, path: LakePath, *, inserted: int, deleted: int, seconds: float = 0.0, late: int | None
) -> TableReport:
    """The report of a table at its head, with the changes and the seconds that somebody has counted."""
    record = head.record
    return TableReport(
        name=table,
        version=head.version,
        epoch=record.epoch,
        rows=record.rows,
        bytes=reader.size_bytes(path, head.version),
        inserted=inserted,
        deleted=deleted,
        seconds=seconds,
        vector=record.versions,
        offsets=record.offsets,
        mode=record.mode,
        reason=record.reason,
        digest=record.digest,
        late=late,
    )
