"""Definitions for tests: a catalog from statements."""

from __future__ import annotations

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Definition
from strandline.jobs.session.define.analyze import define
from strandline.jobs.sql.statements import CreateSource, CreateView, InsertSelect, parse
from strandline.state_store.layout import LakeLayout


def run(text: str, catalog: Catalog, pipeline: str = "tests") -> Definition:
    """Define all that `text` says; the last definition."""
    last: Definition | None = None
    for statement in parse(text):
        assert isinstance(statement, CreateSource | CreateView | InsertSelect)
        last = define(statement, catalog, pipeline)
        if catalog.find(last.name) is None:
            catalog.add(last)
    assert last is not None
    return last


def catalog_of(lake: LakeLayout, text: str, pipeline: str = "tests") -> Catalog:
    """A catalog that holds what `text` defines."""
    catalog = Catalog(lake)
    run(text, catalog, pipeline)
    return catalog
