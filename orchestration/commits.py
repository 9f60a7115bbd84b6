"""The sensor that tells Dagster what the lake's commits say, whoever made them: the command line, a server, another
machine, or a run of Dagster's own that was killed before it could report.

    commits of a table since the version that was told last ──> one materialization of each asset of the table
    a view's state (held, stopped, damaged) that changed     ──> an evaluation of its check `state`

The lake is the only truth. The cursor merely spares looking twice: what was told last of a table is the version in its
last materialization. A table of a pipeline that a run of Dagster's is at work on is left to that run until it ends.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import dagster as dg
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from strandline.jobs.model.definitions import Definition
from strandline.jobs.model.report import committed
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.health_checks import Hindrances, state_verdict
from strandline.jobs.run.dagster_child import data_version, table_metadata
from strandline.orchestration.assets import Role, evaluation_of, from_pipes, identifier, role_of, table_of, with_defined
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout

VERSION: Final = "delta version"
"""The label of the version in a materialization's metadata."""

_INTERVAL_SECONDS: Final = 10
"""Between two ticks: the first page that somebody opens after `make up` has the lake's state."""
_TICK_SECONDS: Final = 0.6
"""A tick reports for so long, and leaves the rest to the next: Dagster's daemon has other sensors to look at."""
_DATA_VERSION: Final = "dagster/data_version"
_AT_WORK: Final = (
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)
_EVENT = dg.AssetMaterialization | dg.AssetCheckEvaluation


def last_told(instance: DagsterInstance, key: dg.AssetKey) -> int | None:
    """The version of a table that Dagster was told last, by an asset that shows it; None if it was told none."""
    event = instance.get_latest_materialization_event(key)
    found = event.asset_materialization.metadata.get(VERSION) if event and event.asset_materialization else None
    return found.value if found is not None and isinstance(found.value, int) else None


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
    """

    pipeline: str
    specs: Sequence[dg.AssetSpec]
    views: Mapping[str, dg.AssetKey]


@dataclass
class Cursor:
    """What earlier ticks have told: {table: version} and {view: state}; and the table that the next one begins with.

    A tick that had no time for all goes on there, or tables that never stand still would keep it from the others.
    """

    told: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    first: str = ""

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        """The cursor of a tick; an empty one at the first."""
        return cls(**json.loads(text)) if text else cls()

    def as_text(self) -> str:
        """The cursor for the next tick."""
        return json.dumps({"told": self.told, "states": self.states, "first": self.first}, sort_keys=True)


def commit_sensor(
    settings: Settings, pipelines: Sequence[Shown], definitions: Sequence[Definition]
) -> dg.SensorDefinition:
    """The sensor, on from the start."""

    @dg.sensor(
        name="commits",
        minimum_interval_seconds=_INTERVAL_SECONDS,
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
    names = list(dict.fromkeys((*shown, *views)))
    begin = names.index(cursor.first) if cursor.first in names else 0
    for number, name in enumerate((*names[begin:], *names[:begin])):
        if number and time.monotonic() - began > _TICK_SECONDS:
            cursor.first = name
            return
        if name in shown:
            yield from _of_table(lake, instance, name, shown[name], cursor)
        if name in views:
            yield from _of_state(name, views[name], hindrances, cursor)


def _of_table(
    lake: LakeLayout, instance: DagsterInstance, table: str, specs: Sequence[dg.AssetSpec], cursor: Cursor
) -> Iterator[dg.AssetMaterialization]:
    path = lake.table(table)
    try:
        newest = delta_log.newest_version(path)
        if newest is None or cursor.told.get(table) == newest:
            return
        before = last_told(instance, specs[0].key)
        report = committed(table, path, before) if before != newest else None
    except StrandlineError:
        return  # damaged: its check `state` says so, and nothing is told of its rows
    cursor.told[table] = newest
    if report is None:
        return
    cursor.told[table] = report.version
    for spec in specs:
        role = role_of(spec)
        metadata: dict[str, Any] = from_pipes(table_metadata(report, role))
        del metadata["batch seconds"]  # whoever made the commits knows how long they took
        version = data_version(report, role)
        yield dg.AssetMaterialization(
            spec.key,
            description="Read from the commits of the lake.",
            metadata=with_defined(metadata, spec),
            tags={} if version is None else {_DATA_VERSION: version},
        )


def _of_state(view: str, key: dg.AssetKey, hindrances: Hindrances, cursor: Cursor) -> Iterator[dg.AssetCheckEvaluation]:
    found = hindrances.of(view)
    state = "goes on" if found is None else f"{found.state}: {found.why}"
    if cursor.states.get(view, "goes on") != state:
        cursor.states[view] = state
        yield evaluation_of(state_verdict(found), key)


def _at_work(instance: DagsterInstance, pipelines: Sequence[Shown]) -> set[str]:
    """The pipelines that a run of Dagster's is at work on."""
    runs = [record.dagster_run for record in instance.get_run_records(RunsFilter(statuses=list(_AT_WORK)))]
    return {each.pipeline for each in pipelines if any(_works_on(run, each) for run in runs)}


def _works_on(run: DagsterRun, shown: Shown) -> bool:
    if run.job_name in (f"drain_{identifier(shown.pipeline)}", f"stream_{identifier(shown.pipeline)}"):
        return True
    keys = {spec.key for spec in shown.specs}
    return bool(keys & (run.asset_selection or frozenset()))
