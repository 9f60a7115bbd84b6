"""The child processes that Dagster starts, one to drain a pipeline and one to follow it without end.

    python -m strandline.jobs.run.dagster_child drain PIPELINE
    python -m strandline.jobs.run.dagster_child follow PIPELINE

A drain is that of `strandline run`; then each selected asset is reported through Dagster Pipes. The parent names
the table of each asset, and the version that Dagster was told last, in the session's extras under `tables`:

    {"projections/locations": {"table": "locations", "role": "projection", "told": 3}, …}

Rows are counted from that version on, so that those of a drain that was killed after its commit are not lost. Nothing
is reported before the drain has succeeded: an asset turns green only with its numbers.

To follow is the run of `strandline run PIPELINE --mode continuous`. It has no lifeline: it outlives the process that
started it, and whoever wants it finds it by its heartbeat. SIGTERM stops it. It logs to standard error, of news that
comes with every micro-batch a line a minute, so that a run without end fills no disk.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.report import counted_since
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.orphans import hold_lifeline
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagster_pipes import PipesContext, PipesMetadataValue

    from strandline.jobs.model.report import RunReport, TableReport
    from strandline.jobs.model.settings import Settings


EXIT_FAILED = 1
EXIT_USAGE = 2

NO_COMMIT: Final[Mapping[str, int | float | str | PipesMetadataValue]] = {
    "dagster/row_count": 0,
    "reason": "no commit yet: nothing has come",
}
"""The metadata of a table that is up to date without a commit."""
_CHANGELOG = "changelog"
_OF_THEIR_ROWS: Final = frozenset({"projection", _CHANGELOG})
"""The roles of assets whose data version is another one with other rows."""
_TAKES_IN: Final = "takes in events"


def main(arguments: list[str]) -> int:
    """Do what the arguments ask: `drain` or `follow`, and the name of a pipeline.

    Returns:
        The exit code: 0, `EXIT_FAILED` when the run failed, `EXIT_USAGE` when called wrongly.
    """
    match arguments:
        case ["drain", pipeline]:
            return _drain_and_report(pipeline)
        case ["follow", pipeline]:
            return _follow(pipeline)
        case _:
            print("usage: python -m strandline.jobs.run.dagster_child drain|follow PIPELINE", file=sys.stderr)
            return EXIT_USAGE


def _drain_and_report(pipeline: str) -> int:
    """Drain the pipeline and report to Dagster; the exit code."""
    hold_lifeline()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        try:
            settings = load_settings()
            report = _drain(settings, pipeline)
            report_run(pipes, report, LakeLayout(settings.lake))
        except StrandlineError as error:
            pipes.report_custom_message({"error": error.attrs()})
            print(error, file=sys.stderr)
            return EXIT_FAILED
    return 0


def _drain(settings: Settings, pipeline: str) -> RunReport:
    from strandline.jobs.run.pipeline import drain

    return drain(settings, pipeline)


def report_run(pipes: PipesContext, report: RunReport, lake: LakeLayout) -> None:
    """Report one materialization for each selected asset, then the run as a whole.

    Pipes takes one materialization per asset and session, so this is called once, at the end. A table without a commit
    is up to date too, and empty: it has had no input yet (or no record was broken).
    """
    tables = {table.name: table for table in report.tables}
    selected: Mapping[str, Mapping[str, Any]] = pipes.extras["tables"]
    for asset in pipes.asset_keys:
        role = selected[asset]["role"]
        table = tables.get(selected[asset]["table"])
        if table is not None:
            table = counted_since(table, lake.table(table.name), selected[asset].get("told"))
            metadata = table_metadata(table, role, report.held.get(table.name))
            pipes.report_asset_materialization(
                asset_key=asset, metadata=metadata, data_version=data_version(table, role)
            )
        else:
            pipes.report_asset_materialization(asset_key=asset, metadata=NO_COMMIT, data_version=data_version_of(role))
    pipes.report_custom_message(
        {"report": {"pipeline": report.pipeline, "epochs": report.epochs, "seconds": report.seconds}}
    )


def table_metadata(
    table: TableReport, role: str, held: str | None = None
) -> dict[str, int | float | str | PipesMetadataValue]:
    """The metadata that Dagster shows of a table. Labels must not change: Dagster plots each label over time.

    A changelog is the same Delta table read as changes, so its rows and bytes are not repeated; it counts changes.

    Args:
        held: what is wrong with its newest rows, from which nothing is computed.
    """
    metadata: dict[str, int | float | str | PipesMetadataValue] = {
        "delta version": table.version,
        "epoch": table.epoch,
        "batch seconds": float(table.seconds),
        "rows inserted": table.inserted,
        "rows deleted": table.deleted,
        "digest": table.digest,
    }
    if table.inserted or table.deleted:
        metadata |= {"mode": table.mode, "reason": table.reason}
    else:
        metadata["outcome"] = f"no row changed; epoch {table.epoch} was the last"
    if role == _CHANGELOG:
        metadata["changes"] = table.inserted + table.deleted
    else:
        metadata["dagster/row_count"] = table.rows
        metadata["dagster/size_bytes"] = table.bytes
    if held is not None:
        metadata["what reads it waits"] = held
    if table.late is not None:
        metadata["late rows"] = table.late
    if table.early:
        metadata["early events"] = "; ".join(each.in_words(each.table) for each in table.early)
    if table.seconds > 0:
        metadata["rows per second"] = round((table.inserted + table.deleted) / table.seconds, 1)
    if table.vector:
        metadata["version vector"] = _markdown_vector(table.vector)
        metadata["version vector (json)"] = {"type": "json", "raw_value": dict(table.vector)}
    if table.offsets:
        metadata["source offsets"] = {"type": "json", "raw_value": {t: dict(p) for t, p in table.offsets.items()}}
    return metadata


def data_version(table: TableReport, role: str) -> str | None:
    """The data version of an asset: a view's is its digest, so that equal rows give equal versions.

    A changelog grows with every commit, so its data version is that of the commit.
    """
    if role == _CHANGELOG:
        return str(table.version)
    return data_version_of(role) or table.digest or None


def data_version_of(role: str) -> str | None:
    """The data version that all assets of a role have at all times; None where it is that of their rows.

    What takes in events has one: whether a view is behind them is judged by its FRESHNESS, and not by Dagster.
    """
    return None if role in _OF_THEIR_ROWS else _TAKES_IN


def _markdown_vector(vector: Mapping[str, int]) -> PipesMetadataValue:
    lines = [
        "| input | version |",
        "| --- | ---: |",
        *(f"| `{name}` | {version} |" for name, version in vector.items()),
    ]
    return {"type": "md", "raw_value": "\n".join(lines)}


# The stop of a continuous run: SIGTERM asks for it, the run ends after the micro-batch at work.


@contextmanager
def stopped_by_signal() -> Iterator[Event]:
    """An event that SIGTERM sets. Only for the main thread of a process."""
    stop = Event()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


_SECONDS_BETWEEN: Final = 60.0
_MOST_KINDS: Final = 1_000
"""Messages that were not made of a template would otherwise be remembered one by one."""


class RateLimitedLog(logging.Filter):
    """Lets news of one kind (one logger's template) through once in so many seconds, and says how much was kept back.

    Warnings and errors always pass. Any thread may log.
    """

    def __init__(self, seconds: float = _SECONDS_BETWEEN) -> None:
        super().__init__()
        self._seconds = seconds
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.INFO:
            return True
        kind, now = (record.name, str(record.msg)), time.monotonic()
        since, kept_back = self._said.get(kind, (now - self._seconds, 0))
        if now - since < self._seconds:
            self._said[kind] = (since, kept_back + 1)
            return False
        if len(self._said) >= _MOST_KINDS:
            self._said.clear()
        self._said[kind] = (now, 0)
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} ({kept_back} more since the last such line)", None
        return True


def _follow(pipeline: str) -> int:
    """Follow the pipeline until SIGTERM. It has no lifeline: it outlives the process that started it.

    Returns:
        The exit code: 0 after a stop, `EXIT_FAILED` when the run failed (its heartbeat says why).
    """
    _log_to_stderr()
    from strandline.jobs.run.pipeline import follow

    try:
        with stopped_by_signal() as stop:
            follow(load_settings(), pipeline, stop)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    return 0


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimitedLog())
    logging.basicConfig(handlers=[handler], level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    # It tells of each call between the JVM and Python, by a text of its own.
    logging.getLogger("py4j").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
