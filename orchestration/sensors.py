"""The sensors over a lake: one tells Dagster what its commits say, one tells an operator what he must hear of.

The commits count whoever made them: the command line, a server, another machine, or a run of Dagster's own that was
killed before it could report.

    commits of a table since the version that was told last ──> one materialization of each asset of the table
    a view's state (held, stopped, damaged) that changed,    ──> an evaluation of its check `state`
    or is that of a version which was just told                 (and what other checks said last: see `told_checks`)
    a run of Dagster's has ended, and hides what other runs  ──> the evaluations of these checks, once more
    found of its views

The lake is the only truth. The cursor merely spares looking twice: what was told last of a table is the version in its
last materialization. A table of a pipeline that a run of Dagster's is at work on is left to that run until it ends.

An alert goes to the log and to a webhook, once when it begins, once when somebody takes care of it, and once when it
is over.

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
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

import dagster as dg
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, Severity, Source
from strandline.jobs.model.report import TableReport, committed
from strandline.jobs.model.settings import AlertSettings, Settings
from strandline.jobs.operate.health_checks import Hindrances, state_verdict
from strandline.jobs.operate.watch import Acknowledgement, Alert, acknowledgements, alerts, forget
from strandline.jobs.run.dagster_child import NO_COMMIT, table_metadata
from strandline.orchestration.assets import (
    OWNERS,
    WHAT_TO_DO,
    Role,
    evaluation_of,
    from_pipes,
    identifier,
    role_of,
    table_of,
)
from strandline.orchestration.told_checks import Made, ToldChecks, last_evaluation
from strandline.orchestration.told_rows import LastTold, Provenance, told_every, with_definition_once
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout

_COMMITS_SECONDS: Final = 10
"""Between two ticks: the first page that somebody opens after `make up` has the lake's state."""
_TICK_SECONDS: Final = 0.6
"""A tick reports for so long, and leaves the rest to the next: Dagster's daemon has other sensors to look at."""
_TICK_EVENTS: Final = 100
"""A tick tells of a table more as long as it has told no more: the daemon stores an event in ten milliseconds, and on a
busy disk in fifty."""
_NO_VERSION: Final = -1
"""In the cursor, in place of the version of a table that has none yet, which was told."""
_AT_WORK: Final = (
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)
_OVER: Final = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_EVENT = dg.AssetMaterialization | dg.AssetCheckEvaluation


def tables_of(specs: Iterable[dg.AssetSpec]) -> dict[str, list[dg.AssetSpec]]:
    """{table: the assets that show it, the table itself first}."""
    found: dict[str, list[dg.AssetSpec]] = {}
    for spec in specs:
        if role_of(spec) is not Role.TOPIC:
            found.setdefault(table_of(spec), []).append(spec)
    return found


@dataclass(frozen=True)
class Shown:
    """One pipeline, as far as this sensor tells of it.

    Attributes:
        specs: its assets.
        views: {view: the asset that has its checks}.
        checks: {asset: its checks}.
        everything: the assets of the lake, of which these are some.
    """

    pipeline: str
    specs: Sequence[dg.AssetSpec]
    views: Mapping[str, dg.AssetKey]
    checks: Mapping[dg.AssetKey, Sequence[dg.AssetCheckKey]]
    everything: Sequence[dg.AssetSpec]


@dataclass
class Cursor:
    """What earlier ticks have told: {table: version}, {table: when, seconds since the epoch} and {view: state}; and the
    table that the next one begins with.

    Attributes:
        looked: when the last tick began.
        hidden: the views of which a run may have hidden checks, and {view: when they were told `again`}.

    A tick that had no time for all goes on there, or tables that never stand still would keep it from the others.
    """

    told: dict[str, int] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    first: str = ""
    looked: float = 0.0
    again: dict[str, int] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        """The cursor of a tick; an empty one at the first."""
        return cls(**json.loads(text)) if text else cls()

    def as_text(self) -> str:
        """The cursor for the next tick."""
        return json.dumps(asdict(self), sort_keys=True)


def commit_sensor(
    settings: Settings, pipelines: Sequence[Shown], definitions: Sequence[Definition]
) -> dg.SensorDefinition:
    """The sensor, on from the start."""

    @dg.sensor(
        name="commits",
        minimum_interval_seconds=_COMMITS_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells of commits that no run of Dagster's has reported, and of views that are held or stopped.",
    )
    def commits(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        cursor = Cursor.read(context.cursor)
        events = list(_events(LakeLayout(settings.lake), context.instance, pipelines, definitions, cursor))
        said = f"{len(events)} events" if events else "nothing new"
        return dg.SensorResult(asset_events=events, cursor=cursor.as_text(), skip_reason=said)

    return commits


def _events(
    lake: LakeLayout,
    instance: DagsterInstance,
    pipelines: Sequence[Shown],
    definitions: Sequence[Definition],
    cursor: Cursor,
) -> Iterator[_EVENT]:
    """The events of a tick, as long as there is time; notes in the cursor what they tell."""
    began = time.monotonic()
    busy = _at_work(instance, pipelines)
    hindrances = Hindrances(definitions, WholeHeads(lake))
    free = [each for each in pipelines if each.pipeline not in busy]
    shown = {table: specs for each in free for table, specs in tables_of(each.specs).items()}
    views = {view: key for each in free for view, key in each.views.items()}
    logs = {tables.dead_letters(s.name): tables.event_log(s) for s in definitions if isinstance(s, Source)}
    names = list(dict.fromkeys((*shown, *views)))
    begin = names.index(cursor.first) if cursor.first in names else 0
    names = [*names[begin:], *names[:begin]]
    checks = ToldChecks(instance, {key: found for each in free for key, found in each.checks.items()})
    rows = _Rows(lake, instance, pipelines, [spec.key for name in names for spec in shown.get(name, ())], cursor)
    drained = _drained(instance, pipelines, cursor)
    cursor.hidden = sorted(
        {*cursor.hidden, *(view for each in pipelines if each.pipeline in drained for view in each.views)}
    )
    every = told_every(sum(len(found) for each in pipelines for found in each.checks.values()))
    told = 0
    for number, name in enumerate(names):
        if number and (time.monotonic() - began > _TICK_SECONDS or told >= _TICK_EVENTS):
            cursor.first = name
            return
        found = list(rows.of_table(name, shown[name])) if name in shown else []
        log_of = logs.get(name) if name in shown and name not in cursor.told else None
        if log_of is not None and delta_log.newest_version(lake.table(log_of)) is not None:
            found += rows.of_none(name, shown[name])
        states = _of_state(name, views[name], hindrances, cursor, anew=bool(found)) if name in views else {}
        events: list[_EVENT] = [*found, *checks.beside([each.asset_key for each in found], states)]
        if name in cursor.hidden and name in views and time.time() - cursor.again.get(name, 0) >= every:
            hidden = () if found else [*checks.hidden(views[name])]
            events += hidden
            cursor.hidden.remove(name)
            cursor.again |= {name: int(time.time())} if hidden else {}
        told += len(events)
        yield from events


class _Rows:
    """What a tick tells of tables.

    Args:
        keys: of the assets, in the order in which their tables are looked at.
    """

    def __init__(
        self,
        lake: LakeLayout,
        instance: DagsterInstance,
        pipelines: Sequence[Shown],
        keys: Sequence[dg.AssetKey],
        cursor: Cursor,
    ) -> None:
        everything = pipelines[0].everything if pipelines else ()
        self._lake, self._cursor = lake, cursor
        self._last = LastTold(instance, keys)
        self._provenance = Provenance(lake, everything)
        self._every = told_every(len(everything))

    def of_table(self, table: str, specs: Sequence[dg.AssetSpec]) -> Iterator[dg.AssetMaterialization]:
        """Its commits since the version that was told last, unless that was a moment ago."""
        path, cursor, now = self._lake.table(table), self._cursor, int(time.time())
        try:
            newest = delta_log.newest_version(path)
            if newest is None or cursor.told.get(table) == newest or now - cursor.at.get(table, 0) < self._every:
                return
            before = self._last.version(specs[0].key)
            report = committed(table, path, before) if before != newest else None
        except StrandlineError:
            return  # damaged: its check `state` says so, and nothing is told of its rows
        cursor.told[table] = newest
        if report is None:
            return
        cursor.told[table], cursor.at[table] = report.version, now
        for spec in specs:
            metadata: dict[str, Any] = from_pipes(table_metadata(report, role_of(spec)))
            del metadata["batch seconds"]  # whoever made the commits knows how long they took
            yield self._materialization(spec, metadata, report)

    def of_none(self, table: str, specs: Sequence[dg.AssetSpec]) -> Iterator[dg.AssetMaterialization]:
        """The dead letters of a source that has taken records in, all of which it could decode: there is no table."""
        self._cursor.told[table] = _NO_VERSION
        for spec in specs:
            if self._last.of(spec.key) is None:
                yield self._materialization(spec, NO_COMMIT, None)

    def _materialization(
        self, spec: dg.AssetSpec, metadata: Mapping[str, Any], report: TableReport | None
    ) -> dg.AssetMaterialization:
        return dg.AssetMaterialization(
            spec.key,
            description="Read from the commits of the lake.",
            metadata=with_definition_once(metadata, spec, self._last.of(spec.key)),
            tags=self._provenance.tags(spec, report),
        )


def _of_state(view: str, key: dg.AssetKey, hindrances: Hindrances, cursor: Cursor, *, anew: bool) -> Made:
    """The check `state`: when it is another than before, and `anew` with each version of the view that is told."""
    found = hindrances.of(view)
    state = "goes on" if found is None else f"{found.state}: {found.why}"
    if not anew and cursor.states.get(view, "goes on") == state:
        return {}
    cursor.states[view] = state
    evaluation = evaluation_of(state_verdict(found), key)
    return {evaluation.asset_check_key: evaluation}


def _at_work(instance: DagsterInstance, pipelines: Sequence[Shown]) -> set[str]:
    """The pipelines that a run of Dagster's is at work on."""
    runs = [record.dagster_run for record in instance.get_run_records(RunsFilter(statuses=list(_AT_WORK)))]
    return {each.pipeline for each in pipelines if any(_works_on(run, each) for run in runs)}


def _drained(instance: DagsterInstance, pipelines: Sequence[Shown], cursor: Cursor) -> set[str]:
    """The pipelines that a run of Dagster's was at work on which has ended since the last tick."""
    since, cursor.looked = cursor.looked, time.time()
    if not since:
        return {each.pipeline for each in pipelines}
    ended = RunsFilter(statuses=list(_OVER), updated_after=dt.datetime.fromtimestamp(since - _COMMITS_SECONDS, dt.UTC))
    runs = [record.dagster_run for record in instance.get_run_records(ended)]
    return {each.pipeline for each in pipelines if any(_works_on(run, each) for run in runs)}


def _works_on(run: DagsterRun, shown: Shown) -> bool:
    if run.job_name in (f"drain_{identifier(shown.pipeline)}", f"stream_{identifier(shown.pipeline)}"):
        return True
    keys = {spec.key for spec in shown.specs}
    return bool(keys & (run.asset_selection or frozenset()))


log = logging.getLogger("strandline.alerts")

_ALERTS_SECONDS: Final = 30


def alert_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, on from the start."""

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=_ALERTS_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Failed checks, stale or stopped views, silent streams, dying leases: to log and webhook.",
    )
    def tell(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        known = Known.read(context.cursor)
        graph = context.repository_def.asset_graph if context.repository_def is not None else None
        checks = sorted(graph.asset_check_keys) if graph is not None else []
        owners = (
            {key: _owners(graph.get(key).owners) for key in graph.get_all_asset_keys()} if graph is not None else {}
        )
        now = now_ms()
        found = [*alerts(settings, now), *failed_checks(context.instance, checks, owners)]
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


def _owners(named: Iterable[str]) -> str:
    """The owners of an asset as an alert names them: those that its definition names."""
    return ", ".join(each for each in named if each not in OWNERS)


def failed_checks(
    instance: DagsterInstance,
    keys: Sequence[dg.AssetCheckKey],
    owners: Mapping[dg.AssetKey, str] = MappingProxyType({}),
) -> list[Alert]:
    """The checks whose last evaluation failed; one that only warns is an alert as well.

    A check that is planned again, or whose run died, keeps the verdict of its last evaluation.

    Args:
        owners: {asset: whose it is}.
    """
    if not keys:
        return []
    made = []
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key, record in latest.items():
        evaluation, _ = last_evaluation(instance, key, record) or (None, 0.0)
        if evaluation is not None and not evaluation.passed:
            said = evaluation.description or "it failed"
            severity: Severity = "error" if evaluation.severity is dg.AssetCheckSeverity.ERROR else "warn"
            subject = f"{key.name} of {key.asset_key.to_user_string()}"
            hint = evaluation.metadata.get(WHAT_TO_DO)
            owner = owners.get(key.asset_key, "")
            made.append(Alert("check", subject, said, str(hint.value) if hint else "", severity, owner))
    return made


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
