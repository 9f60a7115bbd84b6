"""Parser rules for the clauses that statements share: names, options, columns, rows and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.model.definitions import ALL_HEADERS
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.sql.dialect import Strandline, fold, position_of
from strandline.jobs.sql.from_text import check_read, type_of
from strandline.jobs.sql.syntax import DeclaredColumn, Emit, Option

# LIKE's escape: the backslash, as in PostgreSQL, MySQL and Spark, unless `ESCAPE` names another.
#
#     name LIKE '10\%'      name LIKE '10\%' ESCAPE '\'
#
# It is written out where a statement is read, so that whatever comes after knows one form. In the text of a view that
# an earlier version stored, a LIKE without `ESCAPE` has none: a backslash in its pattern is a character as others.

BACKSLASH: Final = "\\"
E = TypeVar("E", bound=exp.Expr)


def with_escapes(tree: E) -> E:
    """The tree, changed: each LIKE whose pattern has, or may have, a backslash names it as its escape. LIKE ANY and ALL
    become one LIKE for each pattern."""
    for like in list(tree.find_all(exp.Like)):
        _one_for_each(like)
    for like in list(tree.find_all(exp.Like)):
        pattern = pattern_literal(like.expression)
        if isinstance(like.parent, exp.Escape) or (pattern is not None and BACKSLASH not in pattern.name):
            continue
        made = exp.Escape(this=like.copy(), expression=exp.Literal.string(BACKSLASH))
        made.meta.update(like.meta)
        like.replace(made)
    return tree


def _one_for_each(like: exp.Like) -> None:
    """Replace `s LIKE ANY ('a%', 'b%')`, also with an ARRAY, by `(s LIKE 'a%' OR s LIKE 'b%')`; ALL by AND."""
    given = like.expression
    small = isinstance(given, exp.Anonymous) and given.name == "LCASE"
    given = given.expressions[0] if small else given
    if isinstance(given, exp.All) and isinstance(given.this, exp.Tuple | exp.Paren):
        given = exp.Anonymous(this="ALL", expressions=given.this.expressions or [given.this.this])
    if not isinstance(given, exp.Anonymous) or given.name.upper() not in ("ANY", "SOME", "ALL"):
        return
    patterns = given.expressions
    if len(patterns) == 1 and isinstance(patterns[0], exp.Array):
        patterns = patterns[0].expressions
    if not patterns:
        return
    whole: exp.Expr = like.parent if isinstance(like.parent, exp.Escape) else like
    made: exp.Expression | None = None
    for pattern in patterns:
        one = whole.copy()
        of = one.this if isinstance(one, exp.Escape) else one
        of.set("expression", exp.Anonymous(this="LCASE", expressions=[pattern.copy()]) if small else pattern.copy())
        if made is not None:
            one = (exp.And if given.name.upper() == "ALL" else exp.Or)(this=made, expression=one)
        assert isinstance(one, exp.Expression)
        made = one
    whole.replace(exp.Paren(this=made))


def pattern_literal(pattern: exp.Expr) -> exp.Literal | None:
    """The literal that a pattern is, that of ILIKE inside its LCASE; None for any other."""
    if isinstance(pattern, exp.Anonymous) and pattern.name == "LCASE":
        (pattern,) = pattern.expressions
    return pattern if isinstance(pattern, exp.Literal) and pattern.is_string else None


_CONSTRAINTS = ("NULL", "DEFAULT", "UNIQUE", "CHECK", "REFERENCES", "GENERATED")
_CONSTRAINED = "leave it out: any column may be NULL, and what is expected of rows is said by EXPECT in WITH"


class Clauses(Strandline.Parser):
    """The rules, one method per clause; each moves the parser past the clause, or raises where the text is wrong."""

    def _expect(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            self.raise_error(f"expected {' '.join(words)}")

    def _punctuation(self, token: TokenType, shown: str) -> None:
        if not self._match(token):
            self.raise_error(f"expected {shown}")

    def _name(self, what: str) -> str:
        return self._identifier(what).name

    def _identifier(self, what: str) -> exp.Identifier:
        found = self._parse_id_var(any_token=False)
        if not isinstance(found, exp.Identifier):
            self.raise_error(f"expected {what}")
            return exp.to_identifier("")
        fold(found)
        return found

    def _text(self, what: str) -> str:
        if not self._match(TokenType.STRING):
            self.raise_error(f"expected {what}")
        return self._prev.text

    def _query(self) -> tuple[exp.Query, Emit | None]:
        tree = self.select_rule()
        while isinstance(tree, exp.Subquery) and not tree.alias:
            tree = tree.this
        if isinstance(tree, exp.Values):
            tree = exp.Select(expressions=[exp.Star()], from_=exp.From(this=tree))
        if not isinstance(tree, exp.Query):
            self.raise_error("expected a SELECT")
        query = cast(exp.Query, tree)
        _with_fields(query)
        fold(query)
        check_read(query)
        with_escapes(query)
        emit = query.args.get("emit")
        if emit is not None and emit.name == "CHANGES":
            query.set("emit", None)  # a view does this anyway; FINAL changes its rows, and stays in its query
        return query, cast(Emit, emit.name) if emit is not None else None

    def _options(self) -> tuple[Option, ...]:
        if not self._match(TokenType.WITH):
            return ()
        self._punctuation(TokenType.L_PAREN, "(")
        options = () if self._match(TokenType.R_PAREN, advance=False) else tuple(self._parse_csv(self._option))
        self._punctuation(TokenType.R_PAREN, ") after the options")
        return cast(tuple[Option, ...], options)

    def _option(self) -> Any:
        line, column = position_of(self._curr)
        if self._match(TokenType.STRING):
            name = self._prev.text
        else:
            name = self._name("the name of an option")
            while self._match(TokenType.DOT):
                self._advance()
                name += f".{self._prev.text}"
        self._punctuation(TokenType.EQ, "= after the name of the option")
        sign = "-" if self._match(TokenType.DASH) else ""
        if not self._curr or self._match_set((TokenType.COMMA, TokenType.R_PAREN), advance=False):
            self.raise_error("expected the value of the option")
        self._advance()
        return Option(name.upper(), sign + self._prev.text, line, column)

    def _declared_columns(self) -> tuple[DeclaredColumn, ...]:
        columns = [self._declared_column()]
        while self._match(TokenType.COMMA):
            if self._is_key_clause():
                columns = self._with_key(columns)
                break
            columns.append(self._declared_column())
        if self._curr and self._match_texts(_CONSTRAINTS, advance=False):
            raise self._refuse(f"{self._curr.text.upper()} of a column is not supported", _CONSTRAINED)
        self._punctuation(TokenType.R_PAREN, ", or ) after a column")
        return tuple(columns)

    def _is_key_clause(self) -> bool:
        """True before `PRIMARY KEY (`; a column may be named `primary`."""
        return self._match_text_seq("PRIMARY", "KEY", "(", advance=False)

    def _with_key(self, columns: Sequence[DeclaredColumn]) -> list[DeclaredColumn]:
        """The columns, those of the clause `PRIMARY KEY (a, b)` marked."""
        self._match_text_seq("PRIMARY", "KEY", "(")
        names = [each.name for each in cast(list[exp.Identifier], self._parse_csv(self._key_column))]
        self._punctuation(TokenType.R_PAREN, ", or ) after a column of the key")
        known = [each.name for each in columns]
        for name in names:
            if name not in known:
                line, column = position_of(self._prev)
                raise UnknownName.among("column", name, known, line=line, column=column)
        if any(each.key for each in columns):
            self.raise_error("PRIMARY KEY is given twice", self._prev)
        return [replace(each, key="PRIMARY KEY" if each.name in names else None) for each in columns]

    def _key_column(self) -> exp.Identifier:
        return self._identifier("the name of a column")

    def _declared_column(self) -> DeclaredColumn:
        name = self._identifier("the name of a column")
        line, column = position_of(name)
        start = self._curr
        tree = self._parse_types(schema=True)
        if tree is None:
            self.raise_error(f"expected the type of column '{name.name}'", start)
        sql_type = type_of(cast(exp.Expression, tree), at=start)
        required = self._match_text_seq("NOT", "NULL")
        key = None
        if self._match_text_seq("PRIMARY", "KEY"):
            key = "PRIMARY KEY"
        elif self._match_text_seq("KEY"):
            key = "KEY"
        header = self._header()
        required = self._match_text_seq("NOT", "NULL") or required
        return DeclaredColumn(name.name, sql_type, cast(Any, key), line, column, header, bool(required))

    def _header(self) -> str | None:
        """`HEADERS`, or `HEADER('name')`, after the type of a column."""
        if self._match_text_seq("HEADERS"):
            return ALL_HEADERS
        if not self._match_text_seq("HEADER"):
            return None
        self._punctuation(TokenType.L_PAREN, "( after HEADER")
        name = self._text("the name of a header, in quotes")
        self._punctuation(TokenType.R_PAREN, ") after the name of the header")
        return name

    def _row(self) -> tuple[exp.Expression, ...]:
        self._punctuation(TokenType.L_PAREN, "( before the values of a row")
        values = self._parse_csv(self._parse_disjunction)
        self._punctuation(TokenType.R_PAREN, ", or ) after a value")
        for value in values:
            check_read(value)
        return tuple(fold(cast(exp.Expression, value)) for value in values)


def _with_fields(query: exp.Query) -> None:
    """Read `a.b.c` as the field c of `a.b`, whether that is an input's column or a column's field."""
    for node in list(query.find_all(exp.Column)):
        if node.args.get("db") is None:
            continue
        first, second, *fields = node.parts
        made: exp.Expr = exp.Column(this=second, table=first)
        made.update_positions(node)
        for each in fields:
            made = exp.Dot(this=made, expression=each)
        node.replace(made)
