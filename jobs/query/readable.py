"""What a query can read: the relations of the catalog, and the tables that come with a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.errors import NotSupported, UnknownName
from jobs.ivm.stage import Relation
from jobs.sql.dialect import position_of
from jobs.sql.model import DEAD_LETTER_COLUMNS, InsertQuery, Source
from jobs.sql.relations import event_log, relation_of
from state_store.layout import dead_letters_of, event_log_of

if TYPE_CHECKING:
    from sqlglot import exp

    from jobs.sql.catalog import Catalog


def readable(table: exp.Table, catalog: Catalog) -> Relation:
    """The relation that a name in FROM stands for.

    Raises:
        UnknownName: there is none; nearest names proposed.
        NotSupported: it is no name but a function or a path, or its alias renames columns.
    """
    line, column = position_of(table)
    if not table.name or table.db or table.catalog:
        raise NotSupported("FROM takes the name of a stream, table or view", line=line, column=column)
    if table.args.get("alias") is not None and table.args["alias"].columns:
        raise NotSupported("an alias with a list of columns is not supported yet", line=line, column=column)
    found = _known(catalog).get(table.name)
    if found is None:
        raise UnknownName.among("stream, table or view", table.name, _known(catalog), line=line, column=column)
    return found


def _known(catalog: Catalog) -> dict[str, Relation]:
    relations: dict[str, Relation] = {}
    for definition in catalog.definitions():
        if isinstance(definition, InsertQuery):
            continue
        relations[definition.name] = relation_of(definition)
        if isinstance(definition, Source):
            # All of its columns are meta columns: `*` shows them, so it is described like a table without a key.
            letters = dead_letters_of(definition.name)
            relations[letters] = Relation(letters, DEAD_LETTER_COLUMNS, "keyed")
            if definition.kind == "table":
                relations[event_log_of(definition.name)] = event_log(definition)
    return relations
