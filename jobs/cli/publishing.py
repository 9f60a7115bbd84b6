"""The command `strandline publish`: changelog topics brought to their views' newest versions, once or until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.jobs.cli.exits import exit_codes
from strandline.jobs.cli.name_map import localized, name_map_in
from strandline.jobs.cli.operated import show_json
from strandline.jobs.cli.output import say
from strandline.jobs.model.settings import load_settings
from strandline.state_store.errors import TableMissing

if TYPE_CHECKING:
    from strandline.jobs.publish.publisher import Published


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
    from strandline.jobs.cli.stopping import stopped_by_signal
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
