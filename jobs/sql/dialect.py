"""The language as a sqlglot dialect: its words, its expressions, its types.

Statements are `jobs.sql.parser`'s; this file owns what stands inside them. Unlike sqlglot's other dialects it knows
no function by name: every call is an `exp.Anonymous` with an upper-case name, and `jobs.functions.registry` says what
it means. Names fold to lower case unless quoted; arrays count from 1; `a->b` (an `exp.Dot`) reaches into a STRUCT.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, ClassVar, Final, TypeVar

from sqlglot import exp, generator, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlSyntaxError
from strandline.jobs.sql import time_clauses
from strandline.jobs.sql.pivot import PivotClauses

# A query inside an expression, and a value of the row around it, as nodes of the tree.
#
#     s.a > (SELECT MAX(t.x) FROM t WHERE t.k = s.k)     s.a > __q0(s.k)
#                                                        __q0: SELECT MAX(t.x) FROM t WHERE t.k = __q0.0
#
# The query is a function of what it reads of the row around it, so clauses that rewrite an expression rewrite those
# values and need to know nothing of the query. Only pull queries have such nodes: a view joins its subqueries.


WRITTEN: Final = "written"
"""The name in the meta data of a node of the text that it stands for, as a user wrote it."""


class NestedQuery(exp.Expression):
    """A query by its name, with the type of its value.

    `form` says what is asked: its one `value`, whether it has a row (`exists`), or whether `member` is among its rows.
    `expressions` are the values that it reads of the row around it.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "form": True,
        "to": True,
        "member": False,
        "expressions": False,
    }

    @property
    def form(self) -> str:
        """`value`, `exists` or `member`."""
        return str(self.args["form"])


class OuterValue(exp.Expression):
    """A value of the row around the query `this`, by its place among those that the query reads."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "place": True, "to": True}

    @property
    def place(self) -> str:
        """The place, from 0, as a name."""
        return str(self.args["place"])


def _nested_sql(self: generator.Generator, node: NestedQuery) -> str:
    values = [*([node.args["member"]] if node.args.get("member") is not None else []), *node.expressions]
    return f"{node.name}({', '.join(self.sql(each) for each in values)})"


QUERY_TRANSFORMS: Final[dict[Any, Any]] = {
    NestedQuery: _nested_sql,
    OuterValue: lambda _self, node: f"{node.name}.{node.place}",
}
"""The functions by which our generator writes the nodes: for messages, and to tell one from another."""


# The generator of our dialect: it writes trees as text, the other direction of `jobs.sql.dialect`.


class StrandlineGenerator(generator.Generator):
    """Writes trees of our dialect; what it writes reads back as the same tree."""

    SUPPORTS_WINDOW_EXCLUDE = True
    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **generator.Generator.TRANSFORMS,
        **time_clauses.TRANSFORMS,
        **time_clauses.INTERVAL_TRANSFORMS,
        **QUERY_TRANSFORMS,
        exp.Array: lambda self, e: f"ARRAY[{self.expressions(e, flat=True)}]",
        exp.BitwiseXor: lambda self, e: self.binary(e, "#"),
        exp.Pow: lambda self, e: self.binary(e, "^"),
        exp.IntDiv: lambda self, e: self.binary(e, "//"),
        exp.Dot: lambda self, e: f"{self.sql(e, 'this')}->{self.sql(e, 'expression')}",
        exp.Lambda: lambda self, e: self.lambda_sql(e, arrow_sep="=>"),
        exp.Not: lambda self, e: (
            f"{self.sql(e.this, 'this')} IS NOT NULL" if _is_null(e.this) else f"NOT {self.sql(e, 'this')}"
        ),
    }
    TYPE_MAPPING: ClassVar[dict[Any, Any]] = {
        **generator.Generator.TYPE_MAPPING,
        exp.DType.TEXT: "VARCHAR",
        exp.DType.VARBINARY: "BYTES",
    }
    AFTER_HAVING_MODIFIER_TRANSFORMS: ClassVar[dict[str, Any]] = {
        "qualify": lambda self, e: self.sql(e, "qualify"),
        "partition_by": lambda self, e: _clause("PARTITION BY", self.expressions(e.args.get("partition_by"))),
        "emit": lambda self, e: _clause("EMIT", self.sql(e, "emit")),
    }

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        return super().table_sql(expression, sep) + _clause("", self.sql(expression, "within"))

    def cte_sql(self, expression: exp.CTE) -> str:
        levels = self.sql(expression, "levels")
        if not levels:
            return super().cte_sql(expression)
        name = self.sql(expression, "alias")
        return f"{name} MAX RECURSION LEVEL {levels} AS {self.wrap(expression)}"

    def subquery_sql(self, expression: exp.Subquery, sep: str = " AS ") -> str:
        return super().subquery_sql(expression, sep) + _clause("", self.sql(expression, "within"))

    def query_modifiers(self, expression: exp.Expr, *sqls: str) -> str:
        window = self.sql(expression, "time_window")
        if not window:
            return super().query_modifiers(expression, *sqls)
        # WINDOW stands between the joins and WHERE, where sqlglot has no place for it.
        joins = [self.sql(join) for join in expression.args.get("joins") or ()]
        rest = expression.copy()
        rest.set("joins", None)
        return super().query_modifiers(rest, *sqls, *joins, f" {window}")


def _clause(word: str, text: str) -> str:
    """A clause after its keyword; an empty text when the clause was not given."""
    return f" {word} {text}".replace("  ", " ", 1) if text else ""


def _is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


# WINDOW w AS (…): named windows, written out where they are used.
#
# SELECT SUM(x) OVER w, RANK() OVER (w ORDER BY x) FROM t WINDOW w AS (PARTITION BY k) SELECT SUM(x) OVER (PARTITION
# BY k), RANK() OVER (PARTITION BY k ORDER BY x) FROM t

_PARTS = ("partition_by", "order", "spec")


def with_windows_inside(select: exp.Select) -> None:
    """Write a SELECT's named windows out, in place. A name that it has not stays, and is refused where it is read.

    Raises:
        InvalidQuery: a window is named twice, or a part is given that the named one has.
    """
    named: dict[str, exp.Expr] = {}
    for window in select.args.get("windows") or ():
        name = window.this.name.lower()
        if name in named:
            raise InvalidQuery(f"two windows are named '{name}'")
        _write_out(window, named)
        named[name] = window
    select.set("windows", None)
    for window in list(select.find_all(exp.Window)) if named else ():
        if window.find_ancestor(exp.Select) is select:
            _write_out(window, named)


def _write_out(window: exp.Expr, named: dict[str, exp.Expr]) -> None:
    alias = window.args.get("alias")
    meant = named.get(alias.name.lower()) if alias is not None else None
    if alias is None or meant is None:
        return
    for part in _PARTS:
        given = meant.args.get(part)
        if not given:
            continue
        if window.args.get(part):
            raise InvalidQuery(f"the window '{alias.name}' has {part.replace('_', ' ').upper()} already")
        window.set(part, [each.copy() for each in given] if isinstance(given, list) else given.copy())
    window.set("alias", None)


# Parser rules for joins: ASOF JOIN, and the condition that every other join states.
#
# a ASOF JOIN b ON …      ASOF is no word of the language, so that a column may have the name
# a JOIN b                refused: forgotten, ON would make a row of every pair, `a CROSS JOIN b` and `a, b` ask so

FILTERING = ("SEMI", "ANTI")
"""The words of joins that keep rows by whether a match is there, and show nothing of it."""
_ON = "JOIN … ON a.x = b.x, or USING (x); CROSS JOIN makes a row of every pair"


class JoinClauses(PivotClauses):
    """The rules; each moves the parser past the join, or raises where the text is wrong."""

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        comma = self._match(TokenType.COMMA, advance=False)
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is None or comma or join.side or _has_condition(join):
            return join  # without ON, LEFT and its like are refused where they are read
        place = self._curr or self._prev
        raise SqlSyntaxError(
            f"the join with '{join.alias_or_name}' needs ON",
            line=place.line,
            column=max(place.col - (place.end - place.start), 1),
            hint=_ON,
        )

    def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
        nearest = self._prev if self._match_text_seq("ASOF") else None
        method, side, kind = super()._parse_join_parts()
        if kind is None and self._is_filtering_join():
            self._advance()
            kind = self._prev
        return nearest or method, side, kind

    def _is_filtering_join(self) -> bool:
        """True before SEMI JOIN and ANTI JOIN, where SEMI is not the alias of a table."""
        following = self._next.text.upper() if self._next else ""
        return self._curr is not None and self._curr.text.upper() in FILTERING and following == "JOIN"

    def _is_asof_join(self) -> bool:
        """True before ASOF JOIN, where ASOF is not the alias of a table."""
        words = (self._next.text.upper() if self._next else "", self._curr.text.upper() if self._curr else "")
        return words[1] == "ASOF" and words[0] in ("JOIN", "LEFT", "RIGHT", "FULL", "INNER")


def _has_condition(join: exp.Join) -> bool:
    """True if a join states its condition, or is of a kind that has none or whose reader asks for it."""
    calls = isinstance(join.this, exp.Table) and isinstance(join.this.this, exp.Anonymous)  # UNNEST (…)
    return bool(join.args.get("on") or join.args.get("using") or join.method or join.kind == "CROSS" or calls)


# Only these are words of the language: any other, such as FORMAT or COMMENT, is free as the name of a column.
_WORDS = """
    ALL AND ARRAY AS ASC BETWEEN BIGINT BOOLEAN BYTES CASE CROSS CUBE DATE DECIMAL DESC DISTINCT DOUBLE ELSE END ESCAPE
    EXCEPT EXISTS FALSE FILTER FROM FULL HAVING ILIKE IN INNER INT INTEGER INTERSECT IS JOIN LEFT LIKE LIMIT MAP NATURAL
    NOT NULL OFFSET ON OR OUTER OVER QUALIFY RANGE RIGHT ROLLUP ROWS SELECT STRING STRUCT THEN TIME TIMESTAMP TRUE UNION
    USING VALUES VARCHAR WHEN WHERE WINDOW WITH
"""
_PHRASES = (
    "FETCH FIRST",
    "FETCH NEXT",
    "GROUP BY",
    "GROUPING SETS",
    "ORDER BY",
    "DOUBLE PRECISION",
    "PARTITION BY",
    "||",
    "<=",
    ">=",
    "<>",
    "!=",
    "==",
    ":=",
    "->",
    "->>",
    "#>",
    "#>>",
    "!~",
    "**",
    "//",
    "&&",
    "@>",
    "<@",
    "=>",
    "::",
    "/*+",
)
# Clauses of other dialects after the name of a table: read as its alias they would change nothing, without a word.
NO_ALIASES = frozenset(("ANTI", "FINAL", "GLOBAL", "LATERAL", "POSITIONAL", "SEMI", "TABLESAMPLE"))
_OURS = {
    "BYTES": TokenType.VARBINARY,
    "INTEGER": TokenType.INT,
    "DOUBLE PRECISION": TokenType.DOUBLE,
    "FETCH FIRST": TokenType.FETCH,
    "FETCH NEXT": TokenType.FETCH,
    "->>": TokenType.DARROW,
    "#>": TokenType.HASH_ARROW,
    "#>>": TokenType.DHASH_ARROW,
    "!~": TokenType.IRLIKE,
    "**": TokenType.DSTAR,
    "//": TokenType.DIV,
    "&&": TokenType.DAMP,
    "@>": TokenType.AT_GT,
    "<@": TokenType.LT_AT,
}
E = TypeVar("E", bound=exp.Expr)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")


class Strandline(Dialect):
    """ksqlDB's expressions, and the SELECT around them."""

    INDEX_OFFSET = 0
    SUPPORTS_USER_DEFINED_TYPES = True
    IDENTIFIERS_CAN_START_WITH_DIGIT = True

    class Tokenizer(tokens.Tokenizer):
        QUOTES: ClassVar[list[Any]] = ["'"]
        IDENTIFIERS: ClassVar[list[Any]] = ["`", '"']
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        # PostgreSQL's E'it\'s': `jobs.sql.value_clauses` gives its escapes their meaning.
        BYTE_STRINGS: ClassVar[list[Any]] = [("e'", "'"), ("E'", "'")]
        BYTE_STRING_ESCAPES: ClassVar[list[str]] = ["'", "\\"]
        COMMENTS: ClassVar[list[Any]] = ["--", ("/*", "*/")]
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: _OURS.get(word) or tokens.Tokenizer.KEYWORDS[word] for word in (*_WORDS.split(), *_PHRASES)
        }

    class Parser(JoinClauses):
        # PostgreSQL's signs: # of bits, ^ (also **) of powers, before * and /.
        BITWISE: ClassVar[dict[TokenType, Any]] = {
            **parser.Parser.BITWISE,
            TokenType.HASH: exp.BitwiseXor,
        }
        EXPONENT: ClassVar[dict[TokenType, Any]] = {TokenType.CARET: exp.Pow, TokenType.DSTAR: exp.Pow}
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        MAP_KEYS_ARE_ARBITRARY_EXPRESSIONS = True
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CAST": lambda self: self._parse_cast(True),
            "TRY_CAST": lambda self: self._parse_cast(False, safe=True),
            "SAFE_CAST": lambda self: self._parse_cast(False, safe=True),
            "FLOOR": lambda self: self._floor(),
            "ARRAY": lambda self: self._array_of_rows(),
            "EXTRACT": lambda self: self._extract(),
            **dict.fromkeys(("TUMBLE", "HOP"), lambda self: self._windowing()),
            "OVERLAY": lambda self: self._overlay(),
            "POSITION": lambda self: self._position(),
            "SUBSTRING": lambda self: self._substring(),
            "TRIM": lambda self: self._trim(),
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
        LAMBDAS: ClassVar[dict[TokenType, Any]] = {TokenType.FARROW: lambda self, args: self._lambda(args)}
        COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {
            **JoinClauses.COLUMN_OPERATORS,
            TokenType.ARROW: lambda self, this, member: self._member(this, member),
            TokenType.DARROW: lambda self, this, step: self._json_step("JSON_GET_TEXT", this, step),
            TokenType.HASH_ARROW: lambda self, this, path: self._json_step("JSON_PATH", this, path),
            TokenType.DHASH_ARROW: lambda self, this, path: self._json_step("JSON_PATH_TEXT", this, path),
        }
        RANGE_PARSERS: ClassVar[dict[TokenType, Any]] = {
            token: parser.Parser.RANGE_PARSERS[token]
            for token in (TokenType.BETWEEN, TokenType.IN, TokenType.IS, TokenType.LIKE)
        } | {
            TokenType.ILIKE: lambda self, this: self._ilike(this),
            TokenType.TILDE: lambda self, this: self._matched(this, negated=False),
            TokenType.IRLIKE: lambda self, this: self._matched(this, negated=True),
            TokenType.DAMP: lambda self, this: self._of_arrays("LIST_HAS_ANY", this),
            TokenType.AT_GT: lambda self, this: self._of_arrays("LIST_HAS_ALL", this),
            TokenType.LT_AT: lambda self, this: self._of_arrays("LIST_HAS_ALL", this, turned=True),
        }
        PRIMARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
            **JoinClauses.PRIMARY_PARSERS,
            TokenType.BYTE_STRING: lambda self, token: self._escaped(token),
        }
        VERSION_PHRASES: ClassVar[dict[tuple[str, ...], str]] = {
            **parser.Parser.VERSION_PHRASES,
            ("FOR", "SYSTEM_VERSION"): "VERSION",
            ("AS", "OF", "VERSION"): "VERSION",
            ("AS", "OF", "TIMESTAMP"): "TIMESTAMP",
        }
        QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Any]] = {
            **{
                token: parser.Parser.QUERY_MODIFIER_PARSERS[token]
                for token in (
                    TokenType.WHERE,
                    TokenType.GROUP_BY,
                    TokenType.HAVING,
                    TokenType.QUALIFY,
                    TokenType.ORDER_BY,
                )
            },
            TokenType.LIMIT: parser.Parser.QUERY_MODIFIER_PARSERS[TokenType.LIMIT],
            TokenType.OFFSET: parser.Parser.QUERY_MODIFIER_PARSERS[TokenType.OFFSET],
            TokenType.FETCH: lambda self: ("limit", self._fetched()),
            TokenType.PARTITION_BY: lambda self: ("partition_by", self._parse_repartition()),
            TokenType.WINDOW: lambda self: self._parse_time_window(),
        }

        def select_rule(self) -> exp.Expr | None:
            """The rule of one query; the branches of a UNION may stand in brackets, the first one too."""
            return self._parse_set_operations(self._parse_select(nested=True, parse_subquery_alias=False))

        def type_rule(self) -> exp.Expr | None:
            """The rule of one type."""
            return self._parse_types()

        def _refuse(self, what: str, hint: str | None = None) -> NotSupported:
            line, column = position_of(self._curr or self._prev)
            return NotSupported(what, line=line, column=column, hint=hint)

        def _lambda(self, variables: list[exp.Expr]) -> exp.Expression:
            return self.expression(exp.Lambda(this=self._parse_disjunction(), expressions=variables))

        def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            # UNNEST and its like may read what stands before them anyway; LATERAL ( is the rule of a call.
            after_name = self._tokens[self._index + 2 : self._index + 3]
            if (
                after_name
                and after_name[0].token_type is TokenType.L_PAREN
                and self._match_text_seq("LATERAL", advance=False)
            ):
                self._advance()
            bracket = self._next is not None and self._next.token_type is TokenType.L_PAREN
            if bracket and self._match_text_seq("TABLE"):
                self._advance()
                table = super()._parse_table(*args, **kwargs)
                self._match_r_paren()
                if table is not None and not table.alias:
                    table.set("alias", self._parse_table_alias())
            else:
                table = super()._parse_table(*args, **kwargs)
            if table is not None and self._is_pivot():
                table = self._pivoted(table)
            if table is not None and self._match_text_seq("WITHIN"):
                table.set("within", self._within())
            if table is not None and self._match_text_seq("WITH", "ORDINALITY"):
                table.set("ordinality", True)
                table.set("alias", self._parse_table_alias())
            return table

        def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
            if not skip_with_token and not self._match(TokenType.WITH):
                return None
            # RECURSIVE is no word of the language: a name after it says that it is not the query's own.
            named = self._next is not None and self._next.text.upper() not in ("AS", "(")
            recursive = named and self._match_text_seq("RECURSIVE")
            made = super()._parse_with(skip_with_token=True)
            if made is not None and recursive:
                made.set("recursive", True)
            return made

        def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
            made = super()._parse_cte()
            alias = made.args.get("alias") if made is not None else None
            if made is not None and alias is not None and alias.args.get("levels") is not None:
                made.set("levels", alias.args["levels"])
                alias.set("levels", None)
            return made

        def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
            found = super()._parse_projections()
            if not found[0] or self._prev.token_type == TokenType.COMMA:
                self.raise_error("expected a column or * in the list of SELECT")
            return found

        def _parse_repartition(self) -> exp.Tuple:
            self._match(TokenType.PARTITION_BY)
            found = self._parse_csv(self._parse_disjunction)
            if not found:
                self.raise_error("expected an expression after PARTITION BY")
            return exp.Tuple(expressions=found)

        def _fetched(self) -> exp.Limit:
            """FETCH FIRST n ROWS ONLY, the standard's LIMIT n; one row without n. WITH TIES: and its equals."""
            self._match(TokenType.FETCH)
            count = self._parse_number() or exp.Literal.number(1)
            if not self._match_texts(("ROW", "ROWS")):
                self.raise_error("expected ROWS after FETCH FIRST n")
            if self._match_text_seq("WITH", "TIES"):
                return exp.Limit(expression=count, limit_options=exp.LimitOptions(with_ties=True))
            if not self._match_text_seq("ONLY"):
                self.raise_error("expected ONLY or WITH TIES after FETCH FIRST n ROWS")
            return exp.Limit(expression=count)

        def _member(self, this: exp.Expression, member: exp.Expression | None) -> exp.Expression:
            if isinstance(member, exp.Star):
                return self.expression(exp.Dot(this=this, expression=member))
            if isinstance(member, exp.Literal):
                return self._json_step("JSON_GET", this, member)
            if not isinstance(member, exp.Column) or member.table:
                self.raise_error("expected the name of a field after ->", self._prev)
                return this
            return self.expression(exp.Dot(this=this, expression=member.this))

        def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
            # `FROM s EMIT CHANGES`, `FROM s WITHIN …`: a clause, not the name that s goes by.
            clause = self._match_texts(("EMIT", "WITHIN"), advance=False) or self._is_pivot()
            if clause or self._is_asof_join() or self._is_filtering_join():
                return None
            # Of WITH, whose names are never clauses: `WITH final AS (…)`.
            named_by_with = alias_tokens is self.ID_VAR_TOKENS
            if (
                not named_by_with
                and self._match_texts(NO_ALIASES, advance=False)
                and self._curr.token_type == TokenType.VAR
            ):
                word = self._curr.text
                raise self._refuse(f"{word.upper()} is not supported yet", hint=f"if it is a name: AS {word}")
            made = super()._parse_table_alias(alias_tokens)
            if made is not None and self._match_text_seq("MAX", "RECURSION", "LEVEL"):
                levels = self._parse_number()
                if levels is None:
                    self.raise_error("expected a number after MAX RECURSION LEVEL")
                made.set("levels", levels)
            return made

        def _parse_order(self, this: exp.Expr | None = None, skip_order_token: bool = False) -> exp.Expr | None:
            """ORDER BY …; ORDER BY ALL is by every column of the answer, from left to right."""
            made = super()._parse_order(this, skip_order_token)
            items = made.expressions if isinstance(made, exp.Order) else []
            every = items[0].this if len(items) == 1 else None
            named = every.this if isinstance(every, exp.Column) and not every.table else None
            if named is not None and not named.args.get("quoted") and named.name.upper() == "ALL":
                items[0].set("this", exp.var("ALL"))
            return made

        def _parse_query_modifiers(self, this: Any) -> Any:
            this = super()._parse_query_modifiers(this)
            if isinstance(this, exp.Select):
                with_windows_inside(this)
            if isinstance(this, exp.Select) and self._match_text_seq("EMIT"):
                if not self._match_texts(("CHANGES", "FINAL")):
                    self.raise_error("expected CHANGES or FINAL after EMIT")
                this.set("emit", exp.var(self._prev.text.upper()))
                this = super()._parse_query_modifiers(this)
            return this

    Generator = StrandlineGenerator


def position_of(place: Token | exp.Expr) -> tuple[int | None, int | None]:
    """Line and column (1-based) where a token or the first name inside an expression begins; None when unknown."""
    if isinstance(place, Token):
        return place.line, max(place.col - (place.end - place.start), 1)
    places = (node.meta for node in place.walk() if "line" in node.meta)
    found = min(places, key=lambda meta: int(meta["start"]), default=None)
    if found is None:
        return None, None
    return int(found["line"]), max(int(found["col"]) - (int(found["end"]) - int(found["start"])), 1)


def fold(tree: E) -> E:
    """Fold names: lower case unless quoted, quoted from here on only where the language asks for it. In place."""
    for node in tree.walk():
        if isinstance(node, exp.Identifier):
            name = node.name if node.args.get("quoted") else node.name.lower()
            node.set("this", name)
            node.set("quoted", needs_quotes(name))
        elif isinstance(node, exp.Anonymous):
            node.set("this", node.name.upper())
    return tree


def needs_quotes(name: str) -> bool:
    """True if a name must be quoted to be read back as itself."""
    return _PLAIN_NAME.match(name) is None or name.upper() in Strandline.Tokenizer.KEYWORDS


def quote(name: str) -> str:
    """A name as it is written in a statement."""
    return "`" + name.replace("`", "``") + "`" if needs_quotes(name) else name


def sql_of(tree: exp.Expr) -> str:
    """An expression or query as text of the language, in one line."""
    return tree.sql(dialect=Strandline, comments=False)
