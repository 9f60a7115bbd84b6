"""Shows what operations came to: drills, checks, maintenance, and what `strandline status` tells below its tables.

Drills have a line for each view:

|view     |changelog  |recompute  |killed-driver  |backup            |
|by_shop  |0.1 s      |0.3 s      |1.9 s          |0.5 s, 3 rows lost|
|large    |0.1 s      |FAILED     |skipped        |0.4 s             |

FAILED recompute of large: the rows are not those of its SQL …
skipped killed-driver of large: …
"""

from __future__ import annotations

from dataclasses import astuple, fields
from itertools import groupby
from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.cli.command import localized, name_map_in
from strandline.jobs.cli.output import CommandOutput, say, show_json
from strandline.jobs.model.definitions import View
from strandline.jobs.model.forecast import whole
from strandline.jobs.operate.assurance import assurances, log_costs
from strandline.jobs.operate.verify.findings import Check, counted, note_proofs, sized
from strandline.jobs.operate.watch import acknowledgements, alerts
from strandline.jobs.run.heartbeat import read_beat
from strandline.jobs.serve.results import Rows
from strandline.state_store.delta.log import now_ms
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.assurance import Assurance
    from strandline.jobs.operate.maintenance import MaintenanceResult
    from strandline.jobs.operate.recovery.drill_history import DrillResult
    from strandline.jobs.operate.recovery.scenarios import Drill
    from strandline.jobs.run.heartbeat import Heartbeat


def show_drill_plan(plan: Sequence[Drill], *, json: bool) -> None:
    """Write what would be rehearsed: the scenarios, then the views."""
    if json:
        show_json([each.as_json() for each in plan])
        return
    targets = {each.scenario: each.target_seconds for each in plan}
    forecasts = {name: whole(each.forecast for each in plan if each.scenario == name) for name in targets}
    # Drills are made of everything: whoever asks for the status does without.
    from strandline.jobs.operate.recovery.scenarios import scenario

    rows = [(name, scenario(name).what, f"{target:g}", str(forecasts[name])) for name, target in targets.items()]
    CommandOutput().write(Rows(("scenario", "what is lost", "target s", "will take"), rows))
    print(f"all of them will take: {whole(each.forecast for each in plan)}")
    views = list(dict.fromkeys(each.view for each in plan))
    print(f"each of {counted(len(views), 'view')}: {', '.join(views)}")


def show_drills(results: Sequence[DrillResult], *, json: bool) -> bool:
    """Write the results of drills; false if one failed."""
    failed = [result for result in results if result.passed is False]
    if json:
        show_json([result.as_json() for result in results])
    elif results:
        scenarios = list(dict.fromkeys(each.drill for each in results))
        views = list(dict.fromkeys(each.view for each in results))
        cells = {(each.view, each.drill): _cell(each) for each in results}
        rows = [(view, *(cells.get((view, each), "") for each in scenarios)) for view in views]
        CommandOutput().write(Rows(("view", *scenarios), rows))
        for line in _reasons(results):
            print(line)
    skipped = sum(result.passed is None for result in results)
    good = "all is well" if skipped < len(results) else "nothing was rehearsed"
    end = f"failed: {', '.join(f'{each.drill} of {each.view}' for each in failed)}" if failed else good
    say(f"{counted(len(results), 'drill')}, {skipped} skipped: {end}")
    return not failed


def _cell(result: DrillResult) -> str:
    if not result.passed:
        return "skipped" if result.passed is None else "FAILED"
    lost = f", {result.rpo_rows:,} rows lost" if result.rpo_rows else ""
    return f"{result.rto_seconds:.1f} s{lost}"


def _reasons(results: Sequence[DrillResult]) -> Iterator[str]:
    """Why drills failed or were skipped; views of which the same is to be said share a line."""
    for passed, word in ((False, "FAILED"), (None, "skipped")):
        views: dict[tuple[str, str], list[str]] = {}
        for each in results:
            if each.passed is passed:
                views.setdefault((each.drill, each.why), []).append(each.view)
        for (drill, why), names in views.items():
            yield f"{word} {drill} of {', '.join(names)}: {why}"


# Shows what `strandline verify` found: a table for people, one JSON object per check for scripts.

_RESULTS = {True: ("ok", "green"), False: ("BROKEN", "bold red"), None: ("skipped", "yellow")}


def show(checks: Sequence[Check], *, json: bool) -> bool:
    """Write the checks to standard output; false if one failed.

    For people, the checks of a table that hold share a line; each of the others has its own.
    """
    if json:
        CommandOutput(json=True).write(
            Rows(tuple(each.name for each in fields(Check)), [astuple(check) for check in checks])
        )
    else:
        _print_table(checks)
    broken = list(dict.fromkeys(check.table for check in checks if check.ok is False))
    say(_summary(checks, broken))
    return not broken


def _print_table(checks: Sequence[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table("table", "result", "check", "found")
    for name, group in groupby(checks, key=lambda check: check.table):
        own = _lines(list(group))
        # A table of which all holds is one line, and twenty of them are a screen.
        if len(own) > 1:
            shown.add_section()
        for lines in own:
            word, style = _RESULTS[lines[0].ok]
            shown.add_row(
                Text(name),
                Text(word, style),
                lines[0].check if lines[0].ok is not True else counted(len(lines), "check"),
                Text(_found(lines)),
            )
        if len(own) > 1:
            shown.add_section()
    Console().print(shown)


def _lines(checks: Sequence[Check]) -> list[list[Check]]:
    """The checks of one table as they share a line; what is broken comes first."""
    broken = [[check] for check in checks if check.ok is False]
    fine = [check for check in checks if check.ok]
    return [*broken, *([fine] if fine else []), *([check] for check in checks if check.ok is None)]


def _found(lines: Sequence[Check]) -> str:
    if lines[0].ok:
        return next((each.what for each in lines if each.check == "row_count"), lines[0].what)
    parts = (lines[0].what, lines[0].where, f"hint: {lines[0].hint}" if lines[0].hint else None)
    return "\n".join(part for part in parts if part)


def _summary(checks: Sequence[Check], broken: Sequence[str]) -> str:
    tables = counted(len({check.table for check in checks}), "table")
    skipped = sum(check.ok is None for check in checks)
    made = f"{counted(len(checks) - skipped, 'check')} of {tables}, {skipped} skipped"
    good = "all is well" if skipped < len(checks) else "nothing was checked"
    return f"{made}: {'broken: ' + ', '.join(broken) if broken else good}"


# Shows what a maintenance came to: a table for people, one JSON object a row for scripts.


def show_maintenance(done: MaintenanceResult, *, json: bool) -> None:
    """Write what was done to each table; for people, only those to which anything was."""
    if json:
        show_json([table.as_json() for table in done.tables])
        return
    names = ("table", "files", "removed", "MB freed", "restore plays", "proof", "note")
    rows = [
        (
            table.table,
            f"{table.files_before} > {table.files_after}",
            table.removed,
            round(table.freed / 1e6, 1),
            f"{table.restore_rows_before} > {table.restore_rows_after} rows",
            "equal" if table.proved else "BROKEN",
            table.note,
        )
        for table in done.tables
        if table.proved is not None
    ]
    if rows:
        CommandOutput().write(Rows(names, rows))
    idle = len(done.tables) - len(rows)
    if idle or not rows:
        say(f"{counted(idle, 'table')}: nothing to merge or remove")


# Shows what event logs cost, the runs of a lake and its alerts, below the tables of `strandline status`.

_VIEW = ("view", "right", "stale", "recoverable", "backed up", "cost", "why not")
_LOG = ("log", "rows", "bytes", "oldest_event", "gone")
_RUN = ("run", "mode", "state", "heartbeat_seconds", "micro_batches", "events_behind", "views_stopped")
_ALERT = ("alert", "subject", "severity", "owner", "state", "found", "hint")


def show_assurances(settings: Settings, *, json: bool) -> None:
    """Write what may be relied on of each view: right, fresh, recoverable, and the cost; nothing without views."""
    found = localized(assurances(settings, now_ms()), name_map_in(settings), "view", "why")
    if json:
        show_json([each.as_json() for each in found])
    elif found:
        CommandOutput().write(Rows(_VIEW, [_assured(each) for each in found]))


def _assured(each: Assurance) -> tuple[str, ...]:
    """One view as people read it: a dash is what nobody has looked at."""
    proved = f"{_word(each.right)}, {_ago(each.proved_seconds)}" if each.right is not None else "–"
    target = f" of {each.target_seconds:g} s" if each.target_seconds is not None else ""
    fresh = f"{each.stale_seconds:g} s{target}" if each.stale_seconds is not None else "–"
    drilled = f"{_word(each.recoverable)}, {_ago(each.drilled_seconds)}" if each.recoverable is not None else "–"
    backed_up = _ago(each.backed_up_seconds) if each.backed_up_seconds is not None else "–"
    spent = f", {each.seconds_a_day:g} s a day" if each.seconds_a_day is not None else ""
    at = each.seconds_a_day_at or {}
    other = f" ({at['60']:g} at a minute, {at['3600']:g} at an hour)" if spent and at else ""
    requests = sum((each.requests_a_day or {}).values())
    asked = f", {requests:,.0f} requests a day" if requests else ""
    return each.view, proved, fresh, drilled, backed_up, f"{sized(each.bytes)}{spent}{other}{asked}", each.why


def _word(holds: bool | None) -> str:
    return "yes" if holds else "NO"


def _ago(seconds: float | None) -> str:
    """A time in the largest unit that it has two of."""
    assert seconds is not None
    for unit, factor in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def keep_proofs(settings: Settings, checks: Sequence[Check], took: Mapping[str, float]) -> None:
    """Keep in the lake what deep checks came to and took, view by view."""
    lake = LakeLayout(settings.lake)
    views = [each for each in Catalog(lake).definitions() if isinstance(each, View)]
    note_proofs(lake, views, checks, now_ms(), took)


def show_logs(settings: Settings, *, json: bool) -> None:
    """Write what each event log keeps, and what its retention has taken; nothing where there is none."""
    found = log_costs(settings)
    if found:
        name_map = name_map_in(settings)
        rows = [tuple(each.as_json().values()) for each in found]
        CommandOutput(json).write(Rows(_LOG, [(name_map.of(str(name)), *others) for name, *others in rows]))


def show_runs(settings: Settings, *, json: bool) -> None:
    """Write the last run of each pipeline, then the alerts; nothing where there is none of either."""
    now = now_ms()
    lake = LakeLayout(settings.lake)
    beats = [beat for name in Catalog(lake).pipelines() if (beat := read_beat(lake, name)) is not None]
    if beats:
        CommandOutput(json).write(Rows(_RUN, [_run(beat, now) for beat in beats]))
    found = alerts(settings, now)
    if found:
        taken = acknowledgements(lake, now)
        states = [str(taken.get(each.identity, "firing")) for each in found]
        shown = localized(found, name_map_in(settings), "subject", "what", "hint")
        rows = [
            (each.kind, each.subject, each.severity, each.owner, state, each.what, each.hint)
            for each, state in zip(shown, states, strict=True)
        ]
        CommandOutput(json).write(Rows(_ALERT, rows))


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
