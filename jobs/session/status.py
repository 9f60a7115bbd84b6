"""The status of every pipeline, from the commit records alone: no JVM, no rows read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.catalog.catalog import Catalog
from jobs.ingest.lag import events_behind
from jobs.ingest.logs.open import open_log
from jobs.ivm.plan.plan import plan
from jobs.ivm.refresh.late import late_in
from jobs.model import tables
from jobs.model.definitions import Definition, InsertQuery, Source, View
from jobs.serve.results import Rows
from state_store.delta import reader
from state_store.errors import CorruptState
from state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.catalog.broken import Broken
    from jobs.ingest.logs.log import Log
    from jobs.model.settings import Settings

_NAMES = ("pipeline", "table", "kind", "version", "epoch", "rows", "lag", "lag_unit", "late")
_Row = tuple[str | None, str, str, int | None, int | None, int | None, int | None, str, int | None]


def status(settings: Settings) -> Rows:
    """One row for each table of each pipeline, and one for each definition whose file is broken.

    `lag` counts what the table does not reflect yet: events of the topic for an event log, versions of its inputs for a
    view. It is null when the broker does not answer. `late` counts the rows that came too late for a view's windows and
    are left out; it is null where no row is ever late.
    """
    lake = Lake(settings.lake)
    catalog = Catalog(lake)
    log = open_log(settings, lake)
    rows: list[_Row] = []
    for pipeline in catalog.pipelines():
        for definition in catalog.pipeline(pipeline):
            rows += _rows(definition, catalog, lake, log)
    rows += [_broken(each, catalog.pipeline_of(each)) for each in catalog.broken.values()]
    return Rows(_NAMES, rows)


def _broken(broken: Broken, pipeline: str | None) -> _Row:
    return (pipeline, broken.name, "broken", None, None, None, None, "", None)


def _rows(definition: Definition, catalog: Catalog, lake: Lake, log: Log) -> Iterator[_Row]:
    match definition:
        case InsertQuery():
            return
        case View():
            behind = _versions_behind(definition.name, definition.inputs, lake)
            late = _late(definition, catalog, lake)
            yield _row(definition, definition.name, "view", lake, behind, late)
        case Source(kind="table"):
            event_log = tables.event_log(definition)
            yield _row(definition, event_log, "event log", lake, _events_behind(definition, lake, log))
            yield _row(
                definition, definition.name, "table", lake, _versions_behind(definition.name, (event_log,), lake)
            )
        case Source():
            lag = _events_behind(definition, lake, log)
            yield _row(definition, definition.name, "event log", lake, lag)
    letters = tables.dead_letters(definition.name)
    if reader.head(lake.table(letters)) is not None:
        unit = "events" if isinstance(definition, Source) else "versions"
        yield _row(definition, letters, "dead letters", lake, (0, unit))


def _row(
    definition: Definition, table: str, role: str, lake: Lake, lag: tuple[int | None, str], late: int | None = None
) -> _Row:
    head = reader.head(lake.table(table))
    if head is None:
        return (definition.pipeline, table, role, None, None, None, *lag, late)
    return (definition.pipeline, table, role, head.version, head.record.epoch, head.record.rows, *lag, late)


def _late(view: View, catalog: Catalog, lake: Lake) -> int | None:
    try:
        stages = plan(view, catalog).stages
    except CorruptState:
        return None  # the definition of something that the view reads is broken, and has a row of its own
    return late_in(lake, stages)


def _events_behind(source: Source, lake: Lake, log: Log) -> tuple[int | None, str]:
    return events_behind(source, lake, log), "events"


def _versions_behind(table: str, inputs: tuple[str, ...], lake: Lake) -> tuple[int, str]:
    head = reader.head(lake.table(table))
    behind = 0
    for name in inputs:
        source = reader.head(lake.table(name))
        seen = head.record.versions.get(name, -1) if head else -1
        behind += max(source.version - seen, 0) if source else 0
    return behind, "versions"
