"""Queries for tests: read from a statement, and shown as text."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Semantics
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.query.logical import Block, From, Query
from strandline.jobs.session.define.view_options import view_options
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.statements import CreateView, parse_one

NESTING_SOURCES = """
CREATE STREAM s (id INT KEY, k VARCHAR, v INT);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);
CREATE TABLE u (id INT PRIMARY KEY, t_id INT, m INT);
"""
"""A stream and two tables whose columns have names in common, for queries inside queries."""


def read(text: str, catalog: Catalog) -> Query:
    """The query of a CREATE … AS SELECT, or of a SELECT as a materialized view has it."""
    statement = parse_one(text if text.startswith("CREATE") else f"CREATE MATERIALIZED VIEW v AS {text}")
    assert isinstance(statement, CreateView)
    options = view_options(statement.options)
    semantics: Semantics = "ksql" if options.get("SEMANTICS") == "ksql" else "sql"
    return read_query(statement.query, catalog, semantics=semantics, kind=statement.kind)


def block(text: str, catalog: Catalog) -> Block:
    """The same, of one SELECT."""
    found = read(text, catalog)
    assert isinstance(found, Block)
    return found


def shown(outputs: tuple[Output, ...]) -> list[str]:
    """`name = expression`, or the name alone where that is the expression."""
    texts = [(output.name, sql_of(output.expression)) for output in outputs]
    return [name if name == text else f"{name} = {text}" for name, text in texts]


def joins(query: Block) -> list[str]:
    """`kind relation alias ON condition`, and what else holds of each input."""
    return [_join(each) for each in query.inputs]


def sql(node: exp.Expression | None) -> str | None:
    """An expression as text."""
    return sql_of(node) if node is not None else None


def _join(each: From) -> str:
    source = each.source.name if isinstance(each.source, Relation) else "(query)"
    words = [each.join, source, each.alias] if source != each.alias else [each.join, source]
    words += ["ON", sql_of(each.on)] if each.on is not None else []
    return " ".join([*words, *(flag for flag in ("frozen", "as_of", "one_row") if getattr(each, flag))])
