"""The closure of a view: all tables that it is computed from, directly or through others, and the items that do so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.run.schedule import maintained

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.run.schedule import RefreshUnit


def levels(view: str, catalog: Catalog) -> list[list[RefreshUnit]]:
    """What maintains a view and all it reads, of whatever pipeline, in levels: a level reads earlier ones only.

    Raises:
        SqlError, RefreshFailed: a definition has no plan.
    """
    definitions = [each for pipeline in catalog.pipelines() for each in catalog.pipeline(pipeline)]
    planned = maintained(definitions, catalog)
    wanted = {view}
    for level in reversed(planned):
        wanted |= {name for item in level if item.target in wanted for name in item.inputs}
    # A recovery is rehearsed, not the rows: what is approved in the lake is what is approved in its copy.
    kept = [[replace(item, blocking=()) for item in level if item.target in wanted] for level in planned]
    return [level for level in kept if level]


def closure(view: str, catalog: Catalog) -> frozenset[str]:
    """The names of all tables that a view needs: its own and its stages', its inputs', what was kept aside of each.

    Raises: as `levels`.
    """
    items = [item for level in levels(view, catalog) for item in level]
    names = {view, *(name for item in items for name in (item.target, *item.inputs))}
    names |= {stage.table for item in items for stage in item.stages}
    sources = (each for each in catalog.definitions() if isinstance(each, Source) and each.name in names)
    names |= {name for source in sources for name in tables.own_tables(source)}
    return frozenset(names | {tables.dead_letters(name) for name in names})


def drillable(catalog: Catalog) -> list[str]:
    """The names of views and keyed sources: what is computed, and can be computed again."""
    found = (each for each in catalog.definitions() if (isinstance(each, View) and not each.partial) or _keyed(each))
    return [each.name for each in found]


def _keyed(definition: object) -> bool:
    return isinstance(definition, Source) and definition.kind == "table"
