"""Definitions as relations: the tables of the lake as a query sees them."""

from __future__ import annotations

from jobs.errors import UnknownName
from jobs.ivm.stage import Relation
from jobs.sql import types as t
from jobs.sql.catalog import Catalog
from jobs.sql.model import META_COLUMNS, InsertQuery, Source, View
from state_store.layout import event_log_of

TOMBSTONE = "_tombstone"


def relation(name: str, catalog: Catalog, *, line: int | None = None, column: int | None = None) -> Relation:
    """The stream, table or view `name`.

    An append-only relation has the meta columns after its visible ones. The key of a keyed one is empty when not all
    of its key columns are visible.

    Raises:
        UnknownName: there is none; nearest names proposed, at line and column.
    """
    found = catalog.find(name)
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream, table or view", name, catalog.relations(), line=line, column=column)
    return relation_of(found)


def relation_of(definition: Source | View) -> Relation:
    """What `definition` looks like to a query."""
    columns = tuple((c.name, c.type) for c in definition.columns)
    if definition.kind == "stream":
        return Relation(definition.name, (*columns, *META_COLUMNS), "append")
    return Relation(definition.name, columns, "keyed", definition.key)


def key_of(name: str, catalog: Catalog) -> tuple[str, ...]:
    """The visible key columns of `name`: they identify a row of a table, and come from the record's key in a stream."""
    found = catalog.get(name)
    return () if isinstance(found, InsertQuery) else found.key


def event_log(source: Source) -> Relation:
    """The event log below a keyed source: its columns, the meta columns, and whether the event was a tombstone."""
    columns = tuple((c.name, c.type) for c in source.columns)
    return Relation(event_log_of(source.name), (*columns, *META_COLUMNS, (TOMBSTONE, t.BOOLEAN)), "append")
