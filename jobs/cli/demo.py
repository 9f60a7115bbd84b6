"""`make demo`: the pattern catalogue's examples, from their statements to their projections, on the local log.

For each pipeline: its file is registered, its events are inserted (in the first run only), its stream is drained, and
every projection is printed with its changelog. Where rows are deleted, they are in the views first.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.jobs.cli.command import leave
from strandline.jobs.cli.output import CommandOutput
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import IngestSettings, KafkaSettings, load_settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.apply import apply, pipeline_of, read_text
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Delete, InsertValues
from strandline.state_store.delta import reader
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import VERSION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings

PIPELINES = [
    Path(__file__).parents[1] / "pipelines" / f"{name}.sql"
    for name in ("longest_visits", "movie_tickets", "sensor_readings", "package_locations")
]


def main() -> int:
    """Run the demo and return the exit code."""
    began = time.monotonic()
    # The demo uses the local log, also in a shell that is set up for Kafka.
    # Small micro-batches, so that the changelogs have several versions.
    settings = load_settings(kafka=KafkaSettings(), ingest=IngestSettings(max_rows_per_epoch=4))
    try:
        new = {file for file in PIPELINES if define(file, settings)}
        # Without new events there is nothing that needs Spark.
        with _spark(settings) if new else nullcontext() as spark:
            for file in PIPELINES:
                show(file, settings, spark, first=file in new)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"The lake lies in {settings.lake} ({time.monotonic() - began:.0f} s).")
    print("Open it in Dagster:  make up")
    return 0


@contextmanager
def _spark(settings: Settings) -> Iterator[SparkSession]:
    from strandline.jobs.run.spark import s3_jars, spark_session

    print("Starting Spark …", file=sys.stderr)
    with spark_session(settings.spark, jars=s3_jars(LakeLayout(settings.lake))) as spark:
        yield spark


def define(file: Path, settings: Settings) -> bool:
    """Register a pipeline and, the first time, insert its events; True then."""
    print(f"── {file.stem}.sql: {str(apply(file, settings)).splitlines()[0]}, …", file=sys.stderr)
    interpreter = Interpreter(settings, pipeline_of(file))
    inserts = [s for s in parse(read_text(file)) if isinstance(s, InsertValues)]
    if _has_events({s.target for s in inserts}, interpreter):
        return False
    for statement in inserts:
        interpreter.execute(statement)
    return True


def show(file: Path, settings: Settings, spark: SparkSession | None, *, first: bool) -> None:
    """Drain a pipeline, the first time also after its deletions, and print its projections with their changelogs."""
    from strandline.jobs.run.pipeline import drain

    name = pipeline_of(file)
    report = drain(settings, name, spark)
    print(f"\n━━ {name}: {report.epochs} epochs, {report.seconds:.1f} s")
    interpreter = Interpreter(settings, name)
    deletions = [s for s in parse(read_text(file)) if isinstance(s, Delete)]
    if first and deletions:
        for statement in deletions:
            print(f"\n{statement.sql};")
            CommandOutput().write(interpreter.execute(statement))
        report = drain(settings, name, spark)
        print(f"taken back in every view: {report.epochs} epoch, {report.seconds:.1f} s")
    for view in interpreter.catalog.pipeline(name):
        if isinstance(view, View):
            key = ", ".join(f"`{column}`" for column in view.key)
            print(f"\n{view.name}")
            for result in interpreter.run(f"SELECT * FROM `{view.name}` ORDER BY {key}"):
                CommandOutput().write(result)
            print(f"\n{view.name}: its changelog")
            CommandOutput().write(changelog(view, settings))


def changelog(view: View, settings: Settings) -> Rows:
    """The changes of a view, oldest first: version, +1 or −1, and the row."""
    columns = [c.name for c in view.columns]
    path = Interpreter(settings).lake.table(view.name)
    changes = reader.read_changes(path, after=-1).select([VERSION, WEIGHT, *columns]).to_pylist()
    rows = [(c[VERSION], f"{c[WEIGHT]:+d}", *(c[name] for name in columns)) for c in changes]
    return Rows(("version", "weight", *columns), sorted(rows, key=lambda r: (r[0], str(r[2:]))))


def _has_events(targets: set[str], interpreter: Interpreter) -> bool:
    from strandline.jobs.ingest.topics import open_log
    from strandline.jobs.model.definitions import Source

    log = open_log(interpreter.settings, interpreter.lake)
    sources = [s for s in (interpreter.catalog.get(name) for name in targets) if isinstance(s, Source)]
    return any(any(log.end_offsets(s.topic).values()) for s in sources)


if __name__ == "__main__":
    leave(main())
