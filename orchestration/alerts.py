"""The alert sensor: what an operator must hear of goes to the log and to a webhook, once when it begins and once when
it is over.

    the lake's watch (runs, views, leases) ─┐
                                            ├─> begun and over since the last tick ──> log, webhook (`webhooks`)
    Dagster's failed checks ────────────────┘                                          cursor: what fires, since when
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster import DagsterInstance
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from strandline.jobs.model.options import Severity
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.watch import Alert, alerts
from strandline.orchestration.webhooks import News, send
from strandline.state_store.delta.log import now_ms

log = logging.getLogger("strandline.alerts")

_INTERVAL_SECONDS: Final = 30
_EVALUATED: Final = frozenset({AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED})


def alert_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, on from the start."""

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Failed checks, stale or stopped views, silent streams, dying leases: to log and webhook.",
    )
    def tell(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        known = Known.read(context.cursor)
        checks = context.repository_def.asset_graph.asset_check_keys if context.repository_def is not None else ()
        now = now_ms()
        found = [*alerts(settings, now), *failed_checks(context.instance, sorted(checks))]
        news = known.news(found, now)
        for line in news.lines():
            context.log.warning(line)
            log.warning(line)
        send(settings.alerts, news, str(settings.lake), now)
        # After the webhook: what could not be sent is news at the next tick again.
        context.update_cursor(Known.of(news).as_text())
        return dg.SkipReason("; ".join(news.lines()) or f"{len(found)} alerts, none of them new")

    return tell


@dataclass(frozen=True)
class Known:
    """The alerts that fire, each with the moment when it began, in milliseconds since the epoch. One fires from the
    tick that finds it to the first that does not, and is told once at either end."""

    firing: tuple[tuple[Alert, int], ...] = ()

    @classmethod
    def read(cls, cursor: str | None) -> "Known":
        """What the tick before has noted; nothing at the first."""
        return cls(tuple((Alert(**each["alert"]), each["since"]) for each in json.loads(cursor or "[]")))

    @classmethod
    def of(cls, news: News) -> "Known":
        """What the next tick is to know."""
        return cls(news.firing)

    def as_text(self) -> str:
        """The note for the next tick."""
        return json.dumps([{"alert": each.as_json(), "since": since} for each, since in self.firing])

    def news(self, found: Sequence[Alert], now_ms: int) -> News:
        """The news of a tick that found these alerts."""
        first: dict[str, Alert] = {}
        for each in found:
            first.setdefault(each.identity, each)
        since = {each.identity: began for each, began in self.firing}
        firing = tuple((each, since.get(identity, now_ms)) for identity, each in first.items())
        begun = tuple(each for identity, each in first.items() if identity not in since)
        return News(begun, tuple(each for each, _ in self.firing if each.identity not in first), firing)


def failed_checks(instance: DagsterInstance, keys: Sequence[dg.AssetCheckKey]) -> list[Alert]:
    """The checks whose last evaluation failed; one that only warns is an alert as well.

    A check that is planned again, or whose run died, keeps the verdict of its last evaluation.
    """
    if not keys:
        return []
    made = []
    for key in instance.event_log_storage.get_latest_asset_check_execution_by_key(keys):
        evaluation = _last_evaluation(instance, key)
        if evaluation is not None and not evaluation.passed:
            said = evaluation.description or "it failed"
            severity: Severity = "error" if evaluation.severity is dg.AssetCheckSeverity.ERROR else "warn"
            subject = f"{key.name} of {key.asset_key.to_user_string()}"
            made.append(Alert("check", subject, said, severity=severity))
    return made


def _last_evaluation(instance: DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """The last evaluation of a check; None if it was never made."""
    found = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=_EVALUATED)
    event = found[0].event if found else None
    if event is None or event.dagster_event is None:
        return None
    return event.dagster_event.asset_check_evaluation_data
