"""From text to trees: tokens, one query, a type, and whatever else a single rule of the parser reads.

Statements are read by `jobs.sql.statements`. The other direction is `sql_of` in `jobs.sql.dialect`.

The arguments of parsed nodes that the front end reads; a clause that nobody reads is refused.

The parser is built on one that knows the clauses of thirty dialects, and hands over each as an argument of a node.
What no line of ours looks at would be accepted and then ignored: `* EXCEPT (secret)` would show the secret. So the
list says what is looked at, and whatever else stands in a tree is an error that names it.

    Group(totals=True)      not in the list: WITH TOTALS is refused
    Select(limit=…)         in the list: views refuse it by a better message, pull queries do it

The list is checked by a test: without any of these arguments a query means something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported, SqlSyntaxError, TypeMismatch, UnknownName
from strandline.jobs.model.tables import alike, differ_only_in_case
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.sql.dialect import Strandline, fold, position_of, sql_of
from strandline.jobs.sql.size import balanced
from strandline.jobs.sql.time_clauses import IntervalNode, TimeWindowNode, WithinNode

_ITSELF = ("this",)
_PAIR = ("this", "expression")
_LISTED = ("expressions",)

_QUERIES: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Select: (
        *("with_", "distinct", "expressions", "from_", "joins", "time_window", "where", "group", "having", "qualify"),
        *("partition_by", "emit", "order", "limit", "offset"),
    ),
    **dict.fromkeys(
        (exp.Union, exp.Intersect, exp.Except),
        ("with_", *_PAIR, "distinct", "by_name", "kind", "on", "order", "limit", "offset"),
    ),
    exp.Subquery: ("this", "alias", "within", "joins"),
    exp.With: ("expressions", "recursive"),
    # [NOT] MATERIALIZED says how another engine is to compute a query, not which rows it has.
    exp.CTE: ("this", "alias", "materialized", "levels"),
    exp.TableAlias: ("this", "columns"),
    exp.From: _ITSELF,
    exp.Table: ("this", "db", "catalog", "alias", "within", "joins", "ordinality", "version"),
    exp.Version: ("this", "kind", "expression"),
    exp.Values: ("expressions", "alias"),
    exp.Join: ("this", "side", "kind", "method", "on", "using"),
    WithinNode: tuple(WithinNode.arg_types),
    TimeWindowNode: tuple(TimeWindowNode.arg_types),
    **dict.fromkeys((exp.Where, exp.Having, exp.Qualify), _ITSELF),
    exp.Group: ("expressions", "rollup", "cube", "all"),
    **dict.fromkeys((exp.Rollup, exp.Cube, exp.GroupingSets), _LISTED),
    exp.Distinct: ("expressions", "on"),
    exp.Order: ("this", "expressions"),
    exp.WithinGroup: _PAIR,
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("expression", "limit_options"),
    exp.LimitOptions: ("with_ties",),
    exp.Offset: ("expression",),
}
"""The nodes of queries: their clauses."""

_EXPRESSIONS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Identifier: ("this", "quoted"),
    exp.Column: ("this", "table"),
    exp.Star: ("except_", "replace", "rename"),
    exp.Alias: ("this", "alias"),
    exp.Literal: ("this", "is_string"),
    **dict.fromkeys(
        (exp.Boolean, exp.Var, exp.Paren, exp.Neg, exp.Not, exp.IgnoreNulls, exp.RespectNulls, exp.Any, exp.All),
        _ITSELF,
    ),
    exp.Null: (),
    **dict.fromkeys((exp.Tuple, exp.Array), _LISTED),
    **dict.fromkeys((exp.Anonymous, exp.Lambda, exp.Bracket), ("this", "expressions")),
    **dict.fromkeys((exp.Dot, exp.PropertyEQ, exp.And, exp.Or, exp.Escape, exp.Filter), _PAIR),
    **dict.fromkeys(
        (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.Pow, exp.IntDiv), _PAIR
    ),
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), _PAIR),
    exp.BitwiseNot: _ITSELF,
    # `safe` and `typed` say how other dialects divide and join; our own types decide that.
    **dict.fromkeys((exp.Div, exp.DPipe), (*_PAIR, "safe", "typed")),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ), _PAIR),
    **dict.fromkeys((exp.LT, exp.LTE, exp.GT, exp.GTE), _PAIR),
    exp.Is: _PAIR,
    exp.Like: (*_PAIR, "negate"),
    exp.Between: ("this", "low", "high", "symmetric"),
    exp.In: ("this", "expressions", "query"),
    exp.Exists: _ITSELF,
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true"),
    exp.Cast: ("this", "to"),
    exp.TryCast: ("this", "to", "safe"),
    IntervalNode: tuple(IntervalNode.arg_types),
    exp.Window: ("this", "partition_by", "order", "spec", "alias", "over"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side", "exclude"),
}
"""The nodes of expressions."""

READ: Mapping[type[exp.Expr], frozenset[str]] = {
    kind: frozenset(arguments) for kind, arguments in {**_QUERIES, **_EXPRESSIONS}.items()
}
"""The arguments that are read, by the class of their node. A class that is not here is refused as a whole; types
(`exp.DataType`) are read by `jobs.sql.from_text`, which refuses what it does not know."""

# Arguments by which a user says something else where they are False: GROUP BY DISTINCT.
_SAID_BY_FALSE = frozenset({(exp.Group, "all")})

# The words of a clause, where they are not the name of its argument.
_WORDS: Mapping[tuple[type[exp.Expr], str], str] = {
    (exp.Column, "db"): "a schema before a column",
    (exp.Group, "all"): "DISTINCT in GROUP BY",
    (exp.Group, "totals"): "WITH TOTALS",
    (exp.In, "field"): "IN without brackets",
    (exp.In, "unnest"): "IN UNNEST",
    (exp.LimitOptions, "percent"): "LIMIT … PERCENT",
    (exp.LimitOptions, "rows"): "LIMIT … ROWS",
    (exp.Ordered, "with_fill"): "WITH FILL",
    (exp.Select, "hint"): "a hint",
    (exp.Select, "kind"): "SELECT AS STRUCT or AS VALUE",
    (exp.Select, "laterals"): "LATERAL",
    (exp.Table, "hints"): "a hint of a table",
    (exp.Table, "sample"): "TABLESAMPLE",
    (exp.Subquery, "sample"): "TABLESAMPLE",
    (exp.CTE, "key_expressions"): "USING KEY of WITH RECURSIVE",
    (exp.TableAlias, "levels"): "MAX RECURSION LEVEL after a table",
    (exp.With, "cycle"): "CYCLE after WITH RECURSIVE",
    (exp.With, "search"): "SEARCH or CYCLE after WITH RECURSIVE",
}
# What says the same as a node that nobody reads.
_INSTEAD: Mapping[type[exp.Expr], str] = {
    exp.Struct: "a MAP is written MAP('a' := 1), a STRUCT STRUCT(a := 1)",
    exp.AtTimeZone: "a TIMESTAMP is an instant in UTC; CONVERT_TZ(at, 'UTC', 'Europe/Rome') moves its clock",
}
_OF_SETS = {"side": "a side of UNION"}


def check_read(tree: exp.Expr) -> None:
    """Check that every node and argument of a query or expression is one that the front end reads.

    Raises:
        NotSupported: names the first clause that would be ignored.
    """
    for node in tree.walk(prune=lambda node: isinstance(node, exp.DataType)):
        if isinstance(node, exp.DataType):
            continue
        read = READ.get(type(node))
        if read is None:
            raise _refused(node, sql_of(node))
        in_call = isinstance(node, exp.Star) and isinstance(node.parent, exp.Anonymous | exp.Distinct)
        for argument, value in _said(node):
            if argument not in read or in_call or value is False:
                raise _refused(value if isinstance(value, exp.Expr) else node, _clause(node, argument))


def _said(node: exp.Expr) -> Iterator[tuple[str, object]]:
    """The arguments of a node that stand in the text."""
    for argument, value in node.args.items():
        kept = value is False and (type(node), argument) in _SAID_BY_FALSE
        if kept or not (value is None or value is False or value == []):
            yield argument, value


def _clause(node: exp.Expr, argument: str) -> str:
    if isinstance(node, exp.SetOperation) and argument in _OF_SETS:
        return _OF_SETS[argument]
    return _WORDS.get((type(node), argument)) or argument.rstrip("_").replace("_", " ").upper()


def _refused(place: exp.Expr, what: str) -> NotSupported:
    line, column = position_of(place)
    hint = _INSTEAD.get(type(place), "leave it out: nothing is accepted and ignored")
    return NotSupported(f"{what} is not supported yet", line=line, column=column, hint=hint)


def refused_words() -> tuple[str, ...]:
    """The words of clauses that are parsed and refused; what has no words of its own is refused by its argument."""
    return tuple(dict.fromkeys((*_WORDS.values(), *_OF_SETS.values())))


# PostgreSQL's $$it's$$ and $tag$…$tag$; $1 is a parameter.
_DOLLARS: Final = re.compile(r"(?<![\w$])\$([A-Za-z_]\w*)?\$")


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`.

    Raises:
        SqlSyntaxError: a quote or comment is not closed, or a quoted name is empty.
        NotSupported: a text stands between dollars.
    """
    try:
        found = Strandline().tokenize(text)
    except TokenError as error:
        if _DOLLARS.search(text):
            raise _dollar_quoted(text) from error
        line = text.count("\n") + 1
        column = len(text) - (text.rfind("\n") + 1) + 1
        raise SqlSyntaxError(
            "the text ends inside a quoted string, name or comment",
            line=line,
            column=column,
            hint="close it; a quote inside a string is written twice: 'it''s'",
        ) from error
    if any(
        each.text.startswith("$") and _DOLLARS.match(each.text) for each in found if each.token_type is TokenType.VAR
    ):
        raise _dollar_quoted(text)
    nameless = next((each for each in found if each.token_type is TokenType.IDENTIFIER and not each.text), None)
    if nameless is not None:
        raise SqlSyntaxError(
            "a name is empty",
            line=nameless.line,
            column=position_of(nameless)[1],
            hint="name it; a text stands in single quotes: ''",
        )
    return found


def _dollar_quoted(text: str) -> NotSupported:
    begin = _DOLLARS.search(text)
    before = text[: begin.start()] if begin is not None else ""
    return NotSupported(
        "a text between $$ is not supported",
        line=before.count("\n") + 1,
        column=len(before) - before.rfind("\n"),
        hint="a text stands in single quotes, and a quote in it is written twice: 'it''s'",
    )


def syntax_error(error: ParseError) -> SqlSyntaxError:
    """sqlglot's complaint as ours."""
    first = error.errors[0] if error.errors else {}
    marked = str(first.get("highlight") or "")
    line, column = first.get("line"), first.get("col")
    message = str(first.get("description") or error).strip()
    if message.startswith("Invalid expression"):
        message = f"'{marked}' is not expected here"
    elif message.startswith("Required "):
        message = f"the expression is not complete at '{marked}'"
    if isinstance(line, int) and isinstance(column, int):
        return SqlSyntaxError(message, line=line, column=max(column - len(marked) + 1, 1))
    return SqlSyntaxError(message)


def parse_query(text: str) -> exp.Query:
    """One query, names folded: what `sql_of` wrote for a view's query.

    Raises:
        SqlSyntaxError: it is not a query.
        NotSupported: an older version took a clause and ignored it.
    """
    tree = parse_rule(text, Strandline.Parser.select_rule)
    if not isinstance(tree, exp.Query):
        raise SqlSyntaxError("expected a SELECT", line=1, column=1)
    fold(tree)
    check_read(tree)
    return balanced(tree)


def parse_rule(text: str, rule: Any) -> exp.Expr:
    """The tree that one rule of the parser makes of the whole of `text`.

    Raises:
        SqlSyntaxError: it is something else, or more.
    """
    reader = Strandline.Parser(error_level=ErrorLevel.IMMEDIATE, dialect=Strandline)
    try:
        trees = reader._parse(rule, tokenize(text), text)  # noqa: SLF001 - the way in for a rule of one's own
    except ParseError as error:
        raise syntax_error(error) from error
    if len(trees) != 1 or trees[0] is None:
        raise SqlSyntaxError(f"cannot read '{text}'", line=1, column=1)
    return trees[0]


_FLAT_TYPES = {
    exp.DType.BOOLEAN: t.BOOLEAN,
    exp.DType.INT: t.INT,
    exp.DType.BIGINT: t.BIGINT,
    exp.DType.DOUBLE: t.DOUBLE,
    exp.DType.VARCHAR: t.VARCHAR,
    exp.DType.TEXT: t.VARCHAR,
    exp.DType.VARBINARY: t.BYTES,
    exp.DType.DATE: t.DATE,
    exp.DType.TIME: t.TIME,
    exp.DType.TIMESTAMP: t.TIMESTAMP,
    exp.DType.TIMESTAMPTZ: t.TIMESTAMP,  # TIMESTAMP WITH TIME ZONE: an instant, as ours is
}
_JSON = "VARCHAR: doc -> 'a', doc ->> 'a' and EXTRACTJSONFIELD(doc, '$.a') read the JSON in a text"
_TYPES_INSTEAD = {
    **dict.fromkeys(("JSON", "JSONB", "VARIANT", "OBJECT", "SUPER"), _JSON),
    "INTERVAL": "a BIGINT of seconds: EXTRACT(EPOCH FROM b - a)",
    "NUMBER": "DECIMAL(38, 9), or as many digits as you need; BIGINT, DOUBLE",
    "ROW": "STRUCT<name type, …>",
    "SERIAL": "INT: numbers are given by whoever inserts",
    "BIGSERIAL": "BIGINT: numbers are given by whoever inserts",
    "TIMETZ": "TIME, by a clock that all rows share; or TIMESTAMP, which is an instant",
    "UUID": "VARCHAR, of its text",
}
"""What to write in the place of types that the language has not."""
_TYPE_NAMES = ("STRING", *(base.value for base in BaseType if base is not BaseType.NULL))


def parse_type(text: str) -> SqlType:
    """The type that `text` names; reads back what `str(SqlType)` writes.

    Raises:
        SqlSyntaxError: it is not a type's syntax.
        UnknownName: there is no such type.
    """
    tree = parse_rule(text, Strandline.Parser.type_rule)
    return type_of(tree)


def is_type_name(name: str) -> bool:
    """True if a name, in small letters, is that of a type of the language."""
    return name.upper() in _TYPE_NAMES


def type_of(node: exp.Expr, at: Token | None = None) -> SqlType:
    """The type that a type's tree names; `at` is its position, for the error.

    Raises:
        UnknownName: there is no such type.
        TypeMismatch: its parameters do not fit the type.
    """
    line, column = position_of(at or node)
    dtype = node.this
    if dtype is exp.DType.USERDEFINED or not isinstance(node, exp.DataType):
        name = str(node.args.get("kind") or node.this).strip('"`').upper()
        raise _unknown(name).placed(line, column)
    inner = node.expressions
    if dtype in _FLAT_TYPES and not inner:
        return _FLAT_TYPES[dtype]
    if dtype is exp.DType.VARCHAR and [part.name.upper() for part in inner] == ["STRING"]:
        return t.VARCHAR
    if dtype is exp.DType.DECIMAL:
        return _decimal(inner, line, column)
    if dtype is exp.DType.ARRAY and len(inner) == 1:
        return t.array(type_of(inner[0], at))
    if dtype is exp.DType.MAP and len(inner) == 2:
        return t.map_of(type_of(inner[0], at), type_of(inner[1], at))
    if dtype is exp.DType.STRUCT and inner and all(member.args.get("kind") is not None for member in inner):
        names = [_folded_name(member.this) for member in inner]
        for number, name in enumerate(names):
            taken = alike(name, names[:number])
            if taken is not None:
                raise TypeMismatch(differ_only_in_case("fields", taken, name), line=line, column=column)
        return t.struct(*((name, type_of(member.args["kind"], at)) for name, member in zip(names, inner, strict=True)))
    raise TypeMismatch(
        f"{node.sql(dialect=Strandline)} is not a type", line=line, column=column, hint=_type_hint(dtype)
    )


def _unknown(name: str) -> UnknownName:
    if name in _TYPES_INSTEAD:
        return UnknownName(f"there is no type '{name}'", hint=_TYPES_INSTEAD[name])
    return UnknownName.among("type", name, _TYPE_NAMES)


def _type_hint(dtype: object) -> str:
    if dtype in _FLAT_TYPES:
        return f"{_FLAT_TYPES[dtype]} takes no parameters"
    return "write ARRAY<type>, MAP<type, type>, STRUCT<name type, …> or DECIMAL(precision, scale)"


def _folded_name(name: exp.Expression) -> str:
    return name.name if name.args.get("quoted") else name.name.lower()


def _decimal(parameters: Sequence[exp.Expr], line: int | None, column: int | None) -> SqlType:
    if not parameters:
        # Whatever stood for them would cut digits off some numbers, in silence.
        raise TypeMismatch(
            "DECIMAL says how many digits it has",
            line=line,
            column=column,
            hint="write DECIMAL(38, 9), or as you need it",
        )
    numbers = [int(p.name) for p in parameters if p.name.isdigit()]
    precision, scale = (*numbers, 0, 0)[:2]
    if (
        len(numbers) != len(parameters)
        or len(numbers) > 2
        or not 1 <= precision <= t.MAX_PRECISION
        or scale > precision
    ):
        raise TypeMismatch(
            f"DECIMAL({', '.join(p.sql() for p in parameters)}) is not a type",
            line=line,
            column=column,
            hint="DECIMAL(precision, scale): 1 to 38 digits, of which scale after the point",
        )
    return t.decimal(precision, scale)


def data_type(sql_type: SqlType) -> exp.DataType:
    """The tree of a type, as CAST carries it; a new one each time."""
    return _data_type(sql_type).copy()


@cache
def _data_type(sql_type: SqlType) -> exp.DataType:
    tree = parse_rule(str(sql_type), Strandline.Parser.type_rule)
    assert isinstance(tree, exp.DataType)
    return tree
