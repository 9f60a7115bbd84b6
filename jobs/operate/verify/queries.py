"""The queries that give a definition's rows, each as one SELECT for DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.catalog.relations import event_log
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.options import ViewOptions
from strandline.jobs.model.relation import EVENT_ORDER, TOMBSTONE, Relation
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import Query, SetOperation, relations_of
from strandline.jobs.query.recompute.select import recompute_sql

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import InsertQuery
    from strandline.jobs.query.recompute.text import Fate


@dataclass(frozen=True)
class Recomputed:
    """One SELECT that gives the visible columns of a table, or a part of its rows.

    Attributes:
        prefix: what stands before its entries in the table's vector.
        relations: those that the text reads, by their names.
        query: None for a keyed source, which has no query of its own.
    """

    prefix: str
    sql: str
    relations: tuple[Relation, ...]
    query: Query | None = None


def queries(definition: Source | View, catalog: Catalog) -> list[Recomputed]:
    """The queries of a view and of those that insert into it; of a keyed source, the newest event of each key.

    Raises:
        SqlError: a query no longer fits its inputs, or DuckDB has no function for it.
    """
    if isinstance(definition, Source) and definition.kind == "table":
        return [Recomputed("", _newest(definition), (event_log(definition),))]
    found = [_recomputed(definition, "", catalog)] if isinstance(definition, View) else []
    return found + [_recomputed(each, f"{each.name}/", catalog) for each in catalog.insert_queries(definition.name)]


def frozen(query: Query) -> bool:
    """True if an event of the query joins what a table was when the event came."""
    if isinstance(query, SetOperation):
        return any(frozen(branch) for branch in query.branches)
    return any(part.frozen or (not isinstance(part.source, Relation) and frozen(part.source)) for part in query.inputs)


def _recomputed(definition: View | InsertQuery, prefix: str, catalog: Catalog) -> Recomputed:
    query = query_of(definition, catalog)
    options = definition.maintenance if isinstance(definition, View) else ViewOptions()
    fate: Fate = "null" if options.errors == "null" else "left out"
    text = recompute_sql(query, "duckdb", fate=fate, semantics=options.semantics, shared=options.state == "shared")
    sql = f"SELECT * FROM ({text}) AS __rows"
    return Recomputed(prefix, sql, relations_of(query), query)


def _newest(source: Source) -> str:
    """Of each key the newest event, unless it says that the key is gone."""
    quoted = engine_of("duckdb").name
    names, keys = ([quoted(name) for name in each] for each in ([c.name for c in source.columns], source.key))
    order = ", ".join(f"{name} DESC" for name in EVENT_ORDER)
    newest = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {order}) = 1"
    events = f"SELECT * FROM {quoted(event_log(source).name)} QUALIFY {newest}"
    return f"SELECT {', '.join(names)} FROM ({events}) AS __newest WHERE NOT {TOMBSTONE}"
