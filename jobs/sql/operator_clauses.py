"""Parser rules for operators and calls that PostgreSQL and the standard write in words and signs: each becomes a call.

    POSITION(a IN b)                       INSTR(b, a)
    SUBSTRING(a FROM 2 FOR 3)              SUBSTRING(a, 2, 3); of a text in its place, what that expression matches
    TRIM(LEADING ' ' FROM a)               LTRIM(a)
    a ~ 'x', a !~ 'x', a ~* 'x'            REGEXP_LIKE(a, 'x'), NOT …, REGEXP_LIKE(a, '(?i)x')
    a -> 'b', a ->> 'b', a #>> '{b,0}'     JSON_GET(a, 'b'), JSON_GET_TEXT(a, 'b'), JSON_PATH_TEXT(a, '{b,0}')
    a AT TIME ZONE 'Europe/Rome'           TIMEZONE('Europe/Rome', a)
    a COLLATE "C"                          a: texts are compared by their code points
    E'it\\'s'                               'it''s'

None of these words is one of the language: each is free as the name of a column.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.time_clauses import TimeClauses

if TYPE_CHECKING:
    from collections.abc import Sequence

_JSON_STEPS: Final = (TokenType.ARROW, TokenType.DARROW, TokenType.HASH_ARROW, TokenType.DHASH_ARROW)
_LITERALS: Final = (TokenType.STRING, TokenType.BYTE_STRING, TokenType.NUMBER)
_BY_CODE_POINT: Final = ("C", "POSIX", "UCS_BASIC", "DEFAULT")
"""The collations that order texts as the language does."""
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-7]{1,3}|.)", re.S)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_GROUP: Final = re.compile(r"(?<!\\)\((?!\?)")
_IN_ANY_CASE: Final = "(?i)"
_TRIMS: Final = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}


class OperatorClauses(TimeClauses):
    """The rules; each moves the parser past what it reads, or raises where the text is wrong."""

    def _position(self) -> exp.Expression:
        """The rest of POSITION(sought IN text)."""
        name = self._name_of_call()
        sought = self._parse_bitwise()
        if not self._match(TokenType.IN):
            self.raise_error("expected POSITION(sought IN text)")
        return self._called("INSTR", [self._parse_bitwise(), sought], name)

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
            if taken and not (isinstance(taken[0], exp.Literal) and taken[0].this == " "):
                raise self._not_supported("TRIM of other characters than spaces is not supported", "REGEXP_REPLACE(…)")
        elif side and len(given) != 1:
            self.raise_error(f"expected TRIM({side} FROM text)")
        return self._called(_TRIMS.get(side, "TRIM"), given, name)

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
