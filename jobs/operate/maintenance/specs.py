"""The stored form of each table of a lake, as its definition has it: what a merge sorts by and keeps statistics of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ingest.event_logs import dead_letter_spec, log_spec
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.jobs.model.definitions import Source
from strandline.jobs.run.schedule import maintained
from strandline.state_store.delta.schema import arrow_schema
from strandline.state_store.tablespec import TableSpec

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.state_store.delta.snapshot import Snapshot


def specs(catalog: Catalog) -> dict[str, TableSpec]:
    """{table: its stored form} of event logs, dead letters of sources, and all that is maintained.

    Raises:
        SqlError: a definition no longer fits its inputs.
    """
    found: dict[str, TableSpec] = {}
    for pipeline in catalog.pipelines():
        definitions = catalog.pipeline(pipeline)
        for source in (each for each in definitions if isinstance(each, Source)):
            found |= {spec.name: spec for spec in (log_spec(source), dead_letter_spec(source))}
        for item in (item for level in maintained(definitions, catalog) for item in level):
            found |= {stage.table: spec_of(stage) for stage in item.stages}
    return found


def kept_aside(table: str, snapshot: Snapshot) -> TableSpec:
    """The form of a table of rows kept aside: they are only ever added, and have no order."""
    names = arrow_schema(snapshot.metadata["schemaString"]).names
    return TableSpec(table, tuple((name, "") for name in names), "append")
