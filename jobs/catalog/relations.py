"""Definitions as relations: the tables of the lake as a query sees them.

The tables that a view's rows, and the rows on which it fails, stand in: found by its commits, without its plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.model.tables import (
    BAG,
    COPY,
    DEAD_LETTER_COLUMNS,
    FAILED_ROW_COLUMNS,
    META_COLUMNS,
    PLACE,
    TOMBSTONE,
    Relation,
    dead_letters,
    is_shared,
    stage_number,
)
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout


def relation(name: str, catalog: Catalog, *, line: int | None = None, column: int | None = None) -> Relation:
    """The stream, table or view `name`.

    An append-only relation has the meta columns after its visible ones; a keyed one has hidden columns that can be
    read by name.

    Raises:
        UnknownName: there is none; nearest names proposed, at line and column.
    """
    found = catalog.find(name)
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream, table or view", name, catalog.relations(), line=line, column=column)
    return fed_relation(found, catalog)


def fed_relation(definition: Source | View, catalog: Catalog) -> Relation:
    """The relation of `definition`; without an identity when a query inserts several rows of one event into it."""
    made = relation_of(definition)
    identified = all(each.identified for each in catalog.insert_queries(definition.name))
    return made if identified else replace(made, identity=())


def relation_of(definition: Source | View) -> Relation:
    """The relation of `definition`: its name, columns, storage and key, as a query sees them."""
    columns = tuple((c.name, c.type) for c in definition.columns)
    if isinstance(definition, View):
        if definition.storage == "append":
            return Relation(definition.name, (*columns, *META_COLUMNS), "append", identity=definition.identity)
        hidden = tuple((c.name, c.type) for c in definition.hidden)
        return Relation(definition.name, columns, "keyed", definition.row_key, hidden)
    if definition.kind == "stream":
        return Relation(definition.name, (*columns, *META_COLUMNS), "append")
    if definition.bag:
        return Relation(definition.name, columns, "keyed", (COPY,), (*BAG, *PLACE))
    return Relation(definition.name, columns, "keyed", definition.key, PLACE)


def visible_relation(definition: Source | View) -> Relation:
    """The relation of a definition without hidden columns, and without its key unless all of it is visible."""
    relation = relation_of(definition)
    shown = {name for name, _ in relation.columns}
    return replace(relation, key=relation.key if shown.issuperset(relation.key) else (), hidden=())


def event_log(source: Source) -> Relation:
    """The event log below a keyed source: its columns, the meta columns, and whether the event was a tombstone.

    Its key is the source's: events with the same key are versions of one row.
    """
    columns = tuple((c.name, c.type) for c in source.columns)
    marks = ((TOMBSTONE, t.BOOLEAN), *(BAG[1:] if source.bag else ()))
    return Relation(tables.event_log(source), (*columns, *META_COLUMNS, *marks), "append", source.key)


def companion(name: str, catalog: Catalog) -> Relation | None:
    """The relation of a table that comes with a definition: its dead letters, or the event log of a keyed source.

    Dead letters have meta columns only, and are described as a keyed table, so that `*` shows them.

    Returns:
        None for any other name.

    Raises:
        CorruptState: the file of the definition is broken.
    """
    of = tables.definition_of(name)
    found = catalog.find(of) if of != name else None
    if found is None or isinstance(found, InsertQuery):
        return None
    if name == tables.dead_letters(of):
        columns = DEAD_LETTER_COLUMNS if isinstance(found, Source) else FAILED_ROW_COLUMNS
        return Relation(name, columns, "keyed")
    logged = isinstance(found, Source) and found.kind == "table" and name == tables.event_log(found)
    return event_log(found) if isinstance(found, Source) and logged else None


def stage_tables(lake: LakeLayout, view: str) -> tuple[str, ...]:
    """The tables that a view's rows stand in: its own, and those of its inner stages, shared or not.

    Raises:
        CorruptState, ForeignWrite: a table's log is broken.
    """
    found = [view]
    for table in found:
        head = reader.head(lake.table(table))
        read = (entry.rpartition("/")[2] for entry in (head.record.versions if head is not None else ()))
        inner = (name for name in read if is_shared(name) or stage_number(view, name) is not None)
        found += [name for name in inner if name not in found]
    return tuple(found)


def letters_of(lake: LakeLayout, stages: Iterable[str]) -> dict[str, Head]:
    """The heads of the tables with the rows on which an expression of a view fails, its own first: those of a part that
    is computed apart, as a subquery or what several views share, are kept aside beside that part.

    Args:
        stages: the view's `stage_tables`.

    Raises:
        CorruptState, ForeignWrite: a table's log is broken.
    """
    heads = {name: reader.head(lake.table(name)) for name in map(dead_letters, stages)}
    return {name: head for name, head in heads.items() if head is not None}
