"""CREATE VIEW without MATERIALIZED: a name for a query, checked as whatever reads it will read it.

As in Materialize: nothing is stored; one that something reads is neither dropped nor replaced; `*` stands for the
columns that there are when the view is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.catalog.plain_views import expanded_query, names_in
from strandline.jobs.model.definitions import Column, PlainView
from strandline.jobs.model.errors import InvalidQuery, OptionRefused, SqlError
from strandline.jobs.query.clauses.read import read_pull, read_query
from strandline.jobs.query.logical import outputs_of
from strandline.jobs.session.define.allowed_options import error
from strandline.jobs.session.define.source import check_name
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import identifier

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.sql.syntax import CreateView


def plain_view_of(statement: CreateView, catalog: Catalog, pipeline: str) -> PlainView:
    """The plain view that a statement declares.

    Raises:
        InvalidQuery: the name cannot be one, it reads itself, or it says EMIT.
        OptionRefused: it has options, which say how rows are kept.
        SqlError: its query can be read neither by a view nor by a pull query.
    """
    check_name(statement.name)
    if statement.options:
        option = statement.options[0]
        what = f"{option.name} is for views whose rows are kept"
        raise error(OptionRefused, option, what, f"CREATE MATERIALIZED VIEW {statement.name} …")
    if statement.emit is not None:
        raise InvalidQuery("a plain view has no EMIT: what reads it says when", hint="leave EMIT out")
    if statement.name in names_in(statement.query):
        raise InvalidQuery(f"'{statement.name}' reads itself")
    columns = tuple(Column(name, sql_type) for name, sql_type in _columns(statement.query, catalog))
    query = statement.query
    if any(each.is_star for select in query.find_all(exp.Select) for each in select.expressions):
        query = _naming(columns, query, statement.name)
    return PlainView(statement.name, columns, sql_of(query), names_in(query), pipeline, statement.sql)


def _columns(query: exp.Query, catalog: Catalog) -> tuple[tuple[str, SqlType], ...]:
    """The columns of a query that a view can maintain or, where none can, that a pull query can answer."""
    whole = expanded_query(query, catalog.plain)
    try:
        return tuple(outputs_of(read_query(whole, catalog)))
    except SqlError as refused:
        try:
            return tuple(outputs_of(read_pull(whole, catalog).query))
        except SqlError:
            raise refused from None


def _naming(columns: tuple[Column, ...], query: exp.Query, name: str) -> exp.Query:
    """A query of these columns alone: one that the relation gets later is not among those of `*`."""
    names = [exp.column(identifier(column.name)) for column in columns]
    alias = exp.TableAlias(this=identifier(name))
    return exp.Select(expressions=names).from_(exp.Subquery(this=query.copy(), alias=alias))
