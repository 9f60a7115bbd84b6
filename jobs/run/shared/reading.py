"""The readers of shared tables: which a definition reads, and which nobody reads once it goes or gets another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.catalog import replacements
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import SqlError
from strandline.state_store.delta.heads import forget
from strandline.state_store.files import remove_folder
from strandline.state_store.layout import name_of
from strandline.state_store.paths import folders_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition
    from strandline.state_store.layout import Lake


def shared_tables(definition: Definition, catalog: Catalog) -> frozenset[str]:
    """The tables of a definition's stages that other views may read as well."""
    if not isinstance(definition, View) or definition.maintenance.state != "shared":
        return frozenset()
    return frozenset(stage.table for stage in plan(definition, catalog).stages if tables.is_shared(stage.table))


def unread(shared: Iterable[str], name: str, stays: Definition | None, catalog: Catalog, lake: Lake) -> frozenset[str]:
    """Those of some shared tables of a pipeline that nobody reads there, nor a definition that is to take a place.

    None of them when some plan cannot be made, as after a change of an input, or is not known: keeping a table is safe.

    Args:
        name: of the definition that they were for.
        stays: the definition of this name from now on; None: it goes.
    """
    left = frozenset(shared)
    if not left or catalog.broken:
        return frozenset()
    try:
        kept = [shared_tables(stays, catalog)] if stays is not None else []
        return left.difference(*kept, *_read_by_others(catalog.get(name), catalog, lake))
    except SqlError:
        return frozenset()


def remove_shared(names: Iterable[str], lake: Lake) -> None:
    """Remove shared tables, with their dead letters. The lock of their pipeline must be held."""
    there = [name_of(path.name) for path in folders_in(lake.tables)]
    for name in names:
        for table in tables.owned_by(name, there):
            forget(lake, table)
            remove_folder(lake.table(table))


def _read_by_others(definition: Definition, catalog: Catalog, lake: Lake) -> Iterator[frozenset[str]]:
    for other in catalog.pipeline(definition.pipeline):
        if other.name != definition.name:
            yield shared_tables(other, catalog)
    for intent in replacements.begun_in(definition.pipeline, lake):
        if intent.name != definition.name and isinstance(intent.definition, View):
            yield shared_tables(intent.definition, catalog.supposing(intent.definition))
