"""Plain views in what reads them: a name in FROM becomes the query that it stands for.

    CREATE VIEW large AS SELECT id, n FROM orders WHERE n > 10
    SELECT COUNT(*) FROM large l    ->    SELECT COUNT(*) FROM (SELECT id, n FROM orders WHERE n > 10) AS l

It is done before a statement is read, so nothing after that knows of plain views: what is maintained over one is
maintained over what it reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported, SqlError
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select, Statement
from strandline.jobs.sql.trees import identifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from strandline.jobs.catalog.definitions import Definitions
    from strandline.jobs.model.definitions import PlainView
    from strandline.jobs.model.types import SqlType


S = TypeVar("S", bound=Statement)


def expanded(statement: S, catalog: Definitions) -> S:
    """The statement with the queries of plain views in their places.

    Raises:
        NotSupported: a plain view stands where only what is stored can: in TUMBLE and its like, or FOR SYSTEM_TIME.
    """
    query: exp.Query | None = getattr(statement, "query", None)
    if query is None or not catalog.plain:
        return statement
    return replace(statement, query=expanded_query(query, catalog.plain))  # type: ignore[call-arg]


def expanded_query(query: exp.Query, plain: Mapping[str, PlainView]) -> exp.Query:
    """The query with those of plain views in their places; itself where it reads none. Raises as `expanded`."""
    if not any(name.name in plain for _, name in relations_in(query)):
        return query
    made = query.copy()
    for table, name in list(relations_in(made)):
        if name.name in plain:
            _put(plain[name.name], table, name, plain)
    return made


def names_in(query: exp.Query) -> tuple[str, ...]:
    """The relations that a query names, each once."""
    return tuple(dict.fromkeys(name.name for _, name in relations_in(query)))


def readers_of_plain(name: str, catalog: Definitions, types: Mapping[str, SqlType]) -> tuple[str, ...]:
    """What reads a plain view by its text: other plain views, views and queries into streams.

    Args:
        types: those that CREATE TYPE named. A text that says one which is gone is not read.
    """
    plain = [each.name for each in catalog.plain.values() if name in each.inputs]
    stored = [each.name for each in catalog.definitions() if name in _named_by(each.sql, types)]
    return (*plain, *stored)


def _named_by(sql: str, types: Mapping[str, SqlType]) -> set[str]:
    """The relations that the text of a definition names."""
    try:
        statements = parse(sql, types)
    except SqlError:
        return set()
    queries = (getattr(each, "query", None) for each in statements)
    return {name for query in queries if isinstance(query, exp.Query) for name in names_in(query)}


def _put(view: PlainView, table: exp.Table, name: exp.Identifier, plain: Mapping[str, PlainView]) -> None:
    """Put the query of a view in the place of its name."""
    others = [key for key, value in table.args.items() if value and key not in ("this", "alias", "joins", "laterals")]
    if table.this is not name or others:
        line, column = position_of(name)
        raise NotSupported(
            f"'{view.name}' is a plain view: no window of it, and no former version, can be read",
            line=line,
            column=column,
            hint="CREATE MATERIALIZED VIEW keeps its rows",
        )
    (statement,) = parse(view.query)
    assert isinstance(statement, Select), "it was written as one"
    query = expanded_query(statement.query, plain)
    for node in query.walk():
        node.meta.clear()  # its places are not those of the text that reads it
    alias = table.args.get("alias") or exp.TableAlias(this=identifier(view.name))
    subquery = exp.Subquery(this=query, alias=alias.copy())
    for each in ("joins", "laterals"):
        if table.args.get(each):
            subquery.set(each, [node.copy() for node in table.args[each]])
    table.replace(subquery)


_WINDOWED: Final = ("TUMBLE", "HOP", "SESSION")


def relations_in(query: exp.Expr) -> Iterator[tuple[exp.Table, exp.Identifier]]:
    """The places of a query that name relations: the table of FROM, and the name in it. Parts of WITH are left out.

    That of TUMBLE and its like is their first argument; UNNEST has none.
    """
    for table in query.find_all(exp.Table):
        name = table.this
        if isinstance(name, exp.Anonymous) and name.name in _WINDOWED and name.expressions:
            name = name.expressions[0].this
        if isinstance(name, exp.Identifier) and not table.args.get("db") and name.name not in parts_of_with(table):
            yield table, name


def parts_of_with(table: exp.Table) -> set[str]:
    """The parts of WITH that a table in FROM could name: of a query around it, and before the part that it is in."""
    found: set[str] = set()
    node: exp.Expr | None = table
    inside: exp.Expr | None = None
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            for each in with_.expressions:
                if each is inside:
                    break
                found.add(each.alias)
        node = node.parent
    return found
