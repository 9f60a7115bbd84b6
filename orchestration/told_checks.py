"""The results of a view's checks beside rows that change all the time, told so that Dagster's pages show them.

Dagster shows the result of a check only if it is of the asset's newest materialization: made after it, or in the same
run. A stream materializes its views every half minute, so whatever another run has found, a nightly proof or an hourly
health check, would read *Not evaluated* from then on. What is told outside of runs counts as one run for Dagster. So
the rows of a stream are told outside of runs, and of their checks there, beside each of them:

| check | is told |
| --- | --- |
| one that was made for it now | if it comes to something else than before, and every five minutes |
| another, last made by a run | once more, with the moment at which it was found |
| another, that was told outside of runs already | not again: Dagster goes on showing it |

A drain is a run, and hides all that it has not made itself: that is told once more when the drain is over.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from typing import TYPE_CHECKING, Final

import dagster as dg
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster_shared.record import replace

from strandline.jobs.model.definitions import InsertQuery, View
from strandline.orchestration.checks import expectation_evaluations, expectations_of, health_evaluations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

    from strandline.jobs.model.definitions import Definition, Source
    from strandline.jobs.model.settings import Settings
    from strandline.orchestration.translator import Translator

FOUND_AT: Final = "found at"
"""The label of the moment at which a check was made that is told once more."""
_AGAIN_SECONDS: Final = 300.0
"""A verdict that stays the same is told as often: its numbers are plotted, and its page says when it was made."""
_REST: Final = 20.0
"""Expectations read all rows of a table: after them they rest for so many times as long, so a twentieth of one
processor is what they take beside a stream."""
_EVALUATED: Final = frozenset({AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED})

_NUMBER: Final = re.compile(r"[0-9.]+")

Made = dict[dg.AssetCheckKey, dg.AssetCheckEvaluation]
"""{check: what it came to now}."""


def last_evaluation(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey, latest: AssetCheckExecutionRecord
) -> tuple[dg.AssetCheckEvaluation, float] | None:
    """The last evaluation of a check and its moment, in seconds since the epoch; None if it was never made.

    Args:
        latest: its newest record. A query for each check took seconds where there are thousands of them.
    """
    event = latest.event
    if latest.status not in _EVALUATED:
        found = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=_EVALUATED)
        event = found[0].event if found else None
    data = event.dagster_event.asset_check_evaluation_data if event is not None and event.dagster_event else None
    return None if event is None or data is None else (data, event.timestamp)


class ToldChecks:
    """The checks of some assets, as far as Dagster is told of them outside of runs.

    Args:
        checks: {asset: all of its checks}.
    """

    def __init__(self, instance: dg.DagsterInstance, checks: Mapping[dg.AssetKey, Sequence[dg.AssetCheckKey]]) -> None:
        self._instance, self._checks = instance, checks

    def beside(self, keys: Iterable[dg.AssetKey], made: Made) -> Iterator[dg.AssetCheckEvaluation]:
        """What is to be told of checks, outside of runs.

        Args:
            keys: the assets that are materialized now, outside of runs.
            made: checks that were made now, also those of other assets.
        """
        wanted = list(dict.fromkeys((*(check for key in keys for check in self._checks.get(key, ())), *made)))
        if not wanted:
            return
        latest = self._instance.event_log_storage.get_latest_asset_check_execution_by_key(wanted)
        for check in wanted:
            found = self._of(check, made.get(check), latest.get(check))
            if found is not None:
                yield found

    def hidden(self, key: dg.AssetKey) -> Iterator[dg.AssetCheckEvaluation]:
        """What is to be told, outside of runs, of checks that the materialization by a run has hidden."""
        found = self._instance.get_asset_records([key])
        newest = found[0].asset_entry.last_materialization_record if found else None
        if newest is None or newest.run_id == RUNLESS_RUN_ID:
            return
        latest = self._instance.event_log_storage.get_latest_asset_check_execution_by_key(self._checks.get(key, ()))
        for check, record in latest.items():
            last = last_evaluation(self._instance, check, record)
            if last is None or record.run_id == newest.run_id or self._is_at_work(record):
                continue
            made_of = last[0].target_materialization_data
            later = record.create_timestamp > newest.timestamp  # in whole seconds, as Dagster compares them
            if not (later if made_of is None else made_of.storage_id == newest.storage_id):
                yield _once_more(*last)

    def _of(
        self, check: dg.AssetCheckKey, made: dg.AssetCheckEvaluation | None, record: AssetCheckExecutionRecord | None
    ) -> dg.AssetCheckEvaluation | None:
        last = last_evaluation(self._instance, check, record) if record is not None else None
        outside = record is not None and record.run_id == RUNLESS_RUN_ID
        if made is not None:
            known = outside and last is not None and time.time() - last[1] < _AGAIN_SECONDS
            return None if known and last is not None and _verdict(last[0]) == _verdict(made) else made
        if outside or record is None or last is None or self._is_at_work(record):
            return None
        return _once_more(*last)

    def _is_at_work(self, record: AssetCheckExecutionRecord) -> bool:
        """True while the run that has planned the check may still make it: Dagster shows it as running."""
        if record.status in _EVALUATED:
            return False
        run = self._instance.get_run_by_id(record.run_id)
        return run is not None and not run.is_finished


def _verdict(evaluation: dg.AssetCheckEvaluation) -> tuple[bool, dg.AssetCheckSeverity, str]:
    """What it comes to, and what it says but for its numbers: seconds of staleness are others each time."""
    return evaluation.passed, evaluation.severity, _NUMBER.sub("", evaluation.description or "")


def _once_more(found: dg.AssetCheckEvaluation, at: float) -> dg.AssetCheckEvaluation:
    """An evaluation as it was, which says when that was."""
    moment = dt.datetime.fromtimestamp(at, dt.UTC)
    said = f"found at {moment:%Y-%m-%d %H:%M} UTC, and not looked at since: {found.description or 'no more is said'}"
    if FOUND_AT in found.metadata:
        return replace(found, target_materialization_data=None)
    return dg.AssetCheckEvaluation(
        asset_key=found.asset_key,
        check_name=found.check_name,
        passed=found.passed,
        metadata={FOUND_AT: dg.MetadataValue.timestamp(moment), **found.metadata},
        severity=found.severity,
        description=said,
        blocking=found.blocking,
    )


class CheapChecks:
    """The cheap checks of a pipeline, made beside its stream.

    Health checks are made of what changed, from commits. Expectations read all rows, for seconds where there are
    millions: a thread makes them, one table after the other, and whoever asks next gets what it came to.

    Args:
        definitions: those of the pipeline.
    """

    def __init__(self, definitions: Iterable[Definition], translator: Translator, settings: Settings) -> None:
        self._relations: dict[dg.AssetKey, Source | View] = {
            translator.key_of(each.name): each for each in definitions if not isinstance(each, InsertQuery)
        }
        self._translator, self._settings = translator, settings
        self._changed: dict[dg.AssetKey, None] = {}
        self._made: Made = {}
        self._maker: threading.Thread | None = None
        self._rests_until = 0.0

    def of(self, keys: Iterable[dg.AssetKey]) -> Made:
        """The health checks of these assets, and the expectations that were finished since the last call."""
        changed = [(key, self._relations[key]) for key in keys if key in self._relations]
        self._changed.update((key, None) for key, each in changed if expectations_of(each))
        views = [each for _, each in changed if isinstance(each, View)]
        healthy = health_evaluations(views, self._translator, self._settings) if views else ()
        made = {each.asset_check_key: each for each in healthy}
        if self._maker is None or not self._maker.is_alive():
            made |= self._made
            self._made = {}
            self._begin()
        return made

    def _begin(self) -> None:
        if not self._changed or time.monotonic() < self._rests_until:
            return
        asked = [self._relations[key] for key in self._changed]
        self._changed = {}
        # Not waited for at the end: it only reads, and what it finds would be told to nobody.
        self._maker = threading.Thread(target=self._make, args=(asked,), name="expectations", daemon=True)
        self._maker.start()

    def _make(self, definitions: Sequence[Source | View]) -> None:
        began = time.monotonic()
        for each in definitions:
            for found in expectation_evaluations(each, self._translator, self._settings):
                # The verdict is shown; what reads the view is held by the stream itself.
                self._made[found.asset_check_key] = replace(found, blocking=False)
        self._rests_until = time.monotonic() + _REST * (time.monotonic() - began)
