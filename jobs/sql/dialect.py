"""The language as a sqlglot dialect: its words, its expressions, its types.

Statements are `jobs.sql.parser`'s; this file owns what stands inside them. Unlike sqlglot's other dialects it knows
no function by name: every call is an `exp.Anonymous` with an upper-case name, and `jobs.functions.registry` says what
it means. Names fold to lower case unless quoted; arrays count from 1; `a->b` (an `exp.Dot`) reaches into a STRUCT.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, ClassVar, TypeVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.generator import StrandlineGenerator
from strandline.jobs.sql.join_clauses import JoinClauses
from strandline.jobs.sql.named_windows import with_windows_inside

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
    ":=",
    "->",
    "->>",
    "#>",
    "#>>",
    "!~",
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
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CAST": lambda self: self._parse_cast(True),
            "TRY_CAST": lambda self: self._parse_cast(False, safe=True),
            "EXTRACT": lambda self: self._extract(),
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
            table = super()._parse_table(*args, **kwargs)
            if table is not None and self._match_text_seq("WITHIN"):
                table.set("within", self._within())
            if table is not None and self._match_text_seq("WITH", "ORDINALITY"):
                table.set("ordinality", True)
                table.set("alias", self._parse_table_alias())
            return table

        def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
            # RECURSIVE is no word of the language: a name after it says that it is not the query's own.
            if (
                self._match_text_seq("RECURSIVE", advance=False)
                and self._next
                and self._next.text.upper() not in ("AS", "(")
            ):
                raise self._refuse("WITH RECURSIVE is not supported yet")
            return super()._parse_cte()

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
            """FETCH FIRST n ROWS ONLY, the standard's LIMIT n; one row without n."""
            self._match(TokenType.FETCH)
            count = self._parse_number() or exp.Literal.number(1)
            if not self._match_texts(("ROW", "ROWS")):
                self.raise_error("expected ROWS after FETCH FIRST n")
            if self._match_text_seq("WITH", "TIES"):
                raise self._refuse("WITH TIES is not supported yet", hint="FETCH FIRST n ROWS ONLY")
            if not self._match_text_seq("ONLY"):
                self.raise_error("expected ONLY after FETCH FIRST n ROWS")
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
            clause = self._match_texts(("EMIT", "WITHIN"), advance=False)
            if clause or self._is_asof_join() or self._is_filtering_join():
                return None
            if self._match_texts(NO_ALIASES, advance=False) and self._curr.token_type == TokenType.VAR:
                word = self._curr.text
                raise self._refuse(f"{word.upper()} is not supported yet", hint=f"if it is a name: AS {word}")
            return super()._parse_table_alias(alias_tokens)

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
