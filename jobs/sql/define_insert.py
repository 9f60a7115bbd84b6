"""INSERT INTO … SELECT: one more query that feeds a stream."""

from __future__ import annotations

from dataclasses import replace

from jobs.errors import InvalidQuery, NotSupported, TypeMismatch, UnknownName
from jobs.sql.catalog import Catalog
from jobs.sql.define_view import check_emit, fingerprint
from jobs.sql.model import InsertQuery, Source, View
from jobs.sql.query import Query, read_query
from jobs.sql.syntax import InsertSelect
from jobs.sql.types import SqlType, common_type


def insert_query_of(statement: InsertSelect, catalog: Catalog) -> InsertQuery:
    """The query that a statement adds to a stream; the one that is there when it is the same.

    It belongs to the pipeline of the stream, wherever it was given: a table has one writer.

    Raises:
        SqlError: with line and column of the fault, where they are known.
    """
    target = _target(statement, catalog)
    check_emit(statement)
    query = read_query(statement.query, catalog)
    if query.grouping is not None or query.input.kind == "keyed":
        raise InvalidQuery(
            f"only events can be inserted into the stream '{target.name}'; the rows of this query change",
            hint="read a stream, without aggregates",
        )
    _check_columns(target, query)
    made = InsertQuery(
        target=target.name,
        number=0,
        query=query.text,
        inputs=(query.input.name,),
        pipeline=target.pipeline,
        sql=statement.sql,
        fingerprint=fingerprint(query, catalog),
    )
    present = catalog.insert_queries(target.name)
    for each in present:
        if (each.query, each.fingerprint) == (made.query, made.fingerprint):
            return each
    _check_chain(target.name, query.input.name, catalog)
    return replace(made, number=max((each.number for each in present), default=0) + 1)


def _target(statement: InsertSelect, catalog: Catalog) -> Source:
    found = catalog.find(statement.target)
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream", statement.target, catalog.relations())
    if isinstance(found, View):
        raise NotSupported(
            f"'{found.name}' is made by a query: inserting more into it is not supported yet",
            hint=f"declare the stream with its columns: CREATE STREAM {found.name} (…)",
        )
    if found.kind == "table":
        raise InvalidQuery(f"'{found.name}' is a table: a query can insert into a stream only")
    return found


def _check_columns(target: Source, query: Query) -> None:
    """By position, name and type (which may widen)."""
    wanted = [(c.name, c.type) for c in target.columns]
    given = [(o.name, o.type) for o in query.outputs]
    fits = len(wanted) == len(given) and all(
        name == other and common_type(kind, mine) == kind
        for (name, kind), (other, mine) in zip(wanted, given, strict=True)
    )
    if not fits:
        raise TypeMismatch(
            f"the columns do not fit '{target.name}': selected {_listed(given)}, wanted {_listed(wanted)}",
            hint="select the target's columns in its order, each with its name: expression AS name",
        )


def _listed(columns: list[tuple[str, SqlType]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _check_chain(target: str, source: str, catalog: Catalog) -> None:
    """Streams that queries insert into are not read by queries that insert: so there are no circles."""
    below = _ancestors(source, catalog)
    if target in below:
        raise InvalidQuery(f"the query would read what it inserts into '{target}'")
    fed = [name for name in below if catalog.insert_queries(name)]
    feeds = [
        q.name
        for q in catalog.definitions()
        if isinstance(q, InsertQuery) and target in _ancestors(q.inputs[0], catalog)
    ]
    if fed or feeds:
        what = f"'{fed[0]}' is filled by INSERT INTO … SELECT itself" if fed else f"'{target}' is read by '{feeds[0]}'"
        raise NotSupported(
            f"chains of INSERT INTO … SELECT are not maintained yet: {what}",
            hint="let the query read what that one reads",
        )


def _ancestors(name: str, catalog: Catalog) -> tuple[str, ...]:
    """`name` and all that it is computed from, leaving out what is inserted by queries."""
    found = catalog.find(name)
    inputs = found.inputs if isinstance(found, View) else ()
    return (name, *(each for source in inputs for each in _ancestors(source, catalog)))
