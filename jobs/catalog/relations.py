"""Definitions as relations: the tables of the lake as a query sees them."""

from __future__ import annotations

from dataclasses import replace

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.model.relation import (
    BAG,
    COPY,
    DEAD_LETTER_COLUMNS,
    FAILED_ROW_COLUMNS,
    META_COLUMNS,
    PLACE,
    TOMBSTONE,
    Relation,
)


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
