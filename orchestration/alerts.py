"""The alert sensor: what an operator must hear of goes to the log and to a webhook, once when it begins, once when
somebody takes care of it, and once when it is over.

    the lake's watch (runs, views, leases) ─┐
    Dagster's failed checks ────────────────┼─> what has changed since the last tick ──> log, webhook
    acknowledgements in the lake ───────────┘                                            cursor: what fires, since when

    firing ──acknowledged──> acknowledged ──> over        an acknowledgement whose time is up: it begins anew
       └──────────────────────────────────────^
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import datetime as dt
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

import dagster as dg
from dagster import DagsterInstance
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from strandline.jobs.model.definitions import Severity
from strandline.jobs.model.settings import AlertSettings, Settings
from strandline.jobs.operate.watch import Acknowledgement, Alert, acknowledgements, alerts, forget
from strandline.state_store.delta.log import now_ms
from strandline.state_store.layout import LakeLayout

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
        lake = LakeLayout(settings.lake)
        news = known.news(found, now, acknowledgements(lake, now))
        for line in news.lines():
            context.log.warning(line)
            log.warning(line)
        send(settings.alerts, news, str(settings.lake), now)
        forget(lake, (each.identity for each in news.over))
        # After the webhook: what could not be sent is news at the next tick again.
        context.update_cursor(Known.of(news).as_text())
        return dg.SkipReason("; ".join(news.lines()) or f"{len(found)} alerts, none of them new")

    return tell


@dataclass(frozen=True)
class Firing:
    """An alert that fires.

    Attributes:
        since: the moment when it began, in milliseconds since the epoch.
        taken: that somebody takes care of it, and who; empty while nobody does.
    """

    alert: Alert
    since: int
    taken: str = ""


@dataclass(frozen=True)
class Known:
    """The alerts that fire. One fires from the tick that finds it to the first that does not, and is told once at
    either end, and once when somebody takes care of it."""

    firing: tuple[Firing, ...] = ()

    @classmethod
    def read(cls, cursor: str | None) -> "Known":
        """What the tick before has noted; nothing at the first."""
        found = json.loads(cursor or "[]")
        return cls(tuple(Firing(Alert(**each["alert"]), each["since"], each.get("taken", "")) for each in found))

    @classmethod
    def of(cls, news: "News") -> "Known":
        """What the next tick is to know."""
        return cls(news.firing)

    def as_text(self) -> str:
        """The note for the next tick."""
        return json.dumps([{**asdict(each), "alert": each.alert.as_json()} for each in self.firing])

    def news(
        self,
        found: Sequence[Alert],
        now_ms: int,
        taken: Mapping[str, Acknowledgement] = MappingProxyType({}),
    ) -> "News":
        """The news of a tick that found these alerts.

        Args:
            taken: {identity: who takes care of it}; forgotten when the alert is over, so that it is of this one.
        """
        first: dict[str, Alert] = {}
        for each in found:
            first.setdefault(each.identity, each)
        before = {each.alert.identity: each for each in self.firing}
        firing = []
        for identity, alert in first.items():
            since = before[identity].since if identity in before else now_ms
            who = taken.get(identity)
            firing.append(Firing(alert, since, str(who) if who is not None else ""))
        was = {identity: each.taken for identity, each in before.items()}
        return News(
            # Also one that nobody takes care of any more: its acknowledgement has ended before it was over.
            tuple(e.alert for e in firing if not e.taken and was.get(e.alert.identity, "new")),
            tuple(each.alert for identity, each in before.items() if identity not in first),
            tuple(firing),
            tuple(e for e in firing if e.taken and e.taken != was.get(e.alert.identity)),
        )


def failed_checks(instance: DagsterInstance, keys: Sequence[dg.AssetCheckKey]) -> list[Alert]:
    """The checks whose last evaluation failed; one that only warns is an alert as well.

    A check that is planned again, or whose run died, keeps the verdict of its last evaluation.
    """
    if not keys:
        return []
    made = []
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key, record in latest.items():
        evaluation = _last_evaluation(instance, key, record)
        if evaluation is not None and not evaluation.passed:
            said = evaluation.description or "it failed"
            severity: Severity = "error" if evaluation.severity is dg.AssetCheckSeverity.ERROR else "warn"
            subject = f"{key.name} of {key.asset_key.to_user_string()}"
            made.append(Alert("check", subject, said, severity=severity))
    return made


def _last_evaluation(
    instance: DagsterInstance, key: dg.AssetCheckKey, latest: AssetCheckExecutionRecord
) -> dg.AssetCheckEvaluation | None:
    """The last evaluation of a check; None if it was never made.

    Args:
        latest: its newest record. A query for each check took seconds where there are thousands of them.
    """
    event = latest.event
    if latest.status not in _EVALUATED:
        found = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=_EVALUATED)
        event = found[0].event if found else None
    if event is None or event.dagster_event is None:
        return None
    return event.dagster_event.asset_check_evaluation_data


# The forms in which a webhook takes alerts: which requests tell it of what began, goes on and is over.
#
# | form | requests |
# | --- | --- |
# | `json` | one for news: `text` for people, `begun` and `over` for programs |
# | `slack` | one for news, with its `text` (Slack, Mattermost, Rocket.Chat) |
# | `pagerduty` | one for each alert that begins, is taken or is over: Events API v2, deduplicated by its identity |
# | `alertmanager` | one at every tick with all that fire: Alertmanager takes an alert that is not told again for over |

_ANSWERS_WITHIN_SECONDS: Final = 10.0
"""A webhook that does not answer must not keep the tick from the log, nor the daemon from other sensors."""
_TOLD_AGAIN_SECONDS: Final = 120
"""Four ticks of the sensor: an alert that Alertmanager heard nothing of for so long is over, or the sensor is."""


@dataclass(frozen=True)
class News:
    """The alerts at a tick.

    Attributes:
        begun: those that were not there at the tick before, or that nobody takes care of any more.
        over: those of the tick before that are not there any more.
        firing: all that are there, with those that began.
        taken: those that somebody takes care of since.
    """

    begun: tuple[Alert, ...]
    over: tuple[Alert, ...]
    firing: tuple[Firing, ...] = ()
    taken: tuple[Firing, ...] = ()

    def lines(self) -> list[str]:
        """What began, was taken and is over, as people read it."""
        begun = [
            f"{a.identity}: {a.what}{f' ({a.hint})' if a.hint else ''}{f' [{a.owner}]' if a.owner else ''}"
            for a in self.begun
        ]
        taken = (f"{each.alert.identity}: {each.taken}" for each in self.taken)
        return [*begun, *taken, *(f"{each.identity}: over" for each in self.over)]


def send(settings: AlertSettings, news: News, lake: str, now_ms: int) -> None:
    """Tell the webhook of the settings; nothing without one.

    Raises:
        Failure: it does not take them; they are sent again at the next tick.
    """
    if settings.webhook_url is None:
        return
    for body in bodies(settings, news, lake, now_ms):
        _post(settings.webhook_url.get_secret_value(), body)


def bodies(settings: AlertSettings, news: News, lake: str, now_ms: int) -> Iterator[object]:
    """The bodies of the requests, in order."""
    is_news = bool(news.begun or news.over or news.taken)
    match settings.webhook_form:
        case "json" if is_news:
            begun, over = [each.as_json() for each in news.begun], [each.identity for each in news.over]
            taken = {each.alert.identity: each.taken for each in news.taken}
            yield {"text": "\n".join(news.lines()), "begun": begun, "acknowledged": taken, "over": over}
        case "slack" if is_news:
            yield {"text": "\n".join(news.lines())}
        case "pagerduty":
            assert settings.routing_key is not None, "checked with the settings"
            yield from _for_pagerduty(settings.routing_key.get_secret_value(), news, lake)
        case "alertmanager" if news.firing or news.over:
            yield [*_firing(news.firing, lake, now_ms), *_resolved(news.over, lake, now_ms)]


def _for_pagerduty(key: str, news: News, lake: str) -> Iterator[dict[str, Any]]:
    for each in news.begun:
        payload = {
            "summary": f"{each.identity}: {each.what}",
            "source": lake,
            "severity": "error" if each.severity == "error" else "warning",
            "component": each.subject,
            "group": each.kind,
            "custom_details": {"hint": each.hint, "owner": each.owner},
        }
        yield {"routing_key": key, "event_action": "trigger", "dedup_key": _dedup(each, lake), "payload": payload}
    for taken in news.taken:
        yield {"routing_key": key, "event_action": "acknowledge", "dedup_key": _dedup(taken.alert, lake)}
    for each in news.over:
        yield {"routing_key": key, "event_action": "resolve", "dedup_key": _dedup(each, lake)}


def _dedup(alert: Alert, lake: str) -> str:
    return f"{lake} {alert.identity}"


def _firing(firing: Sequence[Firing], lake: str, now_ms: int) -> Iterator[dict[str, Any]]:
    ends = _at(now_ms + _TOLD_AGAIN_SECONDS * 1000)
    for each in firing:
        yield {**_labelled(each.alert, lake, each.taken), "startsAt": _at(each.since), "endsAt": ends}


def _resolved(over: Sequence[Alert], lake: str, now_ms: int) -> Iterator[dict[str, Any]]:
    for each in over:
        yield {**_labelled(each, lake), "endsAt": _at(now_ms)}


def _labelled(alert: Alert, lake: str, taken: str = "") -> dict[str, Any]:
    """Labels are an alert's identity for Alertmanager, so nothing that changes while it fires is among them."""
    labels = {
        "alertname": f"strandline_{alert.kind}",
        "subject": alert.subject,
        "severity": alert.severity,
        "owner": alert.owner,
        "lake": lake,
    }
    # Alertmanager has no such state: who is to be spared makes a silence there.
    annotations = {"summary": alert.what, "hint": alert.hint, "acknowledged": taken}
    return {"labels": labels, "annotations": annotations}


def _at(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat()


def _post(url: str, body: object) -> None:
    request = urllib.request.Request(  # noqa: S310 - the operator's own setting, checked to be http(s)
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWERS_WITHIN_SECONDS):  # noqa: S310
            return
    except (urllib.error.URLError, OSError) as error:
        # The address is a secret: many webhooks carry their token in it.
        raise dg.Failure(f"the webhook of alerts does not take them: {type(error).__name__}") from None
