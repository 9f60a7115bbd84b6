"""The commands of operations. Each prints its plan: `--dry-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.jobs.cli.command import BROKEN, exit_codes, load_settings, localized, name_map_in, note_stored
from strandline.jobs.cli.output import say, show_json, shown_steps
from strandline.state_store.errors import SettingsError, TableMissing

if TYPE_CHECKING:
    from collections.abc import Set

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.rebuild import Rebuilt
    from strandline.jobs.publish.publisher import Published
    from strandline.state_store.paths import LakePath


Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="definitions or tables")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the plan and change nothing")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object for each row on standard output")]


def add_operations(app: typer.Typer) -> None:
    """Add the commands to the command `strandline`."""
    for command in (compact, backfill, backup, restore, drill, rebuild, compare_state, acknowledge):
        app.command()(command)


def compact(
    names: Names = None,
    before: Annotated[
        int | None, typer.Option(min=0, metavar="VERSION", help="of one table: fold its feed up to this version now")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Merge small files, remove what nobody needs any more, fold old changes; then prove that no row has changed."""
    with exit_codes():
        from strandline.jobs.operate.maintenance import MaintenanceResult, execute_maintenance, plan_maintenance

        if before is not None and len(names or ()) != 1:
            raise typer.BadParameter("--before is a version of one table: name it")
        settings = load_settings()
        name_map = name_map_in(settings)
        plan = plan_maintenance(settings, name_map.all_stored(names or ()), before=before)
        note_stored(name_map, [each.table for each in plan.tables] if dry_run else ())
        if dry_run:
            show_json([each.as_json() for each in plan.tables]) if json else print(plan)
            return
        with shown_steps(name_map, begins=False) as steps:
            done = execute_maintenance(settings, plan, steps=steps)
        done = MaintenanceResult(tuple(localized(done.tables, name_map, "table", "note")))
        from strandline.jobs.cli.shown import show_maintenance

        show_maintenance(done, json=json)
        if not done.proved:
            raise typer.Exit(BROKEN)


def backfill(
    view: Annotated[str, typer.Argument(metavar="VIEW")],
    begin: Annotated[str | None, typer.Option("--from", metavar="TIME", help="the first moment, in UTC")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="the first moment after")] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="the time of a row; default: the begin of its window")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Compute the rows of a range of time anew from history, prove them, and put what differs in place."""
    with exit_codes():
        from strandline.jobs.operate.backfill import execute_backfill, period_of, plan_backfill

        settings = load_settings()
        name_map = name_map_in(settings)
        plan = plan_backfill(settings, name_map.stored(view), period_of(begin, end), by)
        note_stored(name_map, (plan.view, *plan.reads, *plan.followers) if dry_run else ())
        if dry_run:
            show_json([plan.as_json()]) if json else print(plan)
            return
        with shown_steps(name_map) as steps:
            [done] = localized([execute_backfill(settings, plan, steps)], name_map, "view")
        if json:
            show_json([done.as_json()])
        say(f"{done.view}: backfilled (+{done.inserted} −{done.deleted}) in {done.seconds:.1f} s")


def backup(
    destination: Annotated[
        str | None,
        typer.Argument(metavar="[DEST]", help="a path or URL: a new folder, or older backups; default: the setting"),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Back up the lake: only files that DEST has not yet are copied. Pipelines may run."""
    with exit_codes():
        from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
        from strandline.jobs.operate.verify.findings import counted, sized

        settings = load_settings()
        name_map = name_map_in(settings)
        plan = plan_backup(settings, _path(settings, destination or _destination(settings)))
        if dry_run:
            show_json([plan.as_json()]) if json else print(plan)
            return
        with shown_steps(name_map, begins=False) as steps:
            done = execute_backup(settings, plan, steps)
        if json:
            show_json([done.as_json()])
        say(
            f"backup {done.number}: {done.files} files, {sized(done.size)}, of {len(done.tables)} tables; "
            f"{done.written} files, {sized(done.written_size)} were written, {done.scrubbed} read again, "
            f"in {done.seconds:.1f} s"
        )
        if done.mended:
            were = "was" if len(done.mended) == 1 else "were"
            say(f"{counted(len(done.mended), 'file')} of the backup {were} damaged and copied again: look at its disk")
        for file, numbers in done.damaged.items():
            them = ", ".join(map(str, numbers))
            say(f"damaged, and no longer in the lake: '{file}'; these backups cannot be restored any more: {them}")
        if done.damaged:
            raise typer.Exit(BROKEN)


def restore(
    source: Annotated[str, typer.Argument(metavar="SRC", help="where the backups are")],
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="a path or URL with nothing in it")],
    number: Annotated[int | None, typer.Option(min=1, help="of an older backup; default: the newest")] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Restore a backup into an empty lake, and verify the rows of every table. Killed, it goes on when run again."""
    with exit_codes():
        from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore

        settings = load_settings()
        plan = plan_restore(_path(settings, source), _path(settings, lake), number)
        if dry_run:
            show_json([plan.as_json()]) if json else print(plan)
            return
        with shown_steps(begins=False) as steps:
            done = execute_restore(plan, steps)
        if json:
            show_json([done.as_json()])
        say(f"restored {len(done.tables)} tables, {done.rows} rows, in {done.seconds:.1f} s: every digest is equal")


def drill(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="views; default: all")] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="one of the scenarios; may be repeated")] = None,
    target: Annotated[float | None, typer.Option(metavar="SECONDS", help="instead of each scenario's own")] = None,
    source: Annotated[str | None, typer.Option("--backup", metavar="SRC", help="the backup to be restored")] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Rehearse recoveries on copies, never on the lake itself, and measure them."""
    with exit_codes():
        from strandline.jobs.cli.shown import show_drill_plan, show_drills
        from strandline.jobs.operate.recovery.drill_history import record
        from strandline.jobs.operate.recovery.scenarios import plan_drills, run_drill, with_forecasts
        from strandline.state_store.errors import DiskFailed, StorageDenied
        from strandline.state_store.layout import LakeLayout

        settings = load_settings()
        name_map = name_map_in(settings)
        plan = plan_drills(settings, name_map.all_stored(names or ()), scenario or (), target)
        if dry_run:
            foreseen = with_forecasts(plan, LakeLayout(settings.lake))
            show_drill_plan(localized(foreseen, name_map, "view"), json=json)
            return
        saved = None if source is None else _path(settings, source)
        results = []
        with shown_steps(name_map, begins=False) as steps:
            for number, each in enumerate(plan, 1):
                steps.begin(f"rehearsing {each.scenario} of {name_map.of(each.view)}, drill {number} of {len(plan)}")
                results.append(run_drill(settings, each, backup=saved))
                try:
                    record(LakeLayout(settings.lake), results[-1:])
                except (StorageDenied, DiskFailed) as error:
                    say(f"what the drill came to is not kept in the lake: {error.message}")
        if not show_drills(localized(results, name_map, "view", "why"), json=json):
            raise typer.Exit(BROKEN)


def rebuild(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="streams, tables or views")] = None,
    all_broken: Annotated[
        bool, typer.Option("--all-broken", help="all for which `strandline verify` says so, which is run first")
    ] = False,
    from_topic: Annotated[
        bool, typer.Option("--from-topic", help="of a view: take its rows from its changelog topic, as they are there")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Compute the rows of definitions anew, whatever is stored: after a foreign write, a lost file or a restore."""
    from strandline.jobs.cli.command import stopped_by_signal

    # Nothing in it looks at the stop: Ctrl-C lets it end within seconds, or abandons it.
    with exit_codes(), stopped_by_signal():
        if all_broken == bool(names):
            raise typer.BadParameter("name what is to be rebuilt, or type --all-broken")
        if from_topic and len(names or ()) != 1:
            raise typer.BadParameter("--from-topic is for one view: name it")
        settings = load_settings()
        name_map = name_map_in(settings)
        if from_topic:
            _from_topic(settings, name_map, *name_map.all_stored(names or ()), dry_run=dry_run, json=json)
            return
        from strandline.jobs.operate.rebuild import broken_definitions, execute_rebuild, plan_rebuild, plan_rebuilds

        if all_broken:
            with shown_steps(name_map, begins=False) as steps:
                stored = broken_definitions(settings, steps)
            if not stored:
                say("nothing is broken that a rebuild mends")
        else:
            stored = list(name_map.all_stored(names or ()))
        plans = plan_rebuilds(settings, stored)
        if dry_run:
            for plan in plans:
                computed = (each.table for each in plan.computed)
                note_stored(name_map, (*plan.names, *computed, *plan.follow, *plan.waiting, *plan.elsewhere))
                show_json([plan.as_json()]) if json else print(plan)
            return
        waiting = False
        for number, plan in enumerate(plans):
            with shown_steps(name_map) as steps:
                # What one pipeline reads of another may have been mended since all were planned.
                again = plan_rebuild(settings, *plan.names) if number else plan
                done = execute_rebuild(settings, again, steps=steps)
            _show_rebuilt(done, name_map, {name for plan in plans for name in plan.names}, json=json)
            waiting |= bool(done.waiting)
        if waiting:
            raise typer.Exit(BROKEN)


def compare_state(
    view: Annotated[str, typer.Argument(metavar="VIEW")],
    epochs: Annotated[
        int, typer.Option(min=1, help="the newest commits of its inputs that are taken in one by one")
    ] = 10,
    json: Json = False,
) -> None:
    """Keep a view as full, shared and partial state on copies, and measure what each stores and costs."""
    with exit_codes():
        from strandline.jobs.operate.compare_state import compare_state as compared

        settings = load_settings()
        name_map = name_map_in(settings)
        [done] = localized([compared(settings, name_map.stored(view), epochs=epochs)], name_map, "view")
        show_json(done.as_json()) if json else print(done)
        if not done.equal:
            raise typer.Exit(BROKEN)


def acknowledge(
    alert: Annotated[str, typer.Argument(metavar="ALERT", help="its kind, as `strandline status` shows it")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="what it is about")],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="who takes care of it; default: you")] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="what they are at")] = "",
    hours: Annotated[float, typer.Option(min=0.01, help="it is told again after so long, unless it is over")] = 24,
) -> None:
    """Say that somebody takes care of an alert, to all that hear of alerts; it is over by itself."""
    with exit_codes():
        from getpass import getuser

        from strandline.jobs.model.errors import UnknownName
        from strandline.jobs.operate.watch import acknowledge as take
        from strandline.jobs.operate.watch import alerts
        from strandline.state_store.delta.log import now_ms
        from strandline.state_store.layout import LakeLayout, check_lake

        settings = load_settings()
        lake = LakeLayout(settings.lake)
        check_lake(lake)
        identity = f"{alert} {subject if alert == 'check' else name_map_in(settings).stored(subject)}"
        # Failed checks are Dagster's, and the lake does not know them.
        firing = [each.identity for each in alerts(settings, now_ms())]
        if alert != "check" and identity not in firing:
            raise UnknownName.among("alert that fires", identity, firing)
        take(lake, identity, by or getuser(), now_ms(), note, hours)
        say(f"{alert} {subject}: acknowledged for {hours:g} h; the webhook hears of it within half a minute")


def _show_rebuilt(done: Rebuilt, name_map: NameMap, named: Set[str], *, json: bool) -> None:
    from strandline.jobs.operate.rebuild import waits

    if json:
        show_json([done.as_json()])
    for stage in done.stages:
        say(f"{name_map.of(stage.table)}: rebuilt (+{stage.inserted} −{stage.deleted})")
    for table in done.aside:
        say(f"{name_map.of(table)}: begun anew")
    for name, inputs in done.waiting.items():
        say(waits(name_map.of(name), [name_map.of(each) for each in inputs]))
    for other in map(name_map.of, sorted(set(done.elsewhere) - named)):
        say(f"'{other}' of another pipeline reads what was begun anew; type: strandline rebuild {other}")


def _from_topic(settings: Settings, name_map: NameMap, stored: str, *, dry_run: bool, json: bool) -> None:
    from strandline.jobs.operate.from_topic import execute_from_topic, plan_from_topic

    plan, name = plan_from_topic(settings, stored), name_map.of(stored)
    if dry_run:
        note_stored(name_map, (stored,))
        show_json([plan.as_json()]) if json else print(plan)
        return
    found = execute_from_topic(settings, plan)
    if json:
        show_json([found.as_json()])
    say(f"{name}: {found.rows} rows of version {found.of_version} from the topic '{found.topic}'")
    say(f"they can be read; before a run can go on from its inputs, type: strandline rebuild {name}")


def _destination(settings: Settings) -> str:
    """Where backups go by the settings. Raises SettingsError: they do not say."""
    if settings.backup.destination is None:
        raise SettingsError(
            "no destination is given, and the settings name none",
            hint="type: strandline backup DEST, or set STRANDLINE_BACKUP__DESTINATION",
        )
    return settings.backup.destination


def _path(settings: Settings, root: str) -> LakePath:
    from strandline.state_store.storage import lake_path

    return lake_path(root, settings.storage.options())


# The command `strandline publish`: changelog topics brought to their views' newest versions, once or until Ctrl-C.


def add_publishing(app: typer.Typer) -> None:
    """Add the command to the command `strandline`."""
    app.command()(publish)


def publish(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[VIEW]…", help="views; default: all that have a topic")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="go on with each commit, until Ctrl-C or SIGTERM")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and change nothing")] = False,
    json: Annotated[bool, typer.Option("--json", help="one JSON object for each row on standard output")] = False,
) -> None:
    """Publish views to their changelog topics. `strandline run` does it by itself; this is for a process of its own."""
    from strandline.jobs.cli.command import stopped_by_signal
    from strandline.jobs.publish.publisher import open_publisher, views_to_publish
    from strandline.jobs.run.publishing import publishing

    def told(done: Published) -> None:
        [done] = localized([done], name_map_in(settings), "view")
        show_json([done.as_json()]) if json else say(_line(done))

    with exit_codes():
        settings = load_settings()
        name_map = name_map_in(settings)
        views = views_to_publish(settings, name_map.all_stored(names or ()))
        if not views:
            say("no view has a changelog topic: give one … WITH (KAFKA_TOPIC = 'name') AS SELECT …")
            return
        if follow and not dry_run:
            with stopped_by_signal() as stop, publishing(settings, views, told, drained=False):
                stop.wait()
            return
        for view in views:
            publisher = open_publisher(settings, view.name)
            try:
                if dry_run:
                    plan = publisher.plan()
                    show_json([plan.as_json()]) if json else print(plan)
                else:
                    told(publisher.catch_up())
            except TableMissing:
                if names:
                    raise
                say(f"'{name_map.of(view.name)}' was not computed yet: run '{view.pipeline}'; the others go on")
            finally:
                publisher.close()


def _line(done: Published) -> str:
    return (
        f"topic '{done.topic}' holds version {done.version} of '{done.view}': "
        f"{done.records} records, by {done.way}, in {done.seconds:.1f} s"
    )
