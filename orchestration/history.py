"""What Dagster keeps of what it was told outside of runs: everything for a day, then an event an hour, then the last.

Dagster trims its ticks (`retention` in dagster.yaml) and the events of a run with the run; what belongs to no run it
keeps for ever, and offers nothing to delete a part of it. A table that a stream changes leaves some three thousand
events a day. So a job deletes by itself what no page needs:

    a day ago ······· every event
    thirty days ago · the last of each hour: plots have 24 points a day
    before that ····· the last one alone: an asset stays materialized, a check keeps its result

So it does with whole runs of the jobs that the hour brings, which check and compact and materialize nothing.

The rows that an event counts are those since the one before it, so a plot of thinned events has the numbers of the last
half minute of each hour; rows, bytes and versions are whole at any time.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.dagster_run import FINISHED_STATUSES, RunsFilter
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    import dagster as dg

_AT_ONCE: Final = 500
"""Events that one transaction deletes: whoever stores one meanwhile waits for no longer."""
_OF_ROWS: Final = ("ASSET_MATERIALIZATION", "ASSET_OBSERVATION")
_EVENTS: Final = SqlEventLogStorageTable.c
_TAGS: Final = AssetEventTagsTable.c
_RESULTS: Final = AssetCheckExecutionsTable.c


@dataclass(frozen=True)
class Thinned:
    """What was deleted.

    Attributes:
        events: of rows: materializations and observations.
        results: of checks.
    """

    events: int
    results: int


@dataclass(frozen=True)
class _Event:
    """An event: its number, what it is of, and when it was told, in UTC."""

    number: int
    of: Hashable
    at: dt.datetime


def thin(
    instance: dg.DagsterInstance, now: dt.datetime, whole_days: float, days: float, *, dry_run: bool = False
) -> Thinned:
    """Delete what is not kept any more; with `dry_run` only count it.

    Args:
        now: in UTC, without a zone, as Dagster stores it.
        whole_days: how long every event is kept.
        days: how long the last of each hour is.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return Thinned(0, 0)
    whole, hourly = now - dt.timedelta(days=whole_days), now - dt.timedelta(days=days)
    with storage.index_connection() as found:
        events = list(_superfluous(_events(found), whole, hourly))
        results = list(_superfluous(_results(found), whole, hourly))
    if dry_run:
        return Thinned(len(events), len(results))
    for some in _chunks(events):
        _delete(storage, some)
    for some in _chunks(results):
        chosen = sa.and_(_RESULTS.run_id == RUNLESS_RUN_ID, _RESULTS.id.in_(some))
        with storage.index_connection() as found:
            told = found.execute(sa.select(_RESULTS.evaluation_event_storage_id).where(chosen)).scalars()
            numbers = [int(each) for each in told if each is not None]
            found.execute(AssetCheckExecutionsTable.delete().where(chosen))
        _delete(storage, numbers)
    if isinstance(storage, SqliteEventLogStorage):
        # The same events once more, in a file of those without a run, of which no page reads any.
        with storage.run_connection(RUNLESS_RUN_ID) as found:
            copies = list(found.execute(sa.select(_EVENTS.id).where(_EVENTS.timestamp < whole)).scalars())
        for some in _chunks(copies):
            with storage.run_connection(RUNLESS_RUN_ID) as found:
                found.execute(SqlEventLogStorageTable.delete().where(_EVENTS.id.in_(some)))
    return Thinned(len(events), len(results))


def delete_runs(
    instance: dg.DagsterInstance, now: dt.datetime, jobs: Sequence[str], days: float, *, dry_run: bool = False
) -> int:
    """Delete the runs of some jobs that have ended, with their events; what they found of checks stays. With `dry_run`
    they are only counted.

    Args:
        now: in UTC, without a zone.
        days: how long they are kept.

    Returns:
        how many there were.
    """
    before, deleted = now - dt.timedelta(days=days), 0
    for job in jobs:
        chosen = RunsFilter(job_name=job, statuses=list(FINISHED_STATUSES), created_before=before)
        for record in instance.get_run_records(chosen):
            if not dry_run:
                instance.delete_run(record.dagster_run.run_id)
            deleted += 1
    return deleted


def _events(found: Any) -> Iterator[_Event]:
    chosen = sa.select(_EVENTS.id, _EVENTS.asset_key, _EVENTS.dagster_event_type, _EVENTS.timestamp).where(
        _EVENTS.run_id == RUNLESS_RUN_ID, _EVENTS.dagster_event_type.in_(_OF_ROWS)
    )
    for number, asset, kind, at in found.execute(chosen.order_by(_EVENTS.id)):
        yield _Event(number, (asset, kind), at)


def _results(found: Any) -> Iterator[_Event]:
    chosen = sa.select(_RESULTS.id, _RESULTS.asset_key, _RESULTS.check_name, _RESULTS.evaluation_event_timestamp).where(
        _RESULTS.run_id == RUNLESS_RUN_ID, _RESULTS.evaluation_event_timestamp.is_not(None)
    )
    for number, asset, check, at in found.execute(chosen.order_by(_RESULTS.id)):
        yield _Event(number, (asset, check), at)


def _superfluous(events: Iterable[_Event], whole: dt.datetime, hourly: dt.datetime) -> Iterator[int]:
    """The numbers of what is not kept, of events in their order.

    Args:
        whole: the moment since which everything is.
        hourly: the moment since which the last of each hour is.
    """
    last: dict[Hashable, _Event] = {}
    for event in events:
        before = last.get(event.of)
        if before is not None and before.at < whole and (before.at < hourly or _hour(before.at) == _hour(event.at)):
            yield before.number
        last[event.of] = event


def _hour(at: dt.datetime) -> dt.datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _delete(storage: SqlEventLogStorage, numbers: Sequence[int]) -> None:
    with storage.index_connection() as found:
        found.execute(AssetEventTagsTable.delete().where(_TAGS.event_id.in_(numbers)))
        found.execute(SqlEventLogStorageTable.delete().where(_EVENTS.id.in_(numbers)))


def _chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE))
