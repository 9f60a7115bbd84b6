"""The relations that a query can read: those of the catalog, and the tables that come with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from strandline.jobs.catalog.relations import companion, visible_relation
from strandline.jobs.model.definitions import InsertQuery, View
from strandline.jobs.model.errors import NotSupported, UnknownName
from strandline.jobs.query.clauses.from_functions import is_unnest, window_function
from strandline.jobs.sql.dialect import quote
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.relation import Relation


def readable_named(name: str, catalog: Catalog) -> Relation:
    """The relation of that name, as a query sees it.

    Raises:
        UnknownName: there is none; the nearest names are proposed.
        CorruptState: the file of its definition is broken.
    """
    found = catalog.find(name)
    relation = companion(name, catalog) if found is None else None
    if relation is not None:
        return relation
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream, table or view", name, catalog.relations())
    return visible_relation(found)


CHANGES: Final = "table_changes"
"""The changes between two versions of a table, in FROM: Delta's name for it."""
_CALLED_SO: Final = (CHANGES, "changes")


def changes_call(table: exp.Table) -> exp.Anonymous | None:
    """The call of `table_changes('t', 3, 7)`, or `CHANGES(t, 3, 7)`, that stands in FROM; None for another input."""
    call = table.this
    return call if isinstance(call, exp.Anonymous) and call.name.lower() in _CALLED_SO else None


def names_read(query: exp.Query, catalog: Catalog) -> list[str]:
    """The names in FROM, for whoever checks what may be read; that of a WITH alone is none of them.

    One of a WITH that a relation has as well counts: which of the two it means differs from place to place
    (`WITH a AS (SELECT … FROM a)` reads the relation). TUMBLE and its like, and `table_changes`, read the table that is
    their first argument.

    Raises:
        InvalidQuery: a window function in FROM has other arguments.
    """
    named: set[str] = set()
    for table in query.find_all(exp.Table):
        call = changes_call(table)
        if call is not None:
            named |= {catalog.name_map.stored(each.name) for each in call.expressions[:1]}
            continue
        windowed = window_function(table)
        found = windowed.find_all(exp.Table) if windowed is not None else () if is_unnest(table) else (table,)
        named |= {each.name for each in found}
    subqueries = {each.alias for each in query.find_all(exp.CTE)}
    return sorted(name for name in named if name not in subqueries or _is_relation(name, catalog))


def check_stored(names: Iterable[str], catalog: Catalog) -> None:
    """Check that these relations have tables.

    Raises:
        NotSupported: one is a partial view.
    """
    for name in names:
        found = catalog.find(name)
        if isinstance(found, View) and found.partial:
            raise NotSupported(
                sentence("'{}' is a partial view: nothing is stored of it, so it has no changes to follow", Name(name)),
                hint=sentence(
                    "SELECT … FROM {} WHERE … by its key; or create it without STATE = 'partial'", Name(name, quote)
                ),
            )


def _is_relation(name: str, catalog: Catalog) -> bool:
    found = catalog.find(name)
    return companion(name, catalog) is not None if found is None else not isinstance(found, InsertQuery)
