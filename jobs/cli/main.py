"""The command `strandline`: apply, run, sql, serve, status, verify.

Standard output holds data; everything else goes to standard error. Exit codes: 0 done, 1 something that was verified is
broken, 2 an error that the message explains, 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.output import Output, say
from jobs.model.settings import load_settings
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from jobs.model.report import RunReport
    from jobs.model.settings import Settings
    from jobs.serve.results import Result
    from jobs.session.interpreter import Interpreter

BROKEN = 1
USER_ERROR = 2
INTERRUPTED = 130

app = typer.Typer(
    help="SQL views over event streams, kept correct and fresh on Apache Spark and Delta Lake.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Mode(StrEnum):
    """The length of a run: until its input is drained, or until it is stopped."""

    DRAIN = "drain"
    CONTINUOUS = "continuous"


SqlFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE.sql", help="statements")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object for each row on standard output")]


@app.command()
def apply(file: SqlFile) -> None:
    """Check the definitions of FILE.sql and register them as the pipeline named after the file."""
    from jobs.session.apply import apply as apply_file

    with _exit_codes():
        say(str(apply_file(file, load_settings())))


@app.command()
def run(
    what: Annotated[str, typer.Argument(metavar="FILE.sql|PIPELINE", help="a file is applied first")],
    mode: Annotated[Mode, typer.Option(help="drain ends when everything there is in; continuous goes on")] = Mode.DRAIN,
) -> None:
    """Run a pipeline: ingest its events and refresh its views. INSERTs in the file are not executed."""
    with _exit_codes():
        settings = load_settings()
        pipeline = _applied(what, settings)
        from jobs.run import pipeline as jobs_pipeline

        # A drain reports at its end; a continuous run logs each epoch.
        level = logging.INFO if mode is Mode.CONTINUOUS else logging.WARNING
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s")
        logging.getLogger("strandline").setLevel(level)
        if mode is Mode.DRAIN:
            report = jobs_pipeline.drain(settings, pipeline)
        else:
            with _stopped_by_signal() as stop:
                report = jobs_pipeline.follow(settings, pipeline, stop)
        say(_summary(report))


@app.command()
def sql(
    text: Annotated[str | None, typer.Option("-e", metavar="TEXT", help="statements to execute")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", metavar="FILE", exists=True, dir_okay=False, help="a file of statements")
    ] = None,
    json: Json = False,
) -> None:
    """Execute statements; without -e and -f, the prompt (or the statements on standard input)."""
    if text is not None and file is not None:
        raise typer.BadParameter("give -e or -f, not both")
    with _exit_codes():
        from jobs.session.apply import pipeline_of, read_text
        from jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter

        output = Output(json)
        interpreter = Interpreter(load_settings(), pipeline_of(file) if file else DEFAULT_PIPELINE)
        if text is None and file is None and sys.stdin.isatty():
            from jobs.cli.prompt import converse

            converse(interpreter, output)
            return
        _execute(interpreter, output, text if text is not None else read_text(file) if file else sys.stdin.read())


@app.command()
def rebuild(name: Annotated[str, typer.Argument(metavar="NAME", help="a stream, table or view")]) -> None:
    """Compute the rows of a definition anew, whatever is stored: after a foreign write, a lost file or a restore."""
    with _exit_codes():
        from jobs.operate.rebuild import rebuild as rebuild_definition

        done = rebuild_definition(load_settings(), name)
        for stage in done.stages:
            say(f"{stage.table}: rebuilt (+{stage.inserted} −{stage.deleted})")
        for table in done.aside:
            say(f"{table}: begun anew")
        for other in done.elsewhere:
            say(f"'{other}' of another pipeline reads what was begun anew; type: strandline rebuild {other}")


@app.command()
def status(json: Json = False) -> None:
    """Show the status of every pipeline: versions, epochs, rows and lag, from the tables' commits."""
    from jobs.session.status import status as all_tables

    with _exit_codes():
        Output(json).write(all_tables(load_settings()))


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="definitions or tables")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="compute each view's SQL again, by DuckDB")] = False,
    json: Json = False,
) -> None:
    """Check every table against its log, its files, its history and its definition; without names, the whole lake."""
    from jobs.cli.findings import show
    from jobs.operate.verify.verify import verify as verify_tables

    with _exit_codes():
        if not show(verify_tables(load_settings(), names or (), deep=deep), json=json):
            raise typer.Exit(BROKEN)


@app.command()
def serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT")] = "127.0.0.1:8088",
    folder: Annotated[Path, typer.Option(help="for replicas and idempotency keys")] = Path("strandline-server"),
    tokens: Annotated[Path | None, typer.Option(help="file of tokens; see `strandline token`")] = None,
    certificate: Annotated[Path | None, typer.Option(help="of TLS, PEM")] = None,
    key: Annotated[Path | None, typer.Option(help="of TLS, PEM")] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="a line of JSON for each request")] = False,
) -> None:
    """Answer pull and push queries and inserts over HTTP, until Ctrl-C or SIGTERM."""
    from jobs.server.access.options import ServerOptions
    from jobs.server.listen import listen as answer

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise typer.BadParameter("--listen is HOST:PORT")
    with _exit_codes():
        options = ServerOptions(folder.absolute(), host.strip("[]"), int(port), tokens, certificate, key)
        say(f"listening on http{'s' if certificate else ''}://{listen}")
        answer(load_settings(), options, log_requests=log_requests)


@app.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="whose it is; one of that name is replaced")],
    scope: Annotated[list[str], typer.Option(help="read:VIEW, write:STREAM or operate:*; VIEW may hold *")],
    file: Annotated[Path, typer.Option(help="the file of tokens, made if it is not there")] = Path("tokens.json"),
    days: Annotated[int | None, typer.Option(help="it expires after so many")] = None,
) -> None:
    """Make a token for the server and print it, once: the file keeps a hash of it."""
    from jobs.server.access.tokens import make_token

    with _exit_codes():
        print(make_token(file, name, tuple(scope), days))


def main() -> None:
    """Run the command: its entry point."""
    app(prog_name="strandline")


def _execute(interpreter: Interpreter, output: Output, text: str) -> None:
    for result in interpreter.run(text):
        _write(output, result)


def _write(output: Output, result: Result) -> None:
    from jobs.serve.results import LiveRows

    try:
        output.write(result)
    except KeyboardInterrupt:
        # Ctrl-C is the normal end of a push query.
        if not isinstance(result, LiveRows):
            raise


def _applied(what: str, settings: Settings) -> str:
    """The pipeline that `what` names; a file is applied first."""
    path = Path(what)
    if path.suffix != ".sql":
        return what
    if not path.is_file():
        raise typer.BadParameter(f"there is no file '{what}'")
    from jobs.session.apply import apply as apply_file

    applied = apply_file(path, settings)
    say(str(applied))
    return applied.pipeline


def _summary(report: RunReport) -> str:
    epochs = "1 epoch" if report.epochs == 1 else f"{report.epochs} epochs"
    lines = [f"pipeline '{report.pipeline}': {epochs} in {report.seconds:.1f} s"]
    for table in report.tables:
        changed = f"+{table.inserted} −{table.deleted}"
        late = f", {table.late} late rows left out" if table.late else ""
        lines.append(f"  {table.name}: {table.rows} rows ({changed}), version {table.version}{late}")
    return "\n".join(lines)


@contextmanager
def _stopped_by_signal() -> Iterator[Event]:
    """An event that SIGTERM sets: the run ends after the current micro-batch."""
    stop = Event()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Turns errors into a message and an exit code; a reader that closes the pipe is no error."""
    try:
        yield
    except StrandlineError as error:
        say(str(error))
        raise typer.Exit(USER_ERROR) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit, into a pipe that is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
