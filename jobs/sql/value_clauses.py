"""Parser rules for what may stand inside an expression beside ksqlDB's own syntax.

    v::DOUBLE                            CAST(v AS DOUBLE)
    EXTRACT(YEAR FROM at)                EXTRACT('YEAR', at)
    v = ANY (SELECT …), v <> ALL (…)     v IN (SELECT …), NOT v IN (…); ANY (ARRAY[1, 2]) is IN (1, 2)
    v > ANY (SELECT …), v > ALL (…)      the comparison with a node `Any` or `All`
    'a' and, in the next line, 'b'       'ab'
    ARRAY(SELECT v … ORDER BY w)         (SELECT ARRAY_AGG(v ORDER BY w) …), an empty ARRAY where there is no row
    INTERVAL '1' DAY                     `jobs.sql.time_clauses`
    {'a': 1}                             STRUCT(a := 1)
    address                              the STRUCT that CREATE TYPE address AS named
    TEXT, SMALLINT, FLOAT, NUMERIC(9, 2) VARCHAR, INT, DOUBLE, DECIMAL(9, 2): the wider type where there is no equal one

None of these words is one of the language: each is free as the name of a column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeGuard

from sqlglot import exp, parser
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.time_clauses import INTERVAL_UNITS, IntervalNode, TimeClauses, interval_of

# Parser rules for operators and calls that PostgreSQL and the standard write in words and signs: each becomes a call.
#
#     POSITION(a IN b)                       LOCATE(a, b)
#     SUBSTRING(a FROM 2 FOR 3)              SUBSTRING(a, 2, 3); of a text in its place, what that expression matches
#     TRIM(LEADING 'x' FROM a)               LTRIM(a, 'x')
#     FLOOR(at TO HOUR)                      DATE_TRUNC(at, HOUR)
#     a ~ 'x', a !~ 'x', a ~* 'x'            REGEXP_LIKE(a, 'x'), NOT …, REGEXP_LIKE(a, '(?i)x')
#     a -> 'b', a ->> 'b', a #>> '{b,0}'     JSON_GET(a, 'b'), JSON_GET_TEXT(a, 'b'), JSON_PATH_TEXT(a, '{b,0}')
#     a && b, a @> b, a <@ b                 LIST_HAS_ANY(a, b), LIST_HAS_ALL(a, b), LIST_HAS_ALL(b, a)
#     a AT TIME ZONE 'Europe/Rome'           TIMEZONE('Europe/Rome', a)
#     a COLLATE "C"                          a: texts are compared by their code points
#     E'it\'s'                               'it''s'
#     a[2:3], a[2:]                          ARRAY_SLICE(a, 2, 3), ARRAY_SLICE(a, 2, -1)
#     TUMBLE(TABLE s, DESCRIPTOR(at), …)     TUMBLE(s, at, …); TABLE(TUMBLE(…)) in FROM is the call itself, as in Flink
#     OVERLAY(a PLACING b FROM 2 FOR 3)      OVERLAY(a, b, 2, 3)
#     LAMBDA x: x + 1, x -> x + 1            x => x + 1, as DuckDB and Spark have it
#
# None of these words is one of the language: each is free as the name of a column.

_JSON_STEPS: Final = (TokenType.ARROW, TokenType.DARROW, TokenType.HASH_ARROW, TokenType.DHASH_ARROW)
_LITERALS: Final = (TokenType.STRING, TokenType.BYTE_STRING, TokenType.NUMBER)
_BY_CODE_POINT: Final = ("C", "POSIX", "UCS_BASIC", "DEFAULT")
"""The collations that order texts as the language does."""
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-7]{1,3}|.)", re.S)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_GROUP: Final = re.compile(r"(?<!\\)\((?!\?)")
_IN_ANY_CASE: Final = "(?i)"
_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_OF_FUNCTIONS: Final = (
    *("TRANSFORM", "LIST_TRANSFORM", "LIST_APPLY", "ARRAY_TRANSFORM", "ARRAY_APPLY"),
    *("FILTER", "LIST_FILTER", "ARRAY_FILTER", "ANY_MATCH", "ALL_MATCH", "NONE_MATCH", "FORALL"),
)
"""Functions whose arguments after the first are functions of one variable."""
_TRIMS: Final = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}


class OperatorClauses(TimeClauses):
    """The rules; each moves the parser past what it reads, or raises where the text is wrong."""

    def _position(self) -> exp.Expression:
        """The rest of POSITION(sought IN text)."""
        name = self._name_of_call()
        sought = self._parse_bitwise()
        if not self._match(TokenType.IN):
            self.raise_error("expected POSITION(sought IN text)")
        return self._called("LOCATE", [sought, self._parse_bitwise()], name)

    def _substring(self) -> exp.Expression:
        """The rest of SUBSTRING(text FROM place FOR length), or of a call with commas."""
        name = self._name_of_call()
        given: list[exp.Expr | None] = [*self._parse_csv(self._parse_disjunction)]
        if len(given) == 1 and self._match(TokenType.FROM):
            place = self._parse_bitwise()
            if isinstance(place, exp.Literal) and place.is_string:
                group = [exp.Literal.number(1)] if _GROUP.search(place.name) else []
                return self._called("REGEXP_EXTRACT", [place, given[0], *group], name)
            given.append(place)
        if len(given) in (1, 2) and self._match_text_seq("FOR"):
            given = [given[0], given[1] if len(given) == 2 else exp.Literal.number(1), self._parse_bitwise()]
        return self._called("SUBSTRING", given, name)

    def _trim(self) -> exp.Expression:
        """The rest of TRIM(BOTH ' ' FROM text), or of a call with commas."""
        name = self._name_of_call()
        side = self._prev.text.upper() if self._match_texts(_TRIMS) else ""
        given = [] if self._match(TokenType.FROM, advance=False) else self._parse_csv(self._parse_disjunction)
        if self._match(TokenType.FROM):
            taken, given = given, self._parse_csv(self._parse_disjunction)
            spaces = bool(taken) and isinstance(taken[0], exp.Literal) and taken[0].this == " "
            given = [*given, *([] if spaces else taken)]
        elif side and len(given) != 1:
            self.raise_error(f"expected TRIM({side} FROM text)")
        return self._called(_TRIMS.get(side, "TRIM"), given, name)

    def _overlay(self) -> exp.Expression:
        """The rest of OVERLAY(text PLACING new FROM place FOR length), or of a call with commas."""
        name = self._name_of_call()
        given: list[exp.Expr | None] = [*self._parse_csv(self._parse_bitwise)]
        for word in ("PLACING", "FROM", "FOR"):
            if len(given) < 4 and self._match_text_seq(word):
                given.append(self._parse_bitwise())
        return self._called("OVERLAY", given, name)

    def _windowing(self) -> exp.Expression:
        """The rest of TUMBLE(TABLE s, DESCRIPTOR(at), length), or of a call with plain names."""
        name = self._name_of_call()
        return self._called(name.text.upper(), self._parse_csv(self._argument_of_windows), name)

    def _argument_of_windows(self) -> exp.Expr | None:
        if self._match_text_seq("TABLE"):
            return self._parse_column()
        if not self._match_text_seq("DESCRIPTOR", "("):
            return self._parse_disjunction()
        column = self._parse_column()
        self._match_r_paren()
        return column

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        names = self._variables() if self._curr is not None and self._curr.text.upper() == "LAMBDA" else None
        names = names or self._before_arrow()
        if names is None:
            return super()._parse_lambda(alias)
        return self.expression(exp.Lambda(this=self._parse_disjunction(), expressions=names))

    def _variables(self) -> list[exp.Expr] | None:
        """Move past `LAMBDA x, y:`; None: it is a column of that name."""
        before = self._index
        self._advance()
        names = self._parse_csv(self._parse_id_var)
        if names and self._match(TokenType.COLON):
            return names
        self._retreat(before)
        return None

    def _before_arrow(self) -> list[exp.Expr] | None:
        """Move past `x ->` and `(x, y) ->`, other dialects' `x =>`; None: the arrow leads to a field, or there is none.

        `x -> y` is a field of a STRUCT too, so it is a function only where nothing else can stand.
        """
        before = self._index
        names: list[exp.Expr] = []
        if self._match(TokenType.L_PAREN):
            names = self._parse_csv(self._parse_id_var)
            if len(names) > 1 and self._match(TokenType.R_PAREN) and self._match(TokenType.ARROW):
                return names
        elif self._next is not None and self._next.token_type is TokenType.ARROW and self._takes_function():
            names = self._parse_csv(self._parse_id_var)
            if len(names) == 1 and self._match(TokenType.ARROW):
                return names
        self._retreat(before)
        return None

    def _takes_function(self) -> bool:
        """True after the first argument of a call that takes functions of one variable."""
        depth, at = 0, self._index - 1
        if at < 0 or self._tokens[at].token_type is not TokenType.COMMA:
            return False
        while at > 0:
            token = self._tokens[at].token_type
            depth += (token in _CLOSING) - (token in _OPENING)
            if depth < 0:
                return token is TokenType.L_PAREN and self._tokens[at - 1].text.upper() in _OF_FUNCTIONS
            at -= 1
        return False

    def _floor(self) -> exp.Expression:
        """The rest of FLOOR(at TO HOUR), or of FLOOR of a number."""
        name = self._name_of_call()
        given: list[exp.Expr | None] = [*self._parse_csv(self._parse_disjunction)]
        if len(given) != 1 or not self._match_text_seq("TO"):
            return self._called("FLOOR", given, name)
        return self._called("DATE_TRUNC", [given[0], self._parse_column()], name)

    def _name_of_call(self) -> Token:
        """The name of the call whose bracket was read last."""
        return self._tokens[self._index - 2]

    def _called(self, function: str, arguments: Sequence[exp.Expr | None], name: Token) -> exp.Expression:
        made = self.expression(exp.Anonymous(this=function, expressions=list(arguments)))
        made.update_positions(name)
        return made

    def _matched(self, text: exp.Expr | None, *, negated: bool) -> exp.Expression:
        """The rest of `text ~ pattern`, `text ~* pattern`, and of their negations."""
        in_any_case = self._match(TokenType.STAR)
        pattern = self._parse_bitwise()
        if in_any_case and isinstance(pattern, exp.Literal):
            pattern = exp.Literal.string(_IN_ANY_CASE + pattern.name)
        elif in_any_case:
            pattern = exp.DPipe(this=exp.Literal.string(_IN_ANY_CASE), expression=exp.Paren(this=pattern), safe=True)
        found = self.expression(exp.Anonymous(this="REGEXP_LIKE", expressions=[text, pattern]))
        return self.expression(exp.Not(this=found)) if negated else found

    def _of_arrays(self, function: str, array: exp.Expr | None, *, turned: bool = False) -> exp.Expression:
        """The rest of `a && b`, `a @> b` and `a <@ b`."""
        both = [array, self._parse_bitwise()]
        return self.expression(exp.Anonymous(this=function, expressions=both[::-1] if turned else both))

    def _json_step(self, function: str, value: exp.Expr | None, step: exp.Expr | None) -> exp.Expression:
        """`value -> step` and its like."""
        return self.expression(exp.Anonymous(this=function, expressions=[value, step]))

    def _parse_column_reference(self) -> exp.Expr | None:
        # A step binds more closely than what may follow it: a ->> 'b' || 'c'.
        step: exp.Expr | None = None
        if self._prev and self._prev.token_type in _JSON_STEPS and self._curr.token_type in _LITERALS:
            step = self._parse_primary()
        elif self._prev and self._prev.token_type in _JSON_STEPS and self._curr.token_type is TokenType.ARRAY:
            step = self._parse_bracket(super()._parse_column_reference())
        if step is None:
            return super()._parse_column_reference()
        while self._match(TokenType.DCOLON):
            step = self.expression(exp.Cast(this=step, to=self._parse_types()))
        return step

    def _parse_dcolon(self) -> exp.Expr | None:
        # `::VARCHAR[3]` is an array, as in PostgreSQL and DuckDB, and not the third item of a VARCHAR.
        found = super()._parse_dcolon()
        sized = isinstance(found, exp.DataType) and found.this is not exp.DType.ARRAY
        while sized and self._next and self._next.token_type is TokenType.NUMBER and self._match(TokenType.L_BRACKET):
            self._advance()
            if not self._match(TokenType.R_BRACKET):
                self.raise_error("expected ]")
            found = exp.DataType(this=exp.DType.ARRAY, expressions=[found], nested=True)
        return found

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        this = super()._parse_type(parse_interval, fallback_to_identifier)
        named = (TokenType.VAR, TokenType.IDENTIFIER)
        while self._next and self._next.token_type in named and self._match_text_seq("COLLATE"):
            self._advance()
            while self._match(TokenType.DOT):
                self._advance()
            if self._prev.text.upper() not in _BY_CODE_POINT:
                hint = 'COLLATE "C" is how texts are compared; LCASE(text) leaves case out'
                raise self._not_supported(f"the order of COLLATE {self._prev.text} is not supported", hint)
        return this

    def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
        while self._match_text_seq("AT", "TIME", "ZONE"):
            zone = self._parse_unary()
            this = self.expression(exp.Anonymous(this="TIMEZONE", expressions=[zone, this]))
        return this

    def _not_supported(self, what: str, hint: str) -> NotSupported:
        column = max(self._prev.col - (self._prev.end - self._prev.start), 1)
        return NotSupported(what, line=self._prev.line, column=column, hint=hint)

    def _escaped(self, token: Token) -> exp.Expression:
        """A text with C's escapes."""
        written = self.sql[token.start : token.end + 1]  # the tokenizer takes some of the backslashes away
        content = written[written.index("'") + 1 : -1].replace("''", "'")
        return self.expression(exp.Literal.string(_ESCAPE.sub(_unescaped, content)))


def _unescaped(found: re.Match[str]) -> str:
    what = found[1]
    if what[0] in "xuU" and len(what) > 1:
        return chr(int(what[1:], 16))
    return chr(int(what, 8)) if what[0] in "01234567" else _ESCAPED.get(what, what)


TYPE_SYNONYMS: dict[str, exp.DType] = {
    **dict.fromkeys(("TEXT", "CHAR", "BPCHAR", "CHARACTER", "NVARCHAR"), exp.DType.VARCHAR),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT2", "INT4", "UTINYINT", "USMALLINT"), exp.DType.INT),
    **dict.fromkeys(("INT8", "UINTEGER", "LONG"), exp.DType.BIGINT),
    **dict.fromkeys(("UBIGINT", "HUGEINT"), exp.DType.DECIMAL),
    **dict.fromkeys(("FLOAT", "REAL", "FLOAT4", "FLOAT8"), exp.DType.DOUBLE),
    **dict.fromkeys(("NUMERIC", "DEC"), exp.DType.DECIMAL),
    "BOOL": exp.DType.BOOLEAN,
    **dict.fromkeys(("BYTEA", "BINARY", "VARBINARY", "BLOB"), exp.DType.VARBINARY),
    **dict.fromkeys(("TIMESTAMPTZ", "DATETIME", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"), exp.DType.TIMESTAMP),
}
"""Names of types in other dialects, and the type that holds all their values."""
_DIGITS: Final = {"UBIGINT": 20, "HUGEINT": 38}
"""The digits of those that are a DECIMAL without a fraction."""
_ANY = ("ANY", "SOME")


class ValueClauses(OperatorClauses):
    """The rules; each moves the parser past the clause, or raises where the text is wrong."""

    named_types: Mapping[str, exp.DataType] = MappingProxyType({})
    """What CREATE TYPE gave a name to: the tree that the name stands for."""

    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        TokenType.DOT: None,
        TokenType.DCOLON: lambda self, this, to: self._cast_to(self.expression(exp.Cast(this=this, to=to))),
    }

    def _extract(self) -> exp.Expression:
        """The rest of EXTRACT(unit FROM value); the unit becomes a text."""
        unit = self._parse_var_or_string(upper=True)
        if unit is None or not (self._match(TokenType.FROM) or self._match(TokenType.COMMA)):
            self.raise_error("expected EXTRACT(unit FROM value)")
        name = exp.Literal.string(unit.name.upper() if unit is not None else "")
        return self.expression(exp.Anonymous(this="EXTRACT", expressions=[name, self._parse_disjunction()]))

    def _parse_primary(self) -> exp.Expr | None:
        first = self._index
        found = super()._parse_primary()
        if not isinstance(found, exp.Concat):
            return found
        if len({each.line for each in self._tokens[first : self._index]}) < len(found.expressions):
            self.raise_error("two texts side by side: a comma is missing, or ||", self._prev)
        return exp.Literal.string("".join(each.name for each in found.expressions))

    def _array_of_rows(self) -> exp.Expression:
        """The rest of ARRAY(SELECT …): the values of a query with one column, in its order."""
        given = self._parse_function_args()
        query = given[0].unnest() if len(given) == 1 and isinstance(given[0], exp.Query) else None
        if not isinstance(query, exp.Query):
            return self.expression(exp.Anonymous(this="ARRAY", expressions=given))
        if query.is_star or len(query.selects) != 1:
            self.raise_error("expected one column in ARRAY(SELECT …)")
        (shown,), order = query.selects, query.args.get("order")
        items = [_of_value(each, shown) for each in order.expressions] if order is not None else []
        once = isinstance(query, exp.SetOperation) or query.args.get("distinct") is not None
        if once and any(each.this != shown.unalias() for each in items):
            self.raise_error("what gives a row once is ordered by its column: ARRAY(SELECT DISTINCT x … ORDER BY x)")
        return self.expression(exp.Subquery(this=_collected(query, items)))

    def _ilike(self, value: exp.Expr | None) -> exp.Expr | None:
        """The rest of `value ILIKE pattern`: LIKE of both in small letters."""
        made: exp.Expr | None = parser.Parser.RANGE_PARSERS[TokenType.LIKE](self, value)
        like = made.this if isinstance(made, exp.Escape) else made
        for side in ("this", "expression"):
            if like is not None and like.args.get(side) is not None:
                like.set(side, exp.Anonymous(this="LCASE", expressions=[like.args[side]]))
        return made

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        made = super()._parse_in(this, alias)
        query = made.args.get("query")
        several = query is not None and len(query.unnest().selects) > 1
        if several and isinstance(this, exp.Anonymous) and this.name.upper() == "ROW":
            made.set("this", exp.Tuple(expressions=this.expressions))
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
        """An element of an array, an array, or `{'a': 1}`, which is STRUCT(a := 1); MAP {'a': 1} is MAP('a' := 1)."""
        brace = self._curr is not None and self._curr.token_type == TokenType.L_BRACE
        of_map = brace and self._prev.text.upper() == "MAP"
        if isinstance(this, exp.Bracket):
            this = self._part_of_array(this)
        found = super()._parse_bracket(this)
        if not brace or found is None:
            return found
        made: exp.Expr = found
        while isinstance(made, exp.Bracket):
            made = made.this
        call = exp.Anonymous(this="MAP" if of_map else "STRUCT", expressions=made.expressions)
        if made is found:
            return call
        made.replace(call)
        return found

    def _part_of_array(self, this: exp.Bracket) -> exp.Expression:
        """`a[2:3]` as ARRAY_SLICE(a, 2, 3); an end that is not said is that of the array."""
        places = this.expressions[0] if len(this.expressions) == 1 else None
        if not isinstance(places, exp.Slice):
            return this
        if places.args.get("step") is not None:
            self.raise_error("a part of an ARRAY is a[first:last], without a step")
        ends = [places.args.get("this") or exp.Literal.number(1), places.args.get("expression")]
        ends[1] = ends[1] or exp.Neg(this=exp.Literal.number(1))
        return self.expression(exp.Anonymous(this="ARRAY_SLICE", expressions=[this.this, *ends]))

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        following = self._next.token_type if self._next else None
        if self._curr.text.upper() == "INTERVAL" and following in (TokenType.STRING, TokenType.NUMBER):
            self._advance()
            return self._interval()
        if self._curr.text.upper() == "INTERVAL" and following is TokenType.DASH and self._signed_length():
            self._advance(2)
            return self._interval("-")
        known = TYPE_SYNONYMS.get(self._curr.text.upper()) if following is TokenType.STRING else None
        if known is not None and self._curr.token_type is TokenType.VAR:
            self._advance()  # timestamptz '2024-05-01 10:00:00+02'
            return self.expression(exp.Cast(this=self._parse_primary(), to=exp.DataType(this=known)))
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _interval(self, sign: str = "") -> IntervalNode:
        """The length after INTERVAL, and after a sign that stands before its number."""
        self._advance()
        number = self._prev
        text, unit, until = sign + number.text, self._interval_unit(), None
        if unit is not None and self._match_text_seq("TO"):
            until = self._interval_unit()
        elif unit is not None:  # INTERVAL 1 DAY 2 HOURS
            following = (TokenType.STRING, TokenType.NUMBER)
            while self._curr and self._curr.token_type in following and self._next_is(INTERVAL_UNITS):
                self._advance()
                text, unit = f"{text} {unit} {self._prev.text}", self._interval_unit()
        return self._interval_length(text, unit, until, number)

    def _interval_unit(self) -> str | None:
        """The unit after a number, whose digits (`SECOND(3)`) say nothing of a constant; None where there is none."""
        unit = self._prev.text if self._match_texts(INTERVAL_UNITS) else None
        if unit is not None and self._number_follows(1) and self._match(TokenType.L_PAREN):
            self._advance()
            self._match_r_paren()
        return unit

    def _next_is(self, words: Sequence[str]) -> bool:
        return bool(self._next) and self._next.text.upper() in words

    def _signed_length(self) -> bool:
        """True if `INTERVAL -1 DAY` is that: a column of that name may be less one as well."""
        unit = self._tokens[self._index + 3 : self._index + 4]
        return self._number_follows(2) and bool(unit) and unit[0].text.upper() in INTERVAL_UNITS

    def _number_follows(self, tokens: int) -> bool:
        """True if the token so many places on is a number."""
        place = self._index + tokens
        return place < len(self._tokens) and self._tokens[place].token_type is TokenType.NUMBER

    def _interval_length(self, text: str, unit: str | None, until: str | None, place: Token) -> IntervalNode:
        found = interval_of(text, unit, until)
        if found is None:
            self.raise_error("expected a length of time, such as INTERVAL '1' DAY or INTERVAL '2 hours'", place)
            return IntervalNode()
        return found

    def _cast_to(self, cast: exp.Expr) -> exp.Expr:
        """A CAST as it stands; of a constant text to INTERVAL the length that it says."""
        value, wanted = cast.this, cast.args.get("to")
        is_length = isinstance(wanted, exp.DataType) and str(wanted.args.get("kind")).upper() == "INTERVAL"
        if is_length and isinstance(value, exp.Literal) and value.is_string:
            return self._interval_length(value.name, None, None, self._prev)
        return cast

    def _parse_cast(self, strict: bool, safe: bool | None = None) -> exp.Expr:
        return self._cast_to(super()._parse_cast(strict, safe))

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
        if identifier.name.upper() == "CHARACTER":
            self._match_text_seq("VARYING")
        if identifier.name.upper() in _DIGITS:
            digits = (_DIGITS[identifier.name.upper()], 0)
            parameters = [exp.DataTypeParam(this=exp.Literal.number(each)) for each in digits]
        elif known is exp.DType.DECIMAL and self._match(TokenType.L_PAREN):
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


_MORE: Final = ("group", "having", "qualify", "limit", "offset", "distinct", "time_window", "with_")
_COLLECTED = "collected"


def only_projects(query: exp.Expr) -> TypeGuard[exp.Select]:
    """True if a query filters and projects rows, so that another list of SELECT gives as many. A call may be an
    aggregate: here nobody tells them from other functions."""
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in _MORE):
        return False
    return not any(isinstance(node, exp.Anonymous | exp.Window) for item in query.selects for node in item.walk())


def _collected(query: exp.Query, order: Sequence[exp.Expr]) -> exp.Select:
    """A query of one column as one that gives all its values in an ARRAY, in an order."""
    value = query.selects[0].unalias()
    if only_projects(query):
        made = query.copy()
        made.set("expressions", [_array_agg(value, order)])
        made.set("order", None)
        return made
    inner, ordered = query.copy(), [each.copy() for each in order]
    free = _COLLECTED
    while any(each.name.startswith(free) for each in query.find_all(exp.Column)):
        free += "_"
    names = [free]
    for each in ordered:
        if each.this != value:
            names.append(f"{free}{len(names)}")
            inner.append("expressions", exp.alias_(each.this, names[-1]))
        each.set("this", _collected_as(free if each.this == value else names[-1]))
    alias = exp.TableAlias(this=exp.to_identifier(_COLLECTED))
    if isinstance(inner, exp.Select):
        inner.expressions[0].replace(exp.alias_(value.copy(), free))
        inner.set("order", exp.Order(expressions=[each.copy() for each in order]) if order else None)
    else:
        alias.set("columns", [exp.to_identifier(free)])
    around = exp.From(this=exp.Subquery(this=inner, alias=alias))
    return exp.Select(expressions=[_array_agg(_collected_as(free), ordered)], from_=around)


def _of_value(item: exp.Expr, shown: exp.Expr) -> exp.Expr:
    """An item of ORDER BY, with the shown value where it names that by its place or name."""
    node = item.this
    by_place = isinstance(node, exp.Literal) and node.name == "1"
    by_name = isinstance(node, exp.Column) and not node.table and node.name == shown.alias
    made = item.copy()
    if by_place or by_name or isinstance(node, exp.Var):
        made.set("this", shown.unalias().copy())
    return made


def _array_agg(value: exp.Expr, order: Sequence[exp.Expr]) -> exp.Anonymous:
    values = exp.Order(this=value.copy(), expressions=[each.copy() for each in order]) if order else value.copy()
    return exp.Anonymous(this="ARRAY_AGG", expressions=[values])


def _collected_as(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name), table=exp.to_identifier(_COLLECTED))
