"""`= ANY($1)` and `<> ALL($1)`, as drivers write lists of values: the language has IN.

town = ANY($1)     $1 = {Rome,Oslo}    town IN ('Rome', 'Oslo')
id <> ALL($1)      $1 = {}             TRUE
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.server.pg_values.refusal import Refusal, SqlState

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARRAY: Final = "ARRAY["
_WORDS: Final = {(TokenType.EQ, "ANY"): False, (TokenType.EQ, "SOME"): False, (TokenType.NEQ, "ALL"): True}
"""{operator and word: whether none may be equal}."""
_BEFORE: Final = (
    *(TokenType.WHERE, TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.ON, TokenType.HAVING, TokenType.WHEN),
    *(TokenType.L_PAREN, TokenType.SELECT, TokenType.COMMA),
)
"""What stands before a column that is compared by itself, and is no part of a sum."""
_NAMES: Final = (TokenType.VAR, TokenType.IDENTIFIER)
_SCHEMA: Final = "public"


@dataclass(frozen=True)
class Quantified:
    """A comparison with each element of an array.

    Attributes:
        begin: of what is replaced, characters from 0: the column, or the operator where more stands before it.
        left: the column's text; empty where more than a column stands there.
        negated: none may be equal.
    """

    begin: int
    left: str
    negated: bool

    def text(self, array: str) -> str:
        """The comparison with an array, `ARRAY[…]`.

        Raises:
            Refusal: the array is empty, and what is compared with it is more than a column.
        """
        elements = array.removeprefix(_ARRAY).removesuffix("]")
        if not elements:
            if not self.left:
                hint = "leave the condition out when there are no values, or compare a column with them"
                raise Refusal(SqlState.NOT_SUPPORTED, "an empty array is compared with columns only", hint=hint)
            return "TRUE" if self.negated else "FALSE"
        return f"{self.left} {'NOT IN' if self.negated else 'IN'} ({elements})".lstrip()


def quantified(text: str, tokens: Sequence[Token], place: int) -> Quantified | None:
    """The comparison whose array is the parameter at this place; None where it stands in none."""
    operator, word, bracket = (tokens[place - back] if place >= back else None for back in (3, 2, 1))
    if operator is None or word is None or bracket is None or bracket.token_type is not TokenType.L_PAREN:
        return None
    negated = _WORDS.get((operator.token_type, word.text.upper()))
    if negated is None:
        return None
    begin = _column_before(tokens, place - 3)
    if begin is None:
        return Quantified(operator.start, "", negated)
    named = begin + 2 * is_schema(tokens, begin)
    return Quantified(tokens[begin].start, text[tokens[named].start : operator.start].rstrip(), negated)


def is_schema(tokens: Sequence[Token], place: int) -> bool:
    """True for the `public` before a name, and for the database before that."""
    following = [each.token_type for each in tokens[place + 1 : place + 4]]
    begins = place == 0 or tokens[place - 1].token_type is not TokenType.DOT
    if following[:1] != [TokenType.DOT] or tokens[place].token_type not in _NAMES:
        return False
    if tokens[place].text.lower() == _SCHEMA:
        return begins or is_schema(tokens, place - 2)
    return begins and following[2:] == [TokenType.DOT] and tokens[place + 2].text.lower() == _SCHEMA


def _column_before(tokens: Sequence[Token], place: int) -> int | None:
    """Where the column before this place begins; None where something else stands there, `$2` too."""
    begin = place - 1
    if begin < 0 or tokens[begin].token_type not in _NAMES or tokens[begin].text.startswith("$"):
        return None
    while begin > 1 and tokens[begin - 1].token_type is TokenType.DOT and tokens[begin - 2].token_type in _NAMES:
        begin -= 2
    return begin if begin and tokens[begin - 1].token_type in _BEFORE else None
