"""Queries over the system catalog, from PostgreSQL's dialect to DuckDB's, over the tables of `parts`.

pg_catalog.pg_class c           pgc.pg_class AS c
pg_catalog.format_type(…)       pgf.format_type(…)
c.relname OPERATOR(…~) '^x$'    REGEXP_MATCHES(c.relname, '^x$')
'by_town'::regclass             pgf.regclass('by_town')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from jobs.server.pg_catalog.parts import FUNCTIONS, INFORMATION, TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from jobs.server.pg_catalog.parts import Part

_SCHEMAS: Final = {"pg_catalog": TABLES, "": TABLES, "information_schema": INFORMATION}
_ROW_MAKERS: Final = (exp.Unnest, exp.Explode, exp.GenerateSeries, exp.ExplodingGenerateSeries)
"""The functions that FROM may hold beside tables: they make rows of their arguments alone, and open no file."""
_CALL: Final = re.compile(r"([a-z_0-9]+)\s*(?:\(|$)")
_PATTERNS: Final = {"~": (False, ""), "~*": (False, "i"), "!~": (True, ""), "!~*": (True, "i")}
"""{operator: whether it negates, the options of the match}."""
_TEXTS: Final = frozenset(("name", "char", "regproc", "regprocedure", "regoper", "sql_identifier", "cstring", "xid"))
_NUMBERS: Final = frozenset(("oid", "cid"))
_SAME: Final = {"json_build_object": "json_object"}
"""{function: DuckDB's name of it} of those that take any number of arguments, so that no macro can stand for them."""
_OBJECTS: Final = {"regclass": ("regclass", "relation_name"), "regnamespace": ("", "schema_name")}
"""{type: the functions from a text to an oid, and back to a text}."""


@dataclass(frozen=True)
class CatalogQuery:
    """A query that reads nothing but the system catalog, or no table at all."""

    tree: exp.Query

    def bound(self, values: Sequence[str]) -> CatalogQuery:
        """The query with values, as SQL, in the place of `$1`, `$2`, …"""
        texts = dict(enumerate(values, 1))

        def put(node: exp.Expr) -> exp.Expr:
            number = parameter_number(node)
            return node if number not in texts else parse_one(texts[number], read="postgres")

        tree = self.tree.transform(put)
        assert isinstance(tree, exp.Query)
        return CatalogQuery(tree)

    def parameters(self) -> dict[int, str]:
        """{number: the type that a cast gives the parameter, as PostgreSQL writes it; empty without one}."""
        found: dict[int, str] = {}
        for node in self.tree.walk():
            number = parameter_number(node)
            if number:
                above = node.parent
                cast = above.to.sql("postgres").lower() if isinstance(above, exp.Cast) else ""
                found[number] = found.get(number) or cast
        return found

    def duckdb(self, functions: Collection[str]) -> str:
        """The query as DuckDB's text.

        Args:
            functions: names of those that the parts have, without a schema.
        """
        tree = _named(self.tree.copy())
        # From the leaves up: what is put in the place of a node holds the node's own children.
        for node in reversed(list(tree.walk())):
            made = _translated(node, functions)
            if made is not node:
                node.replace(made)
        return tree.sql("duckdb")

    def names(self, text: str) -> set[str]:
        """The names of parts in the text that `duckdb` made."""
        return set(re.findall(rf"\b(?:{TABLES}|{FUNCTIONS}|{INFORMATION})\.\w+", text))


def catalog_query(text: str, parts: Collection[Part], relations: Collection[str]) -> CatalogQuery | None:
    """The query of a text; None when it is for the language: it reads a relation, or PostgreSQL's grammar has no such.

    Args:
        relations: the names of the lake's own, which no table of the catalog hides.
    """
    try:
        tree = parse_one(text, read="postgres")
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Query) or tree.args.get("into") is not None:
        return None
    made = {part.name for part in parts}
    subqueries = {each.alias for each in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func):
            is_read = isinstance(table.this, _ROW_MAKERS)
        elif table.db:
            is_read = _is_made(table, made)
        else:
            is_read = table.name in subqueries or (_is_made(table, made) and table.name not in relations)
        if not is_read:
            return None
    return CatalogQuery(tree)


def _is_made(table: exp.Table, made: Collection[str]) -> bool:
    return table.db in _SCHEMAS and f"{_SCHEMAS[table.db]}.{table.name}" in made


def parameter_number(node: exp.Expr) -> int:
    """The number of a parameter, `$1`; 0 for every other node."""
    if isinstance(node, exp.Parameter) and node.name.isdecimal():
        return int(node.name)
    return 0


def _named(tree: exp.Query) -> exp.Query:
    """The query with PostgreSQL's names for the columns that have none: a function's, or `?column?`. In place."""
    for item in tree.selects:
        if not isinstance(item, exp.Alias | exp.Column | exp.Star):
            inner = item.expression if isinstance(item, exp.Dot) else item
            call = _CALL.match(inner.sql("postgres").lower()) if isinstance(inner, exp.Func) else None
            named = call is not None and not isinstance(inner, exp.Cast | exp.Binary)
            item.replace(exp.alias_(item.copy(), call[1] if call and named else "?column?", quoted=True))
    return tree


def _translated(node: exp.Expr, functions: Collection[str]) -> exp.Expr:
    match node:
        case exp.Table():
            return _table(node)
        case exp.Collate():
            return node.left
        case exp.Operator():
            return _operator(node)
        case exp.Cast():
            return _cast(node)
        case exp.Dot() if isinstance(node.expression, exp.Func) and node.this.sql().lower() in _SCHEMAS:
            return _function(node.expression, functions)
        case exp.Func() if not isinstance(node.parent, exp.Dot):
            return _function(node, functions)
        case exp.Column() if node.args.get("db") is not None:
            return exp.column(node.this, table=node.args.get("table"))
        case _:
            return node


def _table(table: exp.Table) -> exp.Expr:
    is_function = isinstance(table.this, exp.Func)
    if not table.db and (is_function or table.name in {each.alias for each in table.root().find_all(exp.CTE)}):
        return table
    found = table.copy()
    found.set("db", None if is_function else exp.to_identifier(_SCHEMAS[table.db]))
    found.set("catalog", None)
    return found if found.alias else exp.alias_(found, table.name, table=True)


def _operator(node: exp.Operator) -> exp.Expr:
    name = str(node.args["operator"]).rpartition(".")[2]
    if name not in _PATTERNS:
        return node
    negated, options = _PATTERNS[name]
    arguments = [_bare(node.this), _bare(node.expression)]
    found = exp.Anonymous(
        this="regexp_matches", expressions=[*arguments, *([exp.Literal.string(options)] * bool(options))]
    )
    return exp.Not(this=found) if negated else found


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Collate) else node


def _cast(cast: exp.Cast) -> exp.Expr:
    schema, _, name = cast.to.sql("postgres").lower().rpartition(".")
    name = name.strip('"')
    if name in _TEXTS:
        return exp.cast(cast.this, "text")
    if name in _NUMBERS:
        return exp.cast(cast.this, "bigint")
    if name in _OBJECTS:
        to_oid, to_text = _OBJECTS[name]
        return _call(to_oid if cast.this.is_string and to_oid else to_text, [cast.this])
    if name == "regtype":
        arguments = [cast.this] if cast.this.is_string else [cast.this, exp.null()]
        return _call("to_regtype" if cast.this.is_string else "format_type", arguments)
    return exp.cast(cast.this, name, dialect="postgres") if schema else cast


def _function(node: exp.Expr, functions: Collection[str]) -> exp.Expr:
    found = _CALL.match(node.sql("postgres").lower())
    name = node.name.lower() if isinstance(node, exp.Anonymous) else found[1] if found else ""
    if name in _SAME:
        return exp.Anonymous(this=_SAME[name], expressions=node.expressions)
    if name not in functions:
        return node
    if isinstance(node, exp.Anonymous):
        return _call(name, node.expressions)
    return _call(name, [each for each in node.iter_expressions() if isinstance(each, exp.Expression)])


def _call(name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    call = exp.Anonymous(this=name, expressions=list(arguments))
    return exp.Dot(this=exp.to_identifier(FUNCTIONS), expression=call)
