"""Queries over the system catalog, from PostgreSQL's dialect to DuckDB's, over tables that are made for one query.

pg_catalog.pg_class c           pgc.pg_class AS c
pg_catalog.format_type(…)       pgf.format_type(…)
c.relname OPERATOR(…~) '^x$'    REGEXP_MATCHES(c.relname, '^x$')
'by_town'::regclass             pgf.regclass('by_town')

The tables, views and functions of the system catalog, as SQL; a query has those that it names, and what they need.

To make them all takes a few hundred milliseconds, to make what one query of psql's names a few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from sqlglot import exp, parse_one
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.parsers.postgres import PostgresParser

from strandline.jobs.server.postgres.parameters import array_elements
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

TABLES: Final = "pgc"
"""The schema that stands for pg_catalog: DuckDB has one of that name, which is about DuckDB."""
FUNCTIONS: Final = "pgf"
"""The schema of the functions: DuckDB's own of the same name have another answer."""
_INFORMATION: Final = "ischema"
"""The schema that stands for information_schema."""

_FILES: Final = ("pg_catalog.sql", "absent.sql", "functions.sql", "information_schema.sql")
_BEGINNING: Final = re.compile(rf"^(CREATE|INSERT)\s[A-Z ]*?\b((?:{TABLES}|{FUNCTIONS}|{_INFORMATION})\.?\w*)", re.M)
_NAMED: Final = re.compile(rf"\b(?:{TABLES}|{FUNCTIONS}|{_INFORMATION})\.\w+")


@dataclass(frozen=True)
class CatalogStatement:
    """One statement of the files.

    Attributes:
        name: of what it makes or fills, with its schema; of a schema, that alone.
        needs: the names of other parts in it.
    """

    name: str
    sql: str
    needs: frozenset[str]


@cache
def read_parts() -> tuple[CatalogStatement, ...]:
    """All parts, each after what it needs."""
    found: list[CatalogStatement] = []
    for file in _FILES:
        text = Path(__file__).with_name(file).read_text()
        begins = list(_BEGINNING.finditer(text))
        ends = [*(each.start() for each in begins[1:]), len(text)]
        for begin, end in zip(begins, ends, strict=True):
            sql = text[begin.start() : end]
            found.append(CatalogStatement(begin[2], sql, frozenset(_NAMED.findall(sql)) - {begin[2]}))
    return tuple(found)


def needed(parts: Collection[CatalogStatement], names: Collection[str]) -> list[CatalogStatement]:
    """The parts of these names with all that they need, in the order in which they are made."""
    by_name: dict[str, set[str]] = {}
    for part in parts:
        by_name.setdefault(part.name, set()).update(part.needs)
    todo, wanted = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += by_name.get(name, ())
    return [part for part in parts if "." not in part.name or part.name in wanted]


# Casts and types of PostgreSQL in queries over the system catalog, as DuckDB's.
#
# 'by_town'::regclass     pgf.regclass('by_town')
# c.relacl::text[]        CAST(c.relacl AS TEXT[])
# '{a,b}'::text[]         CAST(['a', 'b'] AS TEXT[])

_TEXTS: Final = frozenset(
    (
        *("name", "char", "cstring", "xid", "aclitem", "sql_identifier"),
        *("regprocedure", "regoper", "regoperator", "regconfig", "regdictionary"),
    )
)
_NUMBERS: Final = frozenset(("oid", "cid"))
_ARRAY_OF: Final = re.compile(r"::\s*(?:pg_catalog\.)?(oid|regclass|regtype|name)\s*\[\s*\]", re.I)
"""A cast to an array of a type that sqlglot does not know."""
_KEYWORD_NAME: Final = re.compile(r"\bAS\s+(SELECT|INSERT|UPDATE|DELETE)\b(?=\s*(?:,|\)|FROM\b))", re.I)
_OBJECTS: Final = {
    "regclass": ("regclass", "relation_name"),
    "regproc": ("regproc", "function_name"),
    "regnamespace": ("", "schema_name"),
    "regrole": ("", "pg_get_userbyid"),
}
"""{type: the functions from a text to an oid, and back to a text}."""


def _readable(text: str) -> str:
    """The text as sqlglot reads it: `_oid`, PostgreSQL's other name of `oid[]`, and quotes around `AS select`."""
    return _KEYWORD_NAME.sub(lambda found: f'AS "{found[1].lower()}"', _ARRAY_OF.sub(r"::_\1", text))


def _cast_around(parameter: exp.Expr) -> str:
    """The type that stands around a parameter, as PostgreSQL writes it; empty where none does."""
    above = parameter.parent
    if isinstance(above, exp.Cast):
        return above.to.sql("postgres").lower()
    within = above.parent if isinstance(above, exp.Paren) else above
    return "text[]" if isinstance(within, exp.Any | exp.All) else ""


def _translated_cast(cast: exp.Cast) -> exp.Expr:
    """A cast as DuckDB has it."""
    if cast.to.is_type(exp.DType.ARRAY) and cast.this.is_string:
        elements = [exp.null() if each is None else exp.Literal.string(each) for each in array_elements(cast.this.name)]
        return exp.cast(exp.Array(expressions=elements), cast.to)
    schema, _, name = cast.to.sql("postgres").lower().rpartition(".")
    name = name.strip('"')
    if name.startswith("_"):
        element = "text" if name in ("_name", "_text") else "bigint"
        return exp.cast(cast.this, f"{element}[]", dialect="postgres")
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


def _call(name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    """A call of one of our functions."""
    made = exp.Anonymous(this=name, expressions=list(arguments))
    return exp.Dot(this=exp.to_identifier(FUNCTIONS), expression=made)


_SCHEMAS: Final = {"pg_catalog": TABLES, "": TABLES, "information_schema": _INFORMATION}
_ROW_MAKERS: Final = (exp.Unnest, exp.Explode, exp.GenerateSeries, exp.ExplodingGenerateSeries)
"""The functions that FROM may hold beside tables: they make rows of their arguments alone, and open no file."""
_CALL: Final = re.compile(r"([a-z_0-9]+)\s*(?:\(|$)")
_PATTERNS: Final = {"~": (False, ""), "~*": (False, "i"), "!~": (True, ""), "!~*": (True, "i")}
"""{operator: whether it negates, the options of the match}."""
_ONE_VALUE: Final = (exp.StringToArray,)
"""The functions that FROM may hold though they make one value: it is a row of one column."""
_OF_THE_STORE: Final = frozenset(("tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"))
"""PostgreSQL's own columns of every table, about rows as it stores them."""
_FROM_ZERO: Final = frozenset(("indkey", "indclass", "indcollation", "indoption"))
"""The columns whose items PostgreSQL counts from 0: they are vectors, no arrays."""
_ONE: Final = exp.Literal.number(1)
_SAME: Final = {
    "json_build_object": "json_object",
    **dict.fromkeys(("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp"), "now"),
}
"""{function: DuckDB's name of it}: of any number of arguments, so that no macro can stand for it; or of the clock."""
_CLOCK: Final[dict[type[exp.Expr], str]] = {
    exp.CurrentTimestamp: "now",
    exp.CurrentDate: "today",
    exp.CurrentTime: "get_current_time",
    exp.Localtime: "current_localtime",
    exp.Localtimestamp: "current_localtimestamp",
}
"""DuckDB takes the word CURRENT_DATE for the column of that name, which PostgreSQL gives its value."""
_ROLES: Final = ("user", "current_role")
"""Words that stand for `current_user`, and are columns to sqlglot."""


class _Postgres(Postgres):
    """PostgreSQL's grammar, in which NOW() stays what it was: its column is called `now`."""

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar = {name: made for name, made in PostgresParser.FUNCTIONS.items() if name != "NOW"}


@dataclass(frozen=True)
class CatalogQuery:
    """A query that reads nothing but the system catalog, or no table at all."""

    tree: exp.Query

    def bound(self, values: Sequence[str]) -> CatalogQuery:
        """The query with values, as SQL, in the place of `$1`, `$2`, …"""
        texts = dict(enumerate(values, 1))

        def put(node: exp.Expr) -> exp.Expr:
            number = _parameter_number(node)
            return node if number not in texts else parse_one(texts[number], read="postgres")

        tree = self.tree.transform(put)
        assert isinstance(tree, exp.Query)
        return CatalogQuery(tree)

    def parameters(self) -> dict[int, str]:
        """{number: the type that a cast gives the parameter, as PostgreSQL writes it; empty without one}."""
        found: dict[int, str] = {}
        for node in self.tree.walk():
            number = _parameter_number(node)
            if number:
                found[number] = found.get(number) or _cast_around(node)
        return found

    def duckdb(self, functions: Collection[str]) -> str:
        """The query as DuckDB's text.

        Args:
            functions: names of those that the parts have, without a schema.
        """
        tree = annotate_types(_named(self.tree.copy()), dialect="postgres")  # of integers, whose quotient is one
        # From the leaves up: what is put in the place of a node holds the node's own children.
        for node in reversed(list(tree.walk())):
            made = _translated(node, functions)
            if made is not node:
                node.replace(made)
        return tree.sql("duckdb")

    def names(self, text: str) -> set[str]:
        """The names of parts in the text that `duckdb` made."""
        found = re.findall(rf'\b({TABLES}|{FUNCTIONS}|{_INFORMATION})\."?(\w+)', text)
        return {f"{schema}.{name.lower()}" for schema, name in found}


def catalog_query(text: str, parts: Collection[CatalogStatement], relations: Collection[str]) -> CatalogQuery | None:
    """The query of a text; None when it is for the language: it reads a relation, or PostgreSQL's grammar has no such.

    Args:
        relations: the names of the lake's own, which no table of the catalog hides.

    Raises:
        Refusal: it reads a table of pg_catalog that is not there.
    """
    try:
        tree = parse_one(_readable(text), read=_Postgres)
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Query) or tree.args.get("into") is not None:
        return None
    tree = normalize_identifiers(tree, dialect="postgres")
    made = {part.name for part in parts}
    subqueries = {each.alias for each in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func):
            is_read = isinstance(table.this, (*_ROW_MAKERS, *_ONE_VALUE)) or _is_made(table, made)
        elif table.db:
            is_read = _is_made(table, made)
            _check_there(table, made)
        else:
            is_read = table.name in subqueries or (_is_made(table, made) and table.name not in relations)
        if not is_read:
            return None
    return CatalogQuery(tree)


def _is_made(table: exp.Table, made: Collection[str]) -> bool:
    if isinstance(table.this, exp.Func):
        return f"{FUNCTIONS}.{table.this.name.lower()}" in made
    return table.db in _SCHEMAS and f"{_SCHEMAS[table.db]}.{table.name}" in made


def _check_there(table: exp.Table, made: Collection[str]) -> None:
    if table.db in _SCHEMAS and not _is_made(table, made):
        hint = "the catalog is that of PostgreSQL 13, as far as clients ask for it"
        raise Refusal(SqlState.UNKNOWN_TABLE, f"there is no {table.db}.{table.name} here", hint=hint)


def _parameter_number(node: exp.Expr) -> int:
    """The number of a parameter, `$1`; 0 for every other node."""
    if isinstance(node, exp.Parameter) and node.name.isdecimal():
        return int(node.name)
    return 0


def _named(tree: exp.Query) -> exp.Query:
    """The query with PostgreSQL's names for the columns that have none. In place."""
    for item in tree.selects:
        if not isinstance(item, exp.Alias | exp.Column | exp.Star):
            item.replace(exp.alias_(item.copy(), _name_of(item) or "?column?", quoted=True))
    return tree


def _name_of(item: exp.Expr) -> str:
    """The name that PostgreSQL gives a value: a column's, a function's, `case`; empty where it has none."""
    match item:
        case exp.Column():
            return item.name
        case exp.Paren():
            return _name_of(item.this)
        case exp.Cast():
            return _name_of(item.this) or item.to.sql("postgres").lower()
        case exp.Dot():
            return _name_of(item.expression)
        case exp.Subquery():
            return item.selects[0].alias_or_name or _name_of(item.selects[0])
        case exp.Case() | exp.Array() | exp.Exists():
            return item.sql_name().lower()
        case exp.Func() if not isinstance(item, exp.Binary):
            call = _CALL.match(item.sql("postgres").lower())
            return call[1] if call else ""
        case _:
            return ""


def _translated(node: exp.Expr, functions: Collection[str]) -> exp.Expr:
    match node:
        case exp.Table():
            return _table(node)
        case exp.Collate():
            return node.left
        case exp.Like() | exp.ILike() if not isinstance(node.parent, exp.Escape):
            return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))  # which DuckDB has not by itself
        case exp.Operator():
            return _operator(node)
        case exp.Cast():
            return _translated_cast(node)
        case exp.Dot() if isinstance(node.expression, exp.Func) and node.this.sql().lower() in _SCHEMAS:
            return _function(node.expression, functions)
        case exp.Bracket() if isinstance(node.this, exp.Column) and node.this.name in _FROM_ZERO:
            (place,) = node.expressions
            return exp.Bracket(
                this=node.this, expressions=[exp.Add(this=exp.Paren(this=place), expression=_ONE.copy())]
            )
        case exp.Func() if not isinstance(node.parent, exp.Dot | exp.Table):
            return _function(node, functions)
        case exp.Column():
            return _column(node)
        case _:
            return node


def _column(node: exp.Column) -> exp.Expr:
    if not node.table and node.name in _ROLES and not node.this.quoted:
        role = _call("current_user", [])
        return exp.alias_(role, node.name, quoted=True) if isinstance(node.parent, exp.Select) else role
    if node.name in _OF_THE_STORE:
        nothing = exp.cast(exp.null(), "bigint")
        return exp.alias_(nothing, node.name) if isinstance(node.parent, exp.Select) else nothing
    return exp.column(node.this, table=node.args.get("table")) if node.args.get("db") is not None else node


def _table(table: exp.Table) -> exp.Expr:
    if isinstance(table.this, exp.Func):
        return _rows_of(table, table.this)
    if not table.db and table.name in {each.alias for each in table.root().find_all(exp.CTE)}:
        return table
    found = table.copy()
    found.set("db", exp.to_identifier(_SCHEMAS[table.db]))
    found.set("catalog", None)
    return found if found.alias else exp.alias_(found, table.name, table=True)


def _rows_of(table: exp.Table, function: exp.Func) -> exp.Expr:
    """A function in FROM. One that makes a value, or a column of them, gives the column the name of the table."""
    if isinstance(function, (*_ONE_VALUE, exp.GenerateSeries)):
        name = table.alias or function.sql_name().lower()
        column = next(iter(table.args["alias"].columns), None) if table.args.get("alias") else None
        value: exp.Expr = function.copy()
        if isinstance(function, exp.GenerateSeries):
            value = exp.Anonymous(this="unnest", expressions=[exp.GenerateSeries(**value.args)])
        return exp.select(exp.alias_(value, column.name if column is not None else name)).subquery(name)
    found = table.copy()
    found.set("db", exp.to_identifier(FUNCTIONS) if isinstance(function, exp.Anonymous) else None)
    found.set("catalog", None)
    alias = found.args.get("alias")
    if alias is not None and not alias.columns and isinstance(function, _ROW_MAKERS):
        alias.set("columns", [exp.to_identifier(table.alias)])
    return found


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


def _function(node: exp.Expr, functions: Collection[str]) -> exp.Expr:
    found = _CALL.match(node.sql("postgres").lower())
    name = node.name.lower() if isinstance(node, exp.Anonymous) else found[1] if found else ""
    if type(node) in _CLOCK:
        return exp.Anonymous(this=_CLOCK[type(node)])
    if name in _SAME:
        return exp.Anonymous(this=_SAME[name], expressions=node.expressions)
    if name not in functions:
        return node
    if isinstance(node, exp.Anonymous):
        return _call(name, node.expressions)
    return _call(name, [each for each in node.iter_expressions() if isinstance(each, exp.Expression)])
