"""Shows what event logs cost, the runs of a lake and its alerts, below the tables of `strandline status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.cli.name_map import localized, name_map_in
from strandline.jobs.cli.output import Output
from strandline.jobs.operate.maintenance.log_cost import log_costs
from strandline.jobs.operate.watch import alerts
from strandline.jobs.run.heartbeat import read_beat
from strandline.jobs.serve.results import Rows
from strandline.state_store.delta.log import now_ms
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.heartbeat import Heartbeat

_LOG = ("log", "rows", "bytes", "oldest_event", "gone")
_RUN = ("run", "mode", "state", "heartbeat_seconds", "micro_batches", "events_behind", "views_stopped")
_ALERT = ("alert", "subject", "found", "hint")


def show_logs(settings: Settings, *, json: bool) -> None:
    """Write what each event log keeps, and what its retention has taken; nothing where there is none."""
    found = log_costs(settings)
    if found:
        name_map = name_map_in(settings)
        rows = [tuple(each.as_json().values()) for each in found]
        Output(json).write(Rows(_LOG, [(name_map.of(str(name)), *others) for name, *others in rows]))


def show_runs(settings: Settings, *, json: bool) -> None:
    """Write the last run of each pipeline, then the alerts; nothing where there is none of either."""
    now = now_ms()
    lake = Lake(settings.lake)
    beats = [beat for name in Catalog(lake).pipelines() if (beat := read_beat(lake, name)) is not None]
    if beats:
        Output(json).write(Rows(_RUN, [_run(beat, now) for beat in beats]))
    found = localized(alerts(settings, now), name_map_in(settings), "subject", "what", "hint")
    if found:
        Output(json).write(Rows(_ALERT, [(each.kind, each.subject, each.what, each.hint) for each in found]))


def _run(beat: Heartbeat, now: int) -> tuple[str | float | int | None, ...]:
    waiting = [lag for lag in beat.lag.values() if lag is not None]
    behind = sum(waiting) if len(waiting) == len(beat.lag) else None
    silent = round(beat.silent_seconds(now), 1)
    return beat.pipeline, beat.mode, _state(beat, now), silent, beat.micro_batches, behind, len(beat.failures)


def _state(beat: Heartbeat, now: int) -> str:
    if beat.ended:
        return "ended" if beat.error is None else "failed"
    if not beat.is_running:
        return "killed"
    return "silent" if beat.is_silent(now) else "running"
