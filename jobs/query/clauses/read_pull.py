"""The entry point for pull queries: the same clauses as in views, and what only a query that is asked once may have.

ORDER BY of anything, OFFSET        ordering            names that occur twice    select_list
subqueries that stand anywhere      nested_queries      tables beside relations   from_clause
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation_of
from strandline.jobs.functions.python.declared import attach
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.relation import Relation
from strandline.jobs.query.clauses.block import read_in_order
from strandline.jobs.query.clauses.from_clause import Context, read_with
from strandline.jobs.query.clauses.read import read_tree
from strandline.jobs.query.desugar.filtering_joins import without_filtering_joins
from strandline.jobs.query.desugar.joins_in_brackets import without_brackets
from strandline.jobs.query.logical.keys import outputs_of
from strandline.jobs.query.logical.pull import NestedFound, OrderItem, PullQuery
from strandline.jobs.query.logical.query import Query
from strandline.jobs.query.pulled.clock import with_clock
from strandline.jobs.query.pulled.column_names import Unnamed
from strandline.jobs.query.pulled.ordering import order_items, set_order, shown_item
from strandline.jobs.sql.dialect import position_of, sql_of

_NOTHING: Final[Mapping[str, Relation]] = {}


def read_pull(
    tree: exp.Query,
    catalog: Catalog,
    unnamed: Unnamed = "postgres",
    moment: dt.datetime | None = None,
    beside: Mapping[str, Relation] = _NOTHING,
) -> PullQuery:
    """The logical query of a pull query. The tree stays as it is.

    Args:
        unnamed: whose names the columns get that nobody named.
        moment: what the clock shows, in UTC; None where the query may not ask.
        beside: relations that are not in the catalog, by name.

    Raises:
        SqlError: with line and column where they are known.
    """
    tree = attach(tree.copy(), catalog.functions)
    if moment is not None:
        tree = with_clock(tree, _columns_read(tree, catalog, beside), moment, unnamed)
    _check_asked_once(tree)
    nested = NestedFound()
    context = Context(catalog, "sql", None, read_tree, nested=nested, unnamed=unnamed, beside=beside)
    while isinstance(tree, exp.Subquery) and not tree.alias and isinstance(tree.this, exp.Query):
        context = read_with(tree, context)
        tree = tree.this
    if _is_first_of_each(tree):
        # Here ORDER BY says which rows there are, and OFFSET counts those.
        query = read_tree(tree, context)
        return PullQuery(query, len(outputs_of(query)), _order_shown(tree, query), 0, nested.queries)
    offset, items = _taken_offset(tree), order_items(tree)
    if not isinstance(tree, exp.Select):
        query = read_tree(tree, context)
        return PullQuery(query, len(outputs_of(query)), set_order(tree, query), offset, nested.queries)
    tree.set("order", None)
    flat = without_brackets(without_filtering_joins(tree))
    block, shown, order = read_in_order(flat, read_with(tree, context), items)
    return PullQuery(block, shown, order, offset, nested.queries)


def _columns_read(tree: exp.Query, catalog: Catalog, beside: Mapping[str, Relation]) -> set[str]:
    """The columns of all relations that a query names."""
    named = {table.name for table in tree.find_all(exp.Table)}
    found = [relation_of(each) for each in map(catalog.find, named) if isinstance(each, Source | View)]
    found += [relation for name, relation in beside.items() if name in named]
    return {name for each in found for name, _ in each.columns}


def _check_asked_once(tree: exp.Query) -> None:
    """Check that no part of a query is for what goes on: EMIT, and the keys of a stream's records."""
    for select in tree.find_all(exp.Select):
        line, place = position_of(select)
        if select.args.get("emit") is not None and select.args["emit"].name != "FINAL":
            raise NotSupported(
                "EMIT stands at the end of a query over one stream or table, not inside another",
                line=line,
                column=place,
            )
        if select.args.get("partition_by") is not None:
            raise NotSupported(
                "PARTITION BY is for views: it gives the records of a stream their key", line=line, column=place
            )


def _is_first_of_each(tree: exp.Expr) -> bool:
    """True for DISTINCT ON."""
    distinct = tree.args.get("distinct")
    return isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None


def _taken_offset(tree: exp.Query) -> int:
    """The number of OFFSET, which is taken away from the tree.

    Raises:
        InvalidQuery: it is no number.
    """
    clause = tree.args.get("offset")
    if clause is None:
        return 0
    number = clause.expression
    if not isinstance(number, exp.Literal) or not number.is_int:
        line, place = position_of(clause)
        raise InvalidQuery(f"OFFSET takes a number, not {sql_of(number)}", line=line, column=place)
    tree.set("offset", None)
    return int(number.name)


def _order_shown(tree: exp.Query, query: Query) -> tuple[OrderItem, ...]:
    """The items of DISTINCT ON's ORDER BY up to the first that is no column of the answer."""
    names = [name for name, _ in outputs_of(query)]
    found: list[OrderItem] = []
    for item in order_items(tree):
        shown = shown_item(item, names)
        if shown is None:
            break
        found.append(shown)
    return tuple(found)
