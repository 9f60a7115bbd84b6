"""The entry points of the front end: `read_query` and `read_pull` turn the tree of a query into a logical query.

    text ──parser──> tree ──read_query──> strandline.jobs.query.logical.Query ──planner──> stages

Each clause has a module of its own; `jobs.query.clauses.block` calls them in the order in which SQL evaluates them:

    FROM          from_clause          WHERE, IN, EXISTS   subqueries, correlation     SELECT   select_list
    JOIN          joins, time_joins    GROUP BY, WINDOW    grouping                    OVER     over
    UNION, …      set_operations       aggregate functions aggregate_calls             keys     record_key
    WITH          with_clause
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation_of
from strandline.jobs.functions.python import attach
from strandline.jobs.model.definitions import InsertQuery, Kind, Ownership, Semantics, Source, View
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clauses.block import check_order, read_block, read_in_order
from strandline.jobs.query.clauses.from_clause import Context, check_reads
from strandline.jobs.query.clauses.quarantine import guarded_query
from strandline.jobs.query.clauses.query_expression import read_set_operation, read_with
from strandline.jobs.query.clauses.time_joins import lookups_only
from strandline.jobs.query.clock import asks, with_moment, with_ticks
from strandline.jobs.query.desugar import (
    first_rows,
    has_first_rows,
    takes_ties,
    without_brackets,
    without_filtering_joins,
)
from strandline.jobs.query.logical import NestedFound, OrderItem, PullQuery, Query, outputs_of
from strandline.jobs.query.pulled import Unnamed, order_items, set_order, shown_item
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.from_text import parse_query
from strandline.jobs.sql.trees import constant_number

__all__ = ("query_of", "read_query", "read_tree")


def read_query(
    tree: exp.Expr,
    catalog: Catalog,
    *,
    semantics: Semantics = "sql",
    kind: Kind | None = None,
    strict: bool = False,
    prefixed: bool = False,
) -> Query:
    """Read the tree of a view's query: resolve names, infer types, make conversions explicit.

    Args:
        kind: `stream` or `table`, as the statement says; None for a materialized view. For the two, ksqlDB's rules
            hold: names of columns in joins, keys that must be selected, WITHIN.
        prefixed: `*` over joins puts the input's name before each column's; in ksqlDB's statements it always does.
        strict: ask too what ksqlDB refuses of them and we could do, as of a statement that is given for the first time.

    Raises:
        UnknownName, TypeMismatch, InvalidQuery, NotSupported: with line and column where they are known.
    """
    frozen = kind == "stream" or semantics == "ksql"
    prefixed = prefixed or kind is not None
    context = Context(catalog, semantics, kind, read_tree, frozen=frozen, strict=strict, prefixed=prefixed)
    tree = attach(tree, catalog.functions)
    if asks(tree):
        tree = with_ticks(tree.copy(), _columns_read(tree, catalog, {}), catalog, rows_change=kind is None)
    return read_tree(tree, context)


def query_of(definition: View | InsertQuery, catalog: Catalog) -> Query:
    """Read the query of a definition again from its text, without the rows that its expectations keep out.

    Its inputs have the columns that they had when it was registered.

    Raises:
        SqlError: an input has changed so that the query no longer fits.
    """
    catalog = catalog.as_seen_by(definition)
    if isinstance(definition, InsertQuery):
        return read_query(parse_query(definition.query), catalog, kind="stream")
    kind = None if definition.materialized else definition.kind
    semantics = definition.maintenance.semantics
    prefixed = not definition.plain_stars
    query = read_query(parse_query(definition.query), catalog, semantics=semantics, kind=kind, prefixed=prefixed)
    return guarded_query(query, Ownership.read(definition.options).quarantined)


def read_tree(tree: exp.Expr, context: Context) -> Query:
    """Read a tree in its context. Raises as `read_query`."""
    while isinstance(tree, exp.Subquery) and not tree.alias:
        context = read_with(tree, context)
        tree = tree.this
    context = read_with(tree, context)
    if isinstance(tree, exp.Query) and context.kind is None and has_first_rows(tree):
        tree = first_rows(tree)
    if isinstance(tree, exp.Select):
        flat = without_brackets(without_filtering_joins(tree))
        return lookups_only(flat, read_block(flat, context), context)
    if isinstance(tree, exp.SetOperation):
        if context.kind is not None:
            check_order(tree)
        query = read_set_operation(tree, context)
        check_reads([query], context)
        if not context.pulls:
            set_order(tree, query)
        return query
    raise InvalidQuery("expected a SELECT").placed(*position_of(tree))


# Pull queries: the same clauses as in views, and what only a query that is asked once may have.
#
# ORDER BY of anything, OFFSET, subqueries that stand anywhere      jobs.query.pulled
# names that occur twice      select_list                           tables beside relations      from_clause

_NOTHING: Final[Mapping[str, Relation]] = {}


def read_pull(
    tree: exp.Query,
    catalog: Catalog,
    unnamed: Unnamed = "postgres",
    moment: dt.datetime | None = None,
    beside: Mapping[str, Relation] = _NOTHING,
) -> PullQuery:
    """Read the tree of a pull query, which stays as it is.

    Args:
        unnamed: whose names the columns get that nobody named.
        moment: what the clock shows, in UTC; None where the query may not ask.
        beside: relations that are not in the catalog, by name.

    Raises:
        SqlError: with line and column where they are known.
    """
    tree = attach(tree.copy(), catalog.functions)
    if moment is not None:
        tree = with_moment(tree, _columns_read(tree, catalog, beside), moment, unnamed)
    _check_asked_once(tree)
    nested = NestedFound()
    context = Context(catalog, "sql", None, read_tree, nested=nested, unnamed=unnamed, beside=beside)
    while isinstance(tree, exp.Subquery) and not tree.alias and isinstance(tree.this, exp.Query):
        context = read_with(tree, context)
        tree = tree.this
    if _is_first_of_each(tree) or takes_ties(tree):
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


def _columns_read(tree: exp.Expr, catalog: Catalog, beside: Mapping[str, Relation]) -> set[str]:
    """The columns of all relations that a query names."""
    named = {table.name for table in tree.find_all(exp.Table)}
    found = [relation_of(each) for each in map(catalog.find, named) if isinstance(each, Source | View)]
    found += [relation for name, relation in beside.items() if name in named]
    return {name for each in found for name, _ in each.columns}


def _check_asked_once(tree: exp.Query) -> None:
    """Refuse EMIT and PARTITION BY inside a pull query: both are for queries that go on."""
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
    number = constant_number(clause.expression)
    if number is None:
        raise InvalidQuery(f"OFFSET takes a number, not {sql_of(clause.expression)}").placed(*position_of(clause))
    tree.set("offset", None)
    return number


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
