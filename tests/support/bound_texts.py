"""Every text of every definition of some statements, and of the pipelines that come with the project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import Dialect
from strandline.jobs.ivm.binding import BoundText, changes_of, forms_of, other_texts, stages_of
from strandline.jobs.session.define.analyze import define
from strandline.jobs.sql.statements import CreateSource, CreateView, InsertSelect, parse
from tests.support.memory_catalog import MemoryCatalog

PIPELINES = sorted((Path(__file__).parents[2] / "jobs" / "pipelines").glob("*.sql"))


def pipeline(path: Path) -> Catalog:
    """The definitions of a pipeline."""
    catalog = MemoryCatalog()
    for statement in parse(path.read_text()):
        if isinstance(statement, CreateSource | CreateView | InsertSelect):
            catalog.add(define(statement, catalog, path.stem))
    return catalog


def all_texts(catalog: Catalog, dialect: Dialect) -> Iterator[BoundText]:
    """The texts of all forms of all stages."""
    for definition in catalog.definitions():
        for stage in stages_of(definition, catalog):
            for form in forms_of(definition, stage):
                yield changes_of(form, dialect)
                yield from other_texts(form, dialect)
