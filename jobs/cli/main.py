"""The command `strandline`: apply, run, sql, status, verify, serve, token, test, and those of `operations`.

Standard output holds data; everything else goes to standard error. The exit codes are in `jobs.cli.command`.
"""

from __future__ import annotations

import logging
import random
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.jobs.cli.command import BROKEN, INTERRUPTED, USER_ERROR, exit_codes, leave, load_settings
from strandline.jobs.cli.operations import add_operations, add_publishing
from strandline.jobs.cli.output import CommandOutput, say, show_json
from strandline.jobs.run.orphans import hold_lifeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.report import RunReport
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.results import Result
    from strandline.jobs.session.apply import ApplyPlan
    from strandline.jobs.testing.suite import TypedCase
    from strandline.jobs.testing.trials import TrialResult


app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


class Mode(StrEnum):
    """The length of a run: until its input is drained, or until it is stopped."""

    DRAIN = "drain"
    CONTINUOUS = "continuous"


SqlFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE.sql", help="statements")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object for each row on standard output")]


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", help="say which version this is", is_eager=True)] = False,
) -> None:
    """SQL views over event streams, kept correct and fresh on Apache Spark and Delta Lake."""
    if version:
        from importlib.metadata import version as version_of

        print(f"strandline {version_of('strandline')}")
        raise typer.Exit


@app.command()
def setup(
    s3: Annotated[bool, typer.Option("--s3", help="also the jars by which Spark reaches a lake on S3")] = False,
) -> None:
    """Fetch the jars that Spark needs, once, from Maven Central; then teach the JVM to start faster."""
    from strandline.jobs.run.jars import fetch

    with exit_codes():
        for name in ("delta", "s3") if s3 else ("delta",):
            say(f"the jars of {name} are in {fetch(name)}")
        from strandline.jobs.run.spark import write_class_archive

        say(f"the JVM's class archive: {write_class_archive() or 'this JVM keeps none'}")


@app.command()
def apply(
    file: SqlFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and change nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask before a definition is replaced")] = False,
) -> None:
    """Check the definitions of FILE.sql and register them as the pipeline named after the file.

    On a terminal the plan is shown, and asked about, before a definition takes the place of another.
    """
    from strandline.jobs.session.apply import apply as apply_file
    from strandline.jobs.session.apply import plan_apply

    with exit_codes():
        settings = load_settings()
        if dry_run:
            print(plan_apply(file, settings))
            return
        if sys.stdin.isatty() and not yes:
            _agreed(plan_apply(file, settings))
        say(str(apply_file(file, settings)))


@app.command()
def run(
    what: Annotated[str, typer.Argument(metavar="FILE.sql|PIPELINE", help="a file is applied first")],
    mode: Annotated[Mode, typer.Option(help="drain ends when everything there is in; continuous goes on")] = Mode.DRAIN,
    standby: Annotated[
        bool, typer.Option("--standby", help="while another process runs it, wait, and go on when that is gone")
    ] = False,
) -> None:
    """Run a pipeline: ingest its events and refresh its views. INSERTs in the file are not executed."""
    from strandline.jobs.cli.command import name_map_in

    if standby and mode is Mode.DRAIN:
        raise typer.BadParameter("--standby is for a run that goes on: --mode continuous")
    with exit_codes():
        settings = load_settings()
        pipeline = _applied(what, settings)
        report, code = _run(settings, pipeline, mode, standby=standby)
        name_map = name_map_in(settings)
        say(_summary(report, name_map))
        for wrong in report.held.values():
            say(name_map.localized(wrong))
        if code or report.held:
            raise typer.Exit(code or BROKEN)


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
    with exit_codes():
        from strandline.jobs.session.apply import in_file, pipeline_of, run_file
        from strandline.jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter

        output = CommandOutput(json)
        interpreter = Interpreter(load_settings(), pipeline_of(file) if file else DEFAULT_PIPELINE)
        if text is None and file is None and sys.stdin.isatty():
            from strandline.jobs.cli.prompt import converse

            converse(interpreter, output)
            return
        if file is None:
            for result in interpreter.run(text if text is not None else sys.stdin.read()):
                _write(output, result)
            return
        with in_file(file):
            for result in run_file(file, interpreter):
                _write(output, result)


@app.command()
def status(json: Json = False) -> None:
    """Show every pipeline's tables, what may be relied on of each view, event logs, the last runs, what is wrong."""
    from strandline.jobs.cli.shown import show_assurances, show_logs, show_runs
    from strandline.jobs.session.status import status as all_tables

    with exit_codes():
        settings = load_settings()
        CommandOutput(json).write(all_tables(settings))
        show_assurances(settings, json=json)
        show_logs(settings, json=json)
        show_runs(settings, json=json)


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="definitions or tables")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="compute each view's SQL again, by DuckDB")] = False,
    json: Json = False,
) -> None:
    """Check every table against its log, its files, its history and its definition; without names, the whole lake."""
    from strandline.jobs.cli.command import localized, name_map_in
    from strandline.jobs.cli.output import shown_steps
    from strandline.jobs.cli.shown import keep_proofs, show
    from strandline.jobs.operate.verify.verify import verify as verify_tables

    with exit_codes():
        settings = load_settings()
        name_map = name_map_in(settings)
        took: dict[str, float] = {}
        with shown_steps(name_map, begins=False) as steps:
            checks = verify_tables(settings, name_map.all_stored(names or ()), deep=deep, steps=steps, took=took)
        if deep:
            keep_proofs(settings, checks, took)
        if not show(localized(checks, name_map, "table", "what", "hint"), json=json):
            raise typer.Exit(BROKEN)


add_operations(app)
add_publishing(app)


class ReplicaBackend(StrEnum):
    """The backends of replicas, as the option names them."""

    rocksdb = "rocksdb"
    memory = "memory"
    lmdb = "lmdb"
    dynamodb = "dynamodb"


@app.command()
def serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT")] = "127.0.0.1:8088",
    folder: Annotated[Path, typer.Option(help="for replicas and idempotency keys")] = Path("strandline-server"),
    tokens: Annotated[Path | None, typer.Option(help="file of tokens; see `strandline token`")] = None,
    certificate: Annotated[Path | None, typer.Option(help="of TLS, PEM")] = None,
    key: Annotated[Path | None, typer.Option(help="of TLS, PEM")] = None,
    postgres_port: Annotated[
        int | None, typer.Option(help="PostgreSQL's clients connect here, on the same host")
    ] = None,
    replica: Annotated[
        ReplicaBackend | None,
        typer.Option(help="what holds the replicas; default: the setting server.replica, rocksdb"),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="a name by which browsers reach the server, or a proxy's")
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="a line of JSON for each request")] = False,
) -> None:
    """Answer pull and push queries and inserts over HTTP, until Ctrl-C or SIGTERM."""
    from strandline.jobs.server.app import listen as answer
    from strandline.jobs.server.state.access import ServerOptions

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise typer.BadParameter("--listen is HOST:PORT")
    with exit_codes():
        settings = load_settings()
        if replica is not None:
            server = settings.server.model_copy(update={"replica": replica.value})
            settings = settings.model_copy(update={"server": server})
        options = ServerOptions(
            *(folder.absolute(), host.strip("[]"), int(port), tokens, certificate, key, postgres_port),
            allowed_hosts=tuple(allowed_host or ()),
        )

        def ready(bound: int) -> None:
            say(f"serving the lake {settings.lake}")
            say(f"listening on http{'s' if certificate else ''}://{host}:{bound}")
            if postgres_port is not None:
                say(f"listening on postgresql://{host}:{postgres_port}")

        answer(settings, options, log_requests=log_requests, ready=ready)


@app.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="whose it is; one of that name is replaced")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read:VIEW, write:STREAM or operate:*; VIEW may hold *")
    ] = None,
    file: Annotated[Path, typer.Option(help="the file of tokens, made if it is not there")] = Path("tokens.json"),
    days: Annotated[int | None, typer.Option(help="it expires after so many")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="remove the token of that name")] = False,
) -> None:
    """Make a token for the server and print it, once: the file keeps a hash of it. Or remove one."""
    from strandline.jobs.server.state.access import make_token, revoke_token

    if bool(scope) == revoke:
        raise typer.BadParameter("give --scope for a new token, or --revoke, and not both")
    with exit_codes():
        if revoke:
            revoke_token(file, name)
            say(f"the token '{name}' is not valid any more")
        else:
            print(make_token(file, name, tuple(scope or ()), days))


_SEEDS = 1 << 31


class Engines(StrEnum):
    """The engines that a test runs on."""

    BOTH = "both"
    DUCKDB = "duckdb"
    SPARK = "spark"


@app.command("test")
def _run_tests(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="NAME.sql or NAME.test.yaml")],
    engine: Annotated[Engines, typer.Option(help="duckdb takes no JVM")] = Engines.BOTH,
    only: Annotated[str | None, typer.Option(metavar="TEXT", help="tests whose names hold it")] = None,
    cuts: Annotated[int, typer.Option(min=0, help="how often a test is cut into random epochs")] = 3,
    kills: Annotated[bool, typer.Option("--kills/--no-kills", help="kill and resume each step once")] = True,
    seed: Annotated[int | None, typer.Option(help="of the random places; default: another one each time")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object for each test and trial")] = False,
) -> None:
    """Test the views of FILE: given rows go in, in random epochs, on both engines and through kills."""
    from strandline.jobs.testing.suite import read_suite
    from strandline.jobs.testing.trials import prepared, run_suite, trials

    with exit_codes():
        suite = read_suite(file)
        chosen = random.randrange(_SEEDS) if seed is None else seed  # noqa: S311 - a place to cut, no secret
        with prepared(load_settings(), suite) as (bench, cases):
            cases = _named(cases, only)
            spark, duckdb = engine is not Engines.DUCKDB, engine is not Engines.SPARK
            wanted = trials(cuts, chosen, kills=kills, duckdb=duckdb, spark=spark)
            results = []
            for result in run_suite(bench, cases, wanted):
                results.append(result)
                show_json([_as_json(result)]) if json else _print_fault(result)
        failed = [result for result in results if not result.passed]
        if not json:
            _print_cases(cases, results)
        say(_said_of_tests(cases, results, suite.path, chosen))
        if failed:
            raise typer.Exit(BROKEN)


def main() -> None:
    """Run the command: its entry point. One that another process started with a lifeline ends with it."""
    hold_lifeline()
    try:
        app(prog_name="strandline")
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else USER_ERROR)


def _write(output: CommandOutput, result: Result) -> None:
    from strandline.jobs.serve.results import LiveRows

    try:
        output.write(result)
    except KeyboardInterrupt:
        # Ctrl-C is the normal end of a push query.
        if not isinstance(result, LiveRows):
            raise


def _agreed(plan: ApplyPlan) -> None:
    """Show a plan that replaces or alters something, and ask; without a yes the command ends."""
    asked = [f"{word} {', '.join(what)}" for word, what in (("Alter", plan.alters), ("Replace", plan.replaces)) if what]
    if asked:
        say(str(plan))
        typer.confirm(f"{'. '.join(asked)}?", abort=True, err=True)


def _applied(what: str, settings: Settings) -> str:
    """The pipeline that `what` names; a file is applied first."""
    path = Path(what)
    if path.suffix != ".sql":
        return what
    if not path.is_file():
        raise typer.BadParameter(f"there is no file '{what}'")
    from strandline.jobs.session.apply import apply as apply_file

    applied = apply_file(path, settings)
    say(str(applied))
    return applied.pipeline


_TABLES_SHOWN = 20
"""Of a run with more tables those are shown that it changed, and those that say something of it."""


def _summary(report: RunReport, name_map: NameMap) -> str:
    epochs = "1 epoch" if report.epochs == 1 else f"{report.epochs} epochs"
    lines = [f"pipeline '{report.pipeline}': {epochs} in {report.seconds:.1f} s"]
    shown = [each for each in report.tables if each.inserted or each.deleted or each.early]
    shown = shown if len(report.tables) > _TABLES_SHOWN else [*report.tables]
    for table in shown:
        changed = f"+{table.inserted} −{table.deleted}"
        late = f", {table.late} late rows left out" if table.late else ""
        early = "".join(f", {each.in_words(name_map.of(each.table))}" for each in table.early)
        lines.append(
            f"  {name_map.of(table.name)}: {table.rows} rows ({changed}), version {table.version}{late}{early}"
        )
    same = len(report.tables) - len(shown)
    if same:
        lines.append(f"  {same} {'table' if same == 1 else 'tables'} more: no row changed")
    return "\n".join(lines)


def _run(settings: Settings, pipeline: str, mode: Mode, *, standby: bool = False) -> tuple[RunReport, int]:
    """Run a pipeline, and show how it goes on; its report and the exit code."""
    from strandline.jobs.cli.command import stopped_by_signal
    from strandline.jobs.cli.output import shown
    from strandline.jobs.run import pipeline as jobs_pipeline
    from strandline.jobs.run.pipeline import outlook

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    # What fails in a micro-batch is its query's error; the bridge to the JVM would print a traceback of it as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with stopped_by_signal() as stop, shown(outlook(settings, pipeline)) as watch:
        if mode is Mode.DRAIN:
            return jobs_pipeline.drain(settings, pipeline, stop=stop, watch=watch), stop.code
        report = jobs_pipeline.follow(settings, pipeline, stop, watch=watch, standby=standby)
        # SIGTERM is how a continuous run is ended by those who started it.
        return report, stop.code if stop.code == INTERRUPTED else 0


if __name__ == "__main__":
    main()


def _named(cases: Sequence[TypedCase], text: str | None) -> tuple[TypedCase, ...]:
    found = tuple(case for case in cases if text is None or text.lower() in case.name.lower())
    if not found:
        raise typer.BadParameter(f"no test's name holds '{text}'")
    return found


def _print_fault(result: TrialResult) -> None:
    if result.passed:
        return
    print(f"FAILED  {result.case} ({result.trial}), step {result.step}")
    for fault in result.faults:
        for line in fault.lines():
            print(f"        {line}")


def _print_cases(cases: Sequence[TypedCase], results: Sequence[TrialResult]) -> None:
    for case in cases:
        own = [result for result in results if result.case == case.name]
        failed = sum(not result.passed for result in own)
        word, what = ("FAILED", f"{failed} of {len(own)} trials") if failed else ("ok    ", f"{len(own)} trials")
        print(f"{word}  {case.name}: {what}, {sum(result.seconds for result in own):.1f} s")


def _said_of_tests(cases: Sequence[TypedCase], results: Sequence[TrialResult], path: Path, seed: int) -> str:
    broken = {result.case for result in results if not result.passed}
    counted = f"{len(cases) - len(broken)} of {len(cases)} tests passed, {len(results)} trials"
    return f"{counted}; to see them again: strandline test {path} --seed {seed}" if broken else counted


def _as_json(result: TrialResult) -> dict[str, Any]:
    return {
        "test": result.case,
        "trial": result.trial.kind,
        "seed": result.trial.seed,
        "passed": result.passed,
        "step": result.step,
        "seconds": round(result.seconds, 3),
        "faults": [fault.as_json() for fault in result.faults],
    }


if __name__ == "__main__":
    main()
