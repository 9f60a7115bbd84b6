"""The alert sensor: what an operator must hear of goes to the log and to a webhook, once when it begins and once when
it is over.

    the lake's watch (runs, views, leases) ─┐
                                            ├─> new and gone since the last tick ──> log, webhook
    Dagster's failed checks ────────────────┘                                        cursor: what is known
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster import DagsterInstance
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from jobs.model.settings import Settings
from jobs.operate.watch import Alert, alerts
from state_store.delta.log import now_ms

log = logging.getLogger("strandline.alerts")

_INTERVAL_SECONDS: Final = 30
_EVALUATED: Final = frozenset({AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED})
_WEBHOOK_SECONDS: Final = 10.0
"""A webhook that does not answer must not keep the tick from the log, nor the daemon from other sensors."""


@dataclass(frozen=True)
class News:
    """What began and what is over since the last tick."""

    begun: tuple[Alert, ...]
    over: tuple[str, ...]

    def lines(self) -> list[str]:
        """The news as people read it."""
        begun = [f"{a.identity}: {a.what}{f' ({a.hint})' if a.hint else ''}" for a in self.begun]
        return [*begun, *(f"{identity}: over" for identity in self.over)]


def alert_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, on from the start."""

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Failed checks, stale or stopped views, silent streams, dying leases: to log and webhook.",
    )
    def tell(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        known: list[str] = json.loads(context.cursor or "[]")
        checks = context.repository_def.asset_graph.asset_check_keys if context.repository_def is not None else ()
        found = [*alerts(settings, now_ms()), *failed_checks(context.instance, sorted(checks))]
        news = news_of(known, found)
        for line in news.lines():
            context.log.warning(line)
            log.warning(line)
        if news.lines() and settings.alerts.webhook_url is not None:
            send(settings.alerts.webhook_url.get_secret_value(), news)
        # After the webhook: what could not be sent is news at the next tick again.
        context.update_cursor(json.dumps(sorted({each.identity for each in found})))
        return dg.SkipReason("; ".join(news.lines()) or f"{len(found)} alerts, none of them new")

    return tell


def news_of(known: Sequence[str], found: Sequence[Alert]) -> News:
    """What began and what is over.

    Args:
        known: the identities of the alerts at the last tick.
    """
    first = {each.identity: each for each in reversed(found)}
    begun = tuple(first[identity] for identity in first if identity not in known)
    return News(tuple(reversed(begun)), tuple(identity for identity in known if identity not in first))


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
            made.append(Alert("check", f"{key.name} of {key.asset_key.to_user_string()}", said))
    return made


def _last_evaluation(instance: DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """The last evaluation of a check; None if it was never made."""
    found = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=_EVALUATED)
    event = found[0].event if found else None
    if event is None or event.dagster_event is None:
        return None
    return event.dagster_event.asset_check_evaluation_data


def send(url: str, news: News) -> None:
    """Post the news as JSON: `text` for chats, `begun` and `over` for programs.

    Raises:
        Failure: the webhook does not take it; it is sent again at the next tick.
    """
    body: Mapping[str, object] = {
        "text": "\n".join(news.lines()),
        "begun": [each.as_json() for each in news.begun],
        "over": list(news.over),
    }
    request = urllib.request.Request(  # noqa: S310 - the operator's own setting, checked to be http(s)
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_WEBHOOK_SECONDS):  # noqa: S310
            return
    except (urllib.error.URLError, OSError) as error:
        # The address is a secret: many webhooks carry their token in it.
        raise dg.Failure(f"the webhook of alerts does not take them: {type(error).__name__}") from None
