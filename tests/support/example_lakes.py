"""The shipped pipelines with their events, brought through by DuckDB without a JVM, a few events an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from strandline.jobs.cli.demo import define
from strandline.jobs.ingest.event_logs import Target
from strandline.jobs.ingest.in_driver import SmallBatches
from strandline.jobs.ingest.offsets import committed_offsets, cut
from strandline.jobs.ingest.source import IntakeRange
from strandline.jobs.ingest.topics import current_ids, open_log
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.apply import pipeline_of, read_text
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Delete
from strandline.state_store.duckdb.engine import DuckDBEngine

_EVENTS: Final = 3
"""Of an epoch, so that each view has versions between its first and its last."""


def example_lake(file: Path, settings: Settings) -> None:
    """A lake with one pipeline: defined, its events taken in, its views fresh; then what its file deletes as well."""
    define(file, settings)
    with DuckDBEngine("256MB", 1) as duckdb_engine:
        drained(pipeline_of(file), settings, duckdb_engine)
        for statement in parse(read_text(file)):
            if isinstance(statement, Delete):
                Interpreter(settings, pipeline_of(file)).execute(statement)
        drained(pipeline_of(file), settings, duckdb_engine)


def drained(pipeline: str, settings: Settings, duckdb_engine: DuckDBEngine) -> None:
    """Bring a pipeline through: what its topics hold is taken in, and its views refreshed after each epoch."""
    interpreter = Interpreter(settings, pipeline)
    lake, catalog = interpreter.lake, interpreter.catalog
    definitions = catalog.pipeline(pipeline)
    sources = [each for each in definitions if isinstance(each, Source)]
    topics = open_log(settings, lake)
    ids = current_ids(sources, lake, topics)
    committed = {source.name: committed_offsets(source, lake) for source in sources}
    reading = IntakeRange.after(committed, settings, lake, sources, ids)
    small = SmallBatches(reading, Path(str(lake.checkpoint(pipeline))), duckdb_engine)
    targets = Target.of_all(sources, lake, f"{pipeline}/1", ids)
    context = RunContext(None, lake, f"{pipeline}/1", duckdb_engine=duckdb_engine, engine="duckdb")
    at = reading.start
    end = {topic: {str(part): last for part, last in topics.end_offsets(topic).items()} for topic in at}
    while at != end:
        reached = cut(at, end, _EVENTS, topics)
        small.ingest((at, reached), targets)
        at = reached
        failures = refresh_all(context, maintained(definitions, catalog), frozenset()).failures
        assert not failures, failures
