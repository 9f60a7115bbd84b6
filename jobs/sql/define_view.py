"""CREATE … AS SELECT: whether the query makes a stream or a table, and the view."""

from __future__ import annotations

import hashlib

from jobs.errors import InvalidQuery, NotSupported
from jobs.sql.catalog import Catalog
from jobs.sql.define_source import check_name
from jobs.sql.model import Column, InsertQuery, Kind, View
from jobs.sql.options import view_options
from jobs.sql.query import Query, read_query
from jobs.sql.syntax import CreateView, InsertSelect


def view_of(statement: CreateView, catalog: Catalog, pipeline: str) -> View:
    """The view that a statement asks for.

    Raises:
        SqlError: with line and column of the fault, where they are known.
    """
    check_name(statement.name)
    options = view_options(statement.options)
    check_emit(statement)
    query = read_query(statement.query, catalog)
    kind = _kind(statement, query)
    key = _view_key(query)
    return View(
        name=statement.name,
        kind=kind,
        columns=tuple(Column(o.name, o.type, o.name in key) for o in query.outputs),
        query=query.text,
        inputs=(query.input.name,),
        pipeline=pipeline,
        sql=statement.sql,
        fingerprint=fingerprint(query, catalog),
        materialized=statement.materialized,
        options=options,
    )


def check_emit(statement: CreateView | InsertSelect) -> None:
    """Refuse EMIT FINAL (NotSupported)."""
    if statement.emit == "FINAL":
        raise NotSupported("EMIT FINAL is not maintained yet: it belongs to windows", hint="EMIT CHANGES")


def _kind(statement: CreateView, query: Query) -> Kind:
    """Whether the view is a stream or a table, and whether the statement may call it so."""
    keyed = query.grouping is not None or query.input.kind == "keyed"
    if statement.kind is None:
        return "table" if keyed else "stream"
    name, source = statement.name, query.input.name
    message = hint = None
    if statement.kind == "stream" and query.grouping is not None:
        message, hint = f"'{name}' aggregates: its rows change, so it is a table", f"CREATE TABLE {name} AS …"
    elif statement.kind == "stream" and keyed:
        message, hint = f"'{source}' is a table: its rows change, so '{name}' is a table", f"CREATE TABLE {name} AS …"
    elif statement.kind == "table" and not keyed:
        message = f"'{source}' is a stream, and the query neither groups nor aggregates: '{name}' is a stream"
        hint = f"CREATE STREAM {name} AS …, or add GROUP BY"
    elif statement.kind == "table" and query.grouping is not None and not query.explicit_group:
        message = "an aggregate needs GROUP BY"
        hint = f"for one row over all: CREATE MATERIALIZED VIEW {name} AS …"
    if message:
        raise InvalidQuery(message, hint=hint)
    return statement.kind


def _view_key(query: Query) -> tuple[str, ...]:
    if query.partition_by:
        wrong = None
        if query.grouping is not None or query.input.kind == "keyed":
            wrong = "PARTITION BY is for streams: the key of a table is what identifies its rows"
        elif len(query.key) < len(query.partition_by):
            wrong = "PARTITION BY makes the key, so each of its expressions must be selected"
        if wrong:
            raise InvalidQuery(wrong)
    if query.input.kind == "keyed" and query.grouping is None and not query.input.key:
        raise NotSupported(
            f"'{query.input.name}' shows no key: filtering it further is not maintained yet",
            hint=f"select in '{query.input.name}' all that it groups by",
        )
    if query.grouping is not None and query.grouping.having is not None and not query.grouping.keys:
        raise NotSupported("HAVING without GROUP BY is not maintained yet")
    return query.key


def fingerprint(query: Query, catalog: Catalog) -> str:
    """16 hex digits that change when the rows of the query do, other than by its input's rows."""
    source = catalog.get(query.input.name)
    assert not isinstance(source, InsertQuery)
    columns = ";".join(f"{c.name} {c.type} {c.key}" for c in source.columns)
    text = f"{query.text}\n{source.name} {source.kind}\n{columns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
