"""The forms in which a webhook takes alerts: which requests tell it of what began, goes on and is over.

| form | requests |
| --- | --- |
| `json` | one for news: `text` for people, `begun` and `over` for programs |
| `slack` | one for news, with its `text` (Slack, Mattermost, Rocket.Chat) |
| `pagerduty` | one for each alert that begins or is over: Events API v2, deduplicated by the alert's identity |
| `alertmanager` | one at every tick with all that fire: Alertmanager takes an alert that is not told again for over |
"""

from __future__ import annotations

import datetime as dt
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.model.settings import AlertSettings
    from strandline.jobs.operate.watch import Alert

_ANSWERS_WITHIN_SECONDS: Final = 10.0
"""A webhook that does not answer must not keep the tick from the log, nor the daemon from other sensors."""
_TOLD_AGAIN_SECONDS: Final = 120
"""Four ticks of the sensor: an alert that Alertmanager heard nothing of for so long is over, or the sensor is."""


@dataclass(frozen=True)
class News:
    """The alerts at a tick.

    Attributes:
        begun: those that were not there at the tick before.
        over: those of the tick before that are not there any more.
        firing: {alert: when it began, in milliseconds since the epoch}, of all that are there, with those that began.
    """

    begun: tuple[Alert, ...]
    over: tuple[Alert, ...]
    firing: tuple[tuple[Alert, int], ...] = ()

    def lines(self) -> list[str]:
        """What began and what is over, as people read it."""
        begun = [
            f"{a.identity}: {a.what}{f' ({a.hint})' if a.hint else ''}{f' [{a.owner}]' if a.owner else ''}"
            for a in self.begun
        ]
        return [*begun, *(f"{each.identity}: over" for each in self.over)]


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
    is_news = bool(news.begun or news.over)
    match settings.webhook_form:
        case "json" if is_news:
            begun, over = [each.as_json() for each in news.begun], [each.identity for each in news.over]
            yield {"text": "\n".join(news.lines()), "begun": begun, "over": over}
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
    for each in news.over:
        yield {"routing_key": key, "event_action": "resolve", "dedup_key": _dedup(each, lake)}


def _dedup(alert: Alert, lake: str) -> str:
    return f"{lake} {alert.identity}"


def _firing(firing: Sequence[tuple[Alert, int]], lake: str, now_ms: int) -> Iterator[dict[str, Any]]:
    for each, since in firing:
        yield {**_labelled(each, lake), "startsAt": _at(since), "endsAt": _at(now_ms + _TOLD_AGAIN_SECONDS * 1000)}


def _resolved(over: Sequence[Alert], lake: str, now_ms: int) -> Iterator[dict[str, Any]]:
    for each in over:
        yield {**_labelled(each, lake), "endsAt": _at(now_ms)}


def _labelled(alert: Alert, lake: str) -> dict[str, Any]:
    """Labels are an alert's identity for Alertmanager, so nothing that changes while it fires is among them."""
    labels = {
        "alertname": f"strandline_{alert.kind}",
        "subject": alert.subject,
        "severity": alert.severity,
        "owner": alert.owner,
        "lake": lake,
    }
    annotations = {"summary": alert.what, "hint": alert.hint}
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
