"""Parser rules for what may stand inside an expression beside ksqlDB's own syntax.

    v::DOUBLE                            CAST(v AS DOUBLE)
    EXTRACT(YEAR FROM at)                EXTRACT('YEAR', at)
    v = ANY (SELECT …), v <> ALL (…)     v IN (SELECT …), NOT v IN (…); ANY (ARRAY[1, 2]) is IN (1, 2)
    v > ANY (SELECT …), v > ALL (…)      the comparison with a node `Any` or `All`
    INTERVAL '1' DAY                     `jobs.sql.intervals`
    {'a': 1}                             STRUCT(a := 1)
    address                              the STRUCT that CREATE TYPE address AS named
    TEXT, SMALLINT, FLOAT, NUMERIC(9, 2) VARCHAR, INT, DOUBLE, DECIMAL(9, 2): the wider type where there is no equal one

None of these words is one of the language: each is free as the name of a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from sqlglot import exp, parser
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.intervals import INTERVAL_UNITS, IntervalNode, interval_of
from strandline.jobs.sql.operator_clauses import OperatorClauses

TYPE_SYNONYMS: dict[str, exp.DType] = {
    **dict.fromkeys(("TEXT", "CHAR", "BPCHAR"), exp.DType.VARCHAR),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT2", "INT4"), exp.DType.INT),
    "INT8": exp.DType.BIGINT,
    **dict.fromkeys(("FLOAT", "REAL", "FLOAT4", "FLOAT8"), exp.DType.DOUBLE),
    **dict.fromkeys(("NUMERIC", "DEC"), exp.DType.DECIMAL),
    "BOOL": exp.DType.BOOLEAN,
    **dict.fromkeys(("BYTEA", "BINARY", "VARBINARY", "BLOB"), exp.DType.VARBINARY),
    "TIMESTAMPTZ": exp.DType.TIMESTAMP,
}
"""Names of types in other dialects, and the type that holds all their values."""
_ANY = ("ANY", "SOME")


class ValueClauses(OperatorClauses):
    """The rules; each moves the parser past the clause, or raises where the text is wrong."""

    named_types: Mapping[str, exp.DataType] = MappingProxyType({})
    """What CREATE TYPE gave a name to: the tree that the name stands for."""

    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        TokenType.DOT: None,
        TokenType.DCOLON: lambda self, this, to: self.expression(exp.Cast(this=this, to=to)),
    }

    def _extract(self) -> exp.Expression:
        """The rest of EXTRACT(unit FROM value); the unit becomes a text."""
        unit = self._parse_var_or_string(upper=True)
        if unit is None or not (self._match(TokenType.FROM) or self._match(TokenType.COMMA)):
            self.raise_error("expected EXTRACT(unit FROM value)")
        name = exp.Literal.string(unit.name.upper() if unit is not None else "")
        return self.expression(exp.Anonymous(this="EXTRACT", expressions=[name, self._parse_disjunction()]))

    def _ilike(self, value: exp.Expr | None) -> exp.Expr | None:
        """The rest of `value ILIKE pattern`: LIKE of both in small letters."""
        made: exp.Expr | None = parser.Parser.RANGE_PARSERS[TokenType.LIKE](self, value)
        like = made.this if isinstance(made, exp.Escape) else made
        for side in ("this", "expression"):
            if like is not None and like.args.get(side) is not None:
                like.set(side, exp.Anonymous(this="LCASE", expressions=[like.args[side]]))
        return made

    def _build_predicate(
        self,
        klass: type[exp.Binary],
        this: exp.Expr | None,
        expression: exp.Expr | None,
        comments: list[str] | None = None,
        negate: bool = False,
    ) -> exp.Expr:
        among = _among(klass, this, expression)
        if among is None:
            expression = _quantified(klass, expression)
            return super()._build_predicate(klass, this, expression, comments, negate)
        return self.expression(among)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """An element of an array, an array, or `{'a': 1}`, which is STRUCT(a := 1)."""
        brace = self._curr is not None and self._curr.token_type == TokenType.L_BRACE
        if brace and self._prev.text.upper() == "MAP":
            line, column = self._curr.line, max(self._curr.col - (self._curr.end - self._curr.start), 1)
            hint = "MAP('a' := 1)"
            raise NotSupported("MAP {…} is not supported yet", line=line, column=column, hint=hint)
        found = super()._parse_bracket(this)
        if not brace or found is None:
            return found
        return found.transform(
            lambda node: (
                exp.Anonymous(this="STRUCT", expressions=node.expressions) if isinstance(node, exp.Struct) else node
            )
        )

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        following = self._next.token_type if self._next else None
        if self._curr.text.upper() == "INTERVAL" and following in (TokenType.STRING, TokenType.NUMBER):
            self._advance()
            return self._interval()
        known = TYPE_SYNONYMS.get(self._curr.text.upper()) if following is TokenType.STRING else None
        if known is not None and self._curr.token_type is TokenType.VAR:
            self._advance()  # timestamptz '2024-05-01 10:00:00+02'
            return self.expression(exp.Cast(this=self._parse_primary(), to=exp.DataType(this=known)))
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _interval(self) -> IntervalNode:
        """The length after INTERVAL."""
        self._advance()
        number = self._prev
        unit = self._prev.text if self._match_texts(INTERVAL_UNITS) else None
        found = interval_of(number.text, unit)
        if found is None:
            self.raise_error("expected a length of time, such as INTERVAL '1' DAY or INTERVAL '2 hours'", number)
            return IntervalNode()
        return found

    def _parse_struct_types(self, type_required: bool = False) -> exp.Expr | None:
        # A field is a name and a type; sqlglot's rule takes a name that CREATE TYPE gave for the end of the field.
        name = self._parse_id_var()
        if name is None:
            return None
        self._match(TokenType.COLON)
        return self.expression(exp.ColumnDef(this=name, kind=self._parse_types(schema=True)))

    def _parse_user_defined_type(self, identifier: exp.Identifier) -> exp.Expr | None:
        named = self.named_types.get(identifier.name if identifier.quoted else identifier.name.lower())
        if named is not None:
            return named.copy()
        known = None if identifier.quoted else TYPE_SYNONYMS.get(identifier.name.upper())
        if known is None:
            return super()._parse_user_defined_type(identifier)
        parameters: list[exp.Expr] = []
        if known is exp.DType.DECIMAL and self._match(TokenType.L_PAREN):
            parameters = self._parse_csv(self._parse_type_size)
            self._match_r_paren()
        return exp.DataType(this=known, expressions=parameters)


def _quantified(comparison: type[exp.Binary], other: exp.Expr | None) -> exp.Expr | None:
    """What a value is compared with, ANY (SELECT …) and ALL (SELECT …) as nodes of their own."""
    if comparison not in (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE):
        return other
    kind: type[exp.Any | exp.All] = exp.Any
    if isinstance(other, exp.All):
        kind, given = exp.All, other.this
    elif isinstance(other, exp.Anonymous) and other.name.upper() in (*_ANY, "ALL") and len(other.expressions) == 1:
        kind, given = exp.All if other.name.upper() == "ALL" else exp.Any, other.expressions[0]
    else:
        return other
    if not isinstance(given, exp.Query):
        return other
    return kind(this=given if isinstance(given, exp.Subquery) else given.subquery(copy=False))


def _among(comparison: type[exp.Binary], value: exp.Expr | None, other: Any) -> exp.Expression | None:
    """`value = ANY (…)` and `value <> ALL (…)` as IN; None for any other comparison, and for the aggregate ANY."""
    if comparison is exp.EQ and isinstance(other, exp.Anonymous) and other.name.upper() in _ANY:
        given = other.expressions[0] if len(other.expressions) == 1 else None
    elif comparison is exp.NEQ and isinstance(other, exp.All):
        given = other.this
    elif comparison is exp.NEQ and isinstance(other, exp.Anonymous) and other.name.upper() == "ALL":
        given = other.expressions[0] if len(other.expressions) == 1 else None  # a query in two brackets
    else:
        return None
    if isinstance(given, exp.Query):
        found = exp.In(this=value, query=given if isinstance(given, exp.Subquery) else given.subquery(copy=False))
    elif isinstance(given, exp.Array) and given.expressions:
        found = exp.In(this=value, expressions=given.expressions)
    else:
        return None
    return exp.Paren(this=exp.Not(this=found)) if comparison is exp.NEQ else found
