"""What an operator may rely on of each view: it is right, fresh and recoverable, and what that costs; and what each
event log does.

| word | by |
| --- | --- |
| right | its last proof: every row computed again (`strandline verify --deep`, Dagster's proofs) |
| fresh | what waits above it, against its FRESHNESS |
| recoverable | the last drill of each kind, and the newest backup that has its table |
| cost | the bytes of its table and of its inner stages; the seconds and requests of the last run's refreshes, a day |

What retention has taken from a log is known from its table's log. Nothing here reads rows: each answer is a note that
somebody has left, or a commit.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import stage_tables
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Ownership, Source, View
from strandline.jobs.model.forecast import PROOF, Forecasts
from strandline.jobs.model.report import DAY_SECONDS, LEAST_RUN_SECONDS
from strandline.jobs.operate.health_checks import Hindrances, Waiting
from strandline.jobs.operate.recovery.drill_history import history
from strandline.jobs.operate.verify.findings import last_proof, sized
from strandline.jobs.run.heartbeat import read_beat
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import StoreError, StrandlineError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.storage import lake_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.model.settings import Settings
    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.delta.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.forecast import Forecast, Whole
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.recovery.drill_history import DrillResult
    from strandline.jobs.operate.recovery.image import Manifest
    from strandline.jobs.operate.verify.findings import Proof
    from strandline.jobs.run.heartbeat import Heartbeat


@dataclass(frozen=True)
class Assurance:
    """What may be relied on of one view. What nobody has looked at is None.

    Attributes:
        right: what its last proof came to.
        proved_seconds: since that proof.
        unproved_versions: commits since that proof.
        stale_seconds, target_seconds: for how long the oldest thing waits that it lacks, and how long that may be.
        recoverable: the last drill of each kind passed; a drill that could not be staged does not count.
        drilled_seconds: since the oldest of them.
        rto_seconds: of the slowest of them.
        backed_up_seconds: since the newest backup was made that has its table.
        bytes: of its table and its inner stages, those that it shares among them.
        seconds_a_day: that its refreshes take, as in the last continuous run.
        seconds_a_day_at: {FRESHNESS in seconds, `none` for a view without: what they would take}, by the same run.
        requests_a_day: {verb: requests to an object store} of its refreshes and those of its inner stages, as in that
            run; none of a lake on a disk.
        next_proof, next_drills: what proving it will take, and the drills that were made in this lake.
        why: what keeps the view from going on, or else what is wrong with the first of these that is.
    """

    view: str
    right: bool | None
    proved_seconds: float | None
    unproved_versions: int | None
    stale_seconds: float | None
    target_seconds: float | None
    recoverable: bool | None
    drilled_seconds: float | None
    rto_seconds: float | None
    backed_up_seconds: float | None
    bytes: int
    seconds_a_day: float | None
    seconds_a_day_at: dict[str, float] | None
    requests_a_day: dict[str, float] | None
    next_proof: Forecast
    next_drills: Whole | None
    why: str

    def as_json(self) -> dict[str, Any]:
        """The assurance as values of JSON."""
        return asdict(self)


def assurances(settings: Settings, now_ms: int) -> list[Assurance]:
    """The assurance of each view of a lake whose rows are stored.

    Raises:
        CorruptState: a file of the drills' history does not read back.
    """
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    found = _Found(settings, lake, catalog, now_ms)
    return [found.of(each) for each in catalog.definitions() if isinstance(each, View) and not each.partial]


class _Found:
    """What is known of all views together; read once."""

    def __init__(self, settings: Settings, lake: LakeLayout, catalog: Catalog, now_ms: int) -> None:
        self._lake, self._catalog, self._now_ms = lake, catalog, now_ms
        heads = WholeHeads(lake)
        self._waiting = Waiting(catalog, heads, open_log(settings, lake))
        self._hindrances = Hindrances(catalog.definitions(), heads)
        self._drills = _last_of_each(history(lake))
        self._backup = _newest_backup(settings)
        self._forecasts = Forecasts(lake)
        self._beats: dict[str, Heartbeat | None] = {}

    def of(self, view: View) -> Assurance:
        proof, unread = self._proof(view.name)
        stale, unknown = None, ""
        try:
            stale = round(self._waiting.seconds(view.name, self._now_ms), 3)
        except StrandlineError as error:
            unknown = f"its staleness is not known: {error.message}"
        target = Ownership.read(view.options).freshness_seconds
        drills = self._drills.get(view.name, [])
        failed = next((each for each in drills if not each.passed), None)
        hindrance, costs = self._hindrances.of(view.name), self._costs(view)
        backed_up = self._backup if self._backup is not None and view.name in self._backup.tables else None
        reasons = (
            "" if hindrance is None else f"{hindrance.state}: {hindrance.why}",
            proof.why if proof is not None else unread,
            unknown,
            "" if stale is None or target is None or stale <= target else f"stale for {stale:g} s of {target:g} s",
            "" if failed is None else f"{failed.drill}: {failed.why}",
        )
        return Assurance(
            view=view.name,
            right=None if proof is None else proof.ok,
            proved_seconds=None if proof is None else self._since(proof.at),
            unproved_versions=None if proof is None else self._commits_after(view.name, proof.version),
            stale_seconds=stale,
            target_seconds=target,
            recoverable=None if not drills else failed is None,
            drilled_seconds=self._since(min(each.at for each in drills)) if drills else None,
            rto_seconds=max((each.rto_seconds for each in drills if each.rto_seconds is not None), default=None),
            backed_up_seconds=None if backed_up is None else self._since(backed_up.made),
            bytes=self._bytes(view),
            seconds_a_day=costs.seconds,
            seconds_a_day_at=costs.at,
            requests_a_day=costs.requests,
            next_proof=self._forecasts.of(PROOF, view.name),
            next_drills=self._forecasts.of_drills(view.name),
            why=next((each for each in reasons if each), ""),
        )

    def _proof(self, view: str) -> tuple[Proof | None, str]:
        """The last proof, and what is to be said where it cannot be read."""
        try:
            return last_proof(self._lake, view), ""
        except StrandlineError as error:
            return None, "; ".join(filter(None, (error.message, error.hint)))

    def _since(self, moment: int) -> float:
        return round(max(self._now_ms - moment, 0) / 1000, 1)

    def _commits_after(self, table: str, version: int) -> int | None:
        with suppress(StrandlineError):
            head = reader.head(self._lake.table(table))
            return None if head is None else max(head.version - version, 0)
        return None

    def _bytes(self, view: View) -> int:
        total = 0
        with suppress(StrandlineError):  # what is broken is said by its state
            for path in map(self._lake.table, stage_tables(self._lake, view.name)):
                total += reader.size_bytes(path) if reader.head(path) is not None else 0
        return total

    def _costs(self, view: View) -> DayCosts:
        """What the refreshes of a view cost a day, as in the last run of its pipeline."""
        if view.pipeline not in self._beats:
            self._beats[view.pipeline] = read_beat(self._lake, view.pipeline)
        beat = self._beats[view.pipeline]
        return DayCosts() if beat is None else day_costs(beat, view.name)


@dataclass(frozen=True)
class DayCosts:
    """What the refreshes of a table cost a day; None where the run says little of a day.

    Attributes:
        seconds: as in the run.
        at: {FRESHNESS in seconds, `none` for a view without: what they would take}.
        requests: {verb: requests to an object store}; none of a lake on a disk.
    """

    seconds: float | None = None
    at: dict[str, float] | None = None
    requests: dict[str, float] | None = None


def day_costs(run: Heartbeat, table: str) -> DayCosts:
    """What the refreshes of a table cost a day, by a continuous run."""
    found = next((each for each in run.tables if each.name == table), None)
    if run.mode != "continuous" or _lasted(run) < LEAST_RUN_SECONDS or found is None:
        return DayCosts()
    at = found.costs.seconds_a_day(_lasted(run), run.micro_batches) if found.costs is not None else None
    days = _lasted(run) / DAY_SECONDS
    requests = {verb: round(number / days, 1) for verb, number in found.requests.items()}
    return DayCosts(round(found.seconds / days, 1), at, requests)


def _lasted(run: Heartbeat) -> float:
    return (run.at - run.started) / 1000


def _last_of_each(results: Iterable[DrillResult]) -> dict[str, list[DrillResult]]:
    """{view: the last result of each drill that could be staged}."""
    last: dict[tuple[str, str], DrillResult] = {}
    for each in results:
        if each.passed is not None:
            last[each.view, each.drill] = each
    found: dict[str, list[DrillResult]] = {}
    for (view, _), result in last.items():
        found.setdefault(view, []).append(result)
    return found


def _newest_backup(settings: Settings) -> Manifest | None:
    """The newest backup where the settings say; None without one, and where it cannot be read."""
    if settings.backup.destination is None:
        return None
    # Reads checkpoints, by Arrow: who backs nothing up does without it.
    from strandline.jobs.operate.recovery.image import read_latest

    with suppress(StrandlineError):
        return read_latest(lake_path(settings.backup.destination, settings.storage.options()))
    return None


_TIME = "_timestamp"


@dataclass(frozen=True)
class LogCost:
    """What an event log keeps.

    Attributes:
        size: the bytes of its data files.
        oldest: the smallest timestamp of its events, to the millisecond; None: it has no events, or its files do not
            tell.
        gone: the events that retention has taken so far.
    """

    table: str
    rows: int
    size: int
    oldest: datetime | None
    gone: int = 0

    def __str__(self) -> str:
        since = f", the oldest event of {self.oldest:%Y-%m-%d %H:%M:%S} UTC" if self.oldest is not None else ""
        gone = f"; {self.gone:,} rows before are gone by its retention" if self.gone else ""
        return f"{self.rows:,} rows, {sized(self.size)}{since}{gone}"

    def as_json(self) -> dict[str, Any]:
        """The cost as values of JSON."""
        oldest = self.oldest.isoformat() if self.oldest is not None else None
        return {"log": self.table, "rows": self.rows, "bytes": self.size, "oldest_event": oldest, "gone": self.gone}


def log_cost(table: str, record: CommitRecord, snapshot: Snapshot) -> LogCost:
    """The cost of one event log.

    Args:
        record: of that version.
    """
    files = snapshot.files.values()
    times = [_oldest(body) for body in files]
    known = [each for each in times if each is not None]
    oldest = min(known) if known and len(known) == len(times) else None
    return LogCost(table, record.rows, sum(int(body["size"]) for body in files), oldest, record.gone)


def log_costs(settings: Settings) -> list[LogCost]:
    """The costs of a lake's event logs, in the order of pipelines. One that is not there yet, or broken, is left out.

    Raises:
        CorruptState: the catalog does not read.
    """
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    sources = [each for name in catalog.pipelines() for each in catalog.pipeline(name) if isinstance(each, Source)]
    found = []
    for table in map(tables.event_log, sources):
        with suppress(StoreError):
            head = reader.head(lake.table(table))
            if head is not None:
                found.append(log_cost(table, head.record, read_snapshot(lake.table(table), head.version)))
    return found


def _oldest(body: Mapping[str, Any]) -> datetime | None:
    """The smallest timestamp of a data file, by its statistics."""
    with suppress(KeyError, TypeError, ValueError):
        return datetime.fromisoformat(json.loads(body["stats"])["minValues"][_TIME])
    return None
