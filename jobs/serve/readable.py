"""The relations that a query can read: those of the catalog, and the tables that come with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from jobs.catalog.relations import event_log, relation_of
from jobs.model import tables
from jobs.model.columns import DEAD_LETTER_COLUMNS, FAILED_ROW_COLUMNS
from jobs.model.definitions import InsertQuery, Source, View
from jobs.model.errors import NotSupported, UnknownName
from jobs.model.relation import Relation
from jobs.sql.dialect import position_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.catalog.catalog import Catalog


def readable(table: exp.Table, catalog: Catalog) -> Relation:
    """The relation that a name in FROM stands for.

    Raises:
        UnknownName: there is none; the nearest names are proposed.
        CorruptState: the file of its definition is broken.
        NotSupported: it is a function or a path and not a name, or its alias renames columns.
    """
    line, column = position_of(table)
    if not table.name or table.db or table.catalog:
        raise NotSupported("FROM takes the name of a stream, table or view", line=line, column=column)
    if table.args.get("alias") is not None and table.args["alias"].columns:
        raise NotSupported("an alias with a list of columns is not supported yet", line=line, column=column)
    return readable_named(table.name, catalog, line=line, column=column)


def readable_named(name: str, catalog: Catalog, *, line: int | None = None, column: int | None = None) -> Relation:
    """The relation of that name, as a query sees it.

    Raises:
        UnknownName: there is none; the nearest names are proposed.
        CorruptState: the file of its definition is broken.
    """
    catalog.find(tables.definition_of(name))  # one whose file is broken is not unknown
    known = _known(catalog)
    if name not in known:
        raise UnknownName.among("stream, table or view", name, known, line=line, column=column)
    return known[name]


def names_read(query: exp.Query, catalog: Catalog) -> list[str]:
    """The names in FROM, for whoever checks what may be read; that of a WITH alone is none of them.

    One of a WITH that a relation has as well counts: which of the two it means differs from place to place
    (`WITH a AS (SELECT … FROM a)` reads the relation).
    """
    named = {table.name for table in query.find_all(exp.Table)}
    subqueries = {each.alias for each in query.find_all(exp.CTE)}
    return sorted(named - (subqueries - _known(catalog).keys()))


def check_stored(names: Iterable[str], catalog: Catalog) -> None:
    """Check that these relations have tables.

    Raises:
        NotSupported: one is a partial view.
    """
    for name in names:
        found = catalog.find(name)
        if isinstance(found, View) and found.partial:
            raise NotSupported(
                f"'{name}' is a partial view: nothing is stored of it, so it has no changes to follow",
                hint=f"SELECT … FROM {name} WHERE … by its key; or create it without STATE = 'partial'",
            )


def visible_relation(definition: Source | View) -> Relation:
    """The relation of a definition without hidden columns, and without its key unless all of it is visible."""
    relation = relation_of(definition)
    shown = {name for name, _ in relation.columns}
    return replace(relation, key=relation.key if shown.issuperset(relation.key) else (), hidden=())


def _known(catalog: Catalog) -> dict[str, Relation]:
    relations: dict[str, Relation] = {}
    for definition in catalog.definitions():
        if isinstance(definition, InsertQuery):
            continue
        relations[definition.name] = visible_relation(definition)
        # A source's dead letters have meta columns only; described as a keyed table, so that `*` shows them.
        letters = tables.dead_letters(definition.name)
        columns = DEAD_LETTER_COLUMNS if isinstance(definition, Source) else FAILED_ROW_COLUMNS
        relations[letters] = Relation(letters, columns, "keyed")
        if isinstance(definition, Source) and definition.kind == "table":
            relations[tables.event_log(definition)] = event_log(definition)
    return relations
