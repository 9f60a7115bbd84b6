"""From text to trees: tokens, one query, and whatever else a single rule of the parser reads.

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
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import NotSupported, SqlSyntaxError
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
    exp.Subquery: ("this", "alias", "within"),
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
(`exp.DataType`) are read by `jobs.sql.types_text`, which refuses what it does not know."""

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
        SqlSyntaxError: a quote or comment is not closed.
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
