"""The entry point of the front end: `read_query` turns the tree of a query into a logical query.

    text ──parser──> tree ──read_query──> strandline.jobs.query.logical.query.Query ──planner──> stages

Each clause has a module of its own; `jobs.query.clauses.block` calls them in the order in which SQL evaluates them:

    WITH, FROM    from_clause          WHERE, IN, EXISTS   subqueries, correlation     SELECT   select_list
    JOIN          joins, within, …     GROUP BY            grouping                    OVER     over
    UNION, …      set_operations       WINDOW, EMIT        time_window                 keys     record_key
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python.declared import attach
from strandline.jobs.model.definitions import InsertQuery, Kind, View
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.stewardship import Stewardship
from strandline.jobs.model.view_options import Semantics
from strandline.jobs.query.clauses.block import read_block
from strandline.jobs.query.clauses.clause_checks import check_order
from strandline.jobs.query.clauses.from_clause import Context, check_reads, read_with
from strandline.jobs.query.clauses.quarantine import guarded_query
from strandline.jobs.query.clauses.set_operations import read_set_operation
from strandline.jobs.query.clauses.system_time import lookups_only
from strandline.jobs.query.desugar.filtering_joins import without_filtering_joins
from strandline.jobs.query.desugar.first_rows import first_rows, has_first_rows
from strandline.jobs.query.desugar.joins_in_brackets import without_brackets
from strandline.jobs.query.logical.query import Query
from strandline.jobs.query.pulled.ordering import set_order
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.from_text import parse_query

__all__ = ("query_of", "read_query", "read_tree")


def read_query(
    tree: exp.Expr,
    catalog: Catalog,
    *,
    semantics: Semantics = "sql",
    kind: Kind | None = None,
    strict: bool = False,
) -> Query:
    """The logical query of a tree: names resolved, types known, conversions explicit.

    Args:
        kind: `stream` or `table`, as the statement says; None for a materialized view. For the two, ksqlDB's rules
            hold: names of columns in joins, keys that must be selected, WITHIN.
        strict: ask too what ksqlDB refuses of them and we could do, as of a statement that is given for the first time.

    Raises:
        UnknownName, TypeMismatch, InvalidQuery, NotSupported: with line and column where they are known.
    """
    frozen = kind == "stream" or semantics == "ksql"
    context = Context(catalog, semantics, kind, read_tree, frozen=frozen, strict=strict)
    return read_tree(attach(tree, catalog.functions), context)


def query_of(definition: View | InsertQuery, catalog: Catalog) -> Query:
    """The logical query of a definition, read again from its text, without the rows that its expectations keep out.

    Its inputs have the columns that they had when it was registered.

    Raises:
        SqlError: an input has changed so that the query no longer fits.
    """
    catalog = catalog.as_seen_by(definition)
    if isinstance(definition, InsertQuery):
        return read_query(parse_query(definition.query), catalog, kind="stream")
    kind = None if definition.materialized else definition.kind
    semantics = definition.maintenance.semantics
    query = read_query(parse_query(definition.query), catalog, semantics=semantics, kind=kind)
    return guarded_query(query, Stewardship.read(definition.options).quarantined)


def read_tree(tree: exp.Expr, context: Context) -> Query:
    """The logical query of a tree in its context. Raises as `read_query`."""
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
    line, place = position_of(tree)
    raise InvalidQuery("expected a SELECT", line=line, column=place)
