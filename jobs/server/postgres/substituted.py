"""A statement's text with values in the place of its parameters, and the way back from a place in it.

    SELECT * FROM public.by_town WHERE town = ANY($1) AND at > '2024-05-01'::timestamp with time zone
    SELECT * FROM by_town WHERE town IN ('Rome') AND at > '2024-05-01'::TIMESTAMP

The schema `public`, which tools write before every name, goes too: the language has no schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.server.postgres.parameters import sql_of_value
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState, type_named
from strandline.jobs.sql.from_text import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Types as PostgreSQL writes them in a statement, one token or several.
#
# int8    character varying    double precision    timestamp(3) with time zone    numeric(12, 2)    text[]

_OF_TIME: Final = (BaseType.TIME, BaseType.TIMESTAMP)


def type_at(tokens: Sequence[Token], place: int) -> tuple[SqlType, int] | None:
    """The type whose name begins at a place, and the place behind it.

    None for a name that is no type's, and for one with a length: no text is cut here. A precision of seconds is passed
    over, as times have milliseconds or microseconds always.
    """
    if place >= len(tokens):
        return None
    found, place = type_named(tokens[place].text), place + 1
    if found is None:
        return None
    if found == t.VARCHAR and _words(tokens, place) == "VARYING":
        place += 1
    numbers, place = _numbers(tokens, place)
    if numbers and found.base is BaseType.DECIMAL and numbers[0] <= t.MAX_PRECISION:
        found = t.decimal(*(*numbers, 0)[:2])
    elif numbers and found.base not in _OF_TIME:
        return None
    if found.base in _OF_TIME and _words(tokens, place, 3) in ("WITH TIME ZONE", "WITHOUT TIME ZONE"):
        place += 3
    brackets = [each.token_type for each in tokens[place : place + 2]]
    if brackets == [TokenType.L_BRACKET, TokenType.R_BRACKET]:
        return t.array(found), place + 2
    return found, place


def _words(tokens: Sequence[Token], place: int, count: int = 1) -> str:
    return " ".join(each.text.upper() for each in tokens[place : place + count])


def _numbers(tokens: Sequence[Token], place: int) -> tuple[list[int], int]:
    """The numbers in brackets at a place, and the place behind them."""
    if [each.token_type for each in tokens[place : place + 2]] != [TokenType.L_PAREN, TokenType.NUMBER]:
        return [], place
    found, place = [int(tokens[place + 1].text)], place + 2
    while [each.token_type for each in tokens[place : place + 2]] == [TokenType.COMMA, TokenType.NUMBER]:
        found.append(int(tokens[place + 1].text))
        place += 2
    return found, place + 1


# `= ANY($1)` and `<> ALL($1)`, as drivers write lists of values: the language has IN.
#
# town = ANY($1)     $1 = {Rome,Oslo}    town IN ('Rome', 'Oslo')
# id <> ALL($1)      $1 = {}             TRUE

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


_PARAMETER: Final = re.compile(r"\$([1-9]\d{0,4})")
_COUNTS: Final = (TokenType.LIMIT, TokenType.OFFSET)
_CASTS: Final = ("CAST", "TRY_CAST")
_JSON: Final = ("json", "jsonb")
_EPOCH: Final = "epoch"
"""PostgreSQL's word for the beginning of 1970."""
_STEPS: Final = ("->", "->>", "#>", "#>>")


@dataclass(frozen=True)
class Spot:
    """A piece of the text that another takes the place of.

    Attributes:
        begin, end: of the piece, characters from 0.
        parameter: its number; 0 for a piece that is none.
        type: the type that the text itself gives it: of a cast (`$1::date`), of a LIMIT.
        is_count: it stands after LIMIT or OFFSET.
        quantified: the comparison with each element that it is the array of.
        text: what takes the place of a piece that is no parameter.
    """

    begin: int
    end: int
    parameter: int = 0
    type: SqlType | None = None
    is_count: bool = False
    quantified: Quantified | None = None
    text: str = ""

    def filled(self, values: Sequence[str]) -> str:
        """What takes its place.

        Args:
            values: of all parameters, `$1` first.
        """
        if not self.parameter:
            return self.text
        value = values[self.parameter - 1]
        return value if self.quantified is None else self.quantified.text(value)


@dataclass(frozen=True)
class Substituted:
    """A text with other pieces in the place of some.

    Attributes:
        moved: for each piece, its end in the new text, and in the original one.
    """

    text: str
    moved: tuple[tuple[int, int], ...]

    def original(self, place: int) -> int:
        """The place in the original text."""
        for end, original in reversed(self.moved):
            if place >= end:
                return original + place - end
        return place


def spots(text: str) -> list[Spot]:
    """The parameters of a text, and what the language writes in another way: schemas and types.

    Raises:
        SqlSyntaxError: a quote or comment is not closed.
    """
    tokens = tokenize(text)
    types = set(_type_places(tokens))
    found: list[Spot] = []
    for place, token in enumerate(tokens):
        number = _PARAMETER.fullmatch(token.text)
        if found and token.start < found[-1].end:
            continue
        if number is not None and token.token_type is TokenType.VAR:
            spot = _parameter(text, tokens, place, int(number[1]))
            while found and found[-1].begin >= spot.begin:
                found.pop()
            found.append(spot)
        elif is_schema(tokens, place):
            found.append(Spot(token.start, tokens[place + 1].end + 1))
        elif place in types and token.text.lower() in _JSON:
            found += _json(tokens, place)
        elif place in types:
            found += _type(tokens, place)
        elif token.token_type is TokenType.STRING and token.text.lower() == _EPOCH and _is_time(tokens, place):
            found.append(Spot(token.start, token.end + 1, text="'1970-01-01'"))
        elif token.token_type is TokenType.STRING and place + 2 in types:
            found += _bytes(tokens, place)
    return found


def substituted(text: str, places: Sequence[Spot], values: Sequence[str]) -> Substituted:
    """The text with these values, `$1` first, and without schemas.

    Raises:
        Refusal: an empty array cannot stand where it does.
    """
    pieces: list[str] = []
    moved: list[tuple[int, int]] = []
    done = length = 0
    for spot in places:
        value = spot.filled(values)
        pieces += [text[done : spot.begin], value]
        length += spot.begin - done + len(value)
        done = spot.end
        moved.append((length, done))
    return Substituted("".join((*pieces, text[done:])), tuple(moved))


def _parameter(text: str, tokens: Sequence[Token], place: int, number: int) -> Spot:
    token, behind, cast = tokens[place], place + 1, None
    if [each.token_type for each in tokens[behind : behind + 1]] == [TokenType.DCOLON]:
        cast, behind = type_at(tokens, place + 2) or (None, behind)
        if cast is not None and cast.base is BaseType.DECIMAL and tokens[behind - 1].token_type is TokenType.R_PAREN:
            behind = place + 1  # the cast rounds the value, so it stays
    if place and tokens[place - 1].token_type in _COUNTS:
        return Spot(token.start, tokens[behind - 1].end + 1, number, t.BIGINT, is_count=True)
    compared = quantified(text, tokens, place)
    if compared is not None and [each.token_type for each in tokens[behind : behind + 1]] == [TokenType.R_PAREN]:
        return Spot(compared.begin, tokens[behind].end + 1, number, cast, quantified=compared)
    return Spot(token.start, tokens[behind - 1].end + 1, number, cast)


def _type_places(tokens: Sequence[Token]) -> Iterator[int]:
    """Where types stand: behind `::`, and behind the AS of a CAST."""
    casts: list[bool] = []
    for place, token in enumerate(tokens):
        match token.token_type:
            case TokenType.L_PAREN:
                casts.append(place > 0 and tokens[place - 1].text.upper() in _CASTS)
            case TokenType.R_PAREN if casts:
                casts.pop()
            case TokenType.DCOLON:
                yield place + 1
            case TokenType.ALIAS if casts and casts[-1]:
                yield place + 1


def _type(tokens: Sequence[Token], place: int) -> list[Spot]:
    """The type in the language's words. `numeric` alone, which bounds no digits, has none there."""
    named = type_at(tokens, place)
    if named is None:
        return []
    found, behind = named
    if found.base is BaseType.DECIMAL and behind == place + 1:
        return []
    return [Spot(tokens[place].start, tokens[behind - 1].end + 1, text=str(found))]


def _json(tokens: Sequence[Token], place: int) -> list[Spot]:
    """`::json` goes where a step into it follows: steps are of texts that hold JSON, and of MAPs and STRUCTs."""
    following = next((each for each in tokens[place + 1 :] if each.token_type is not TokenType.R_PAREN), None)
    if tokens[place - 1].token_type is not TokenType.DCOLON or following is None or following.text not in _STEPS:
        return []
    return [Spot(tokens[place - 1].start, tokens[place].end + 1)]


def _is_time(tokens: Sequence[Token], place: int) -> bool:
    """True for a literal with the type of a time before it, or behind it in a cast."""
    named = [tokens[each].text.upper() for each in (place - 1, place + 2) if 0 <= each < len(tokens)]
    return any(name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE") for name in named)


def _bytes(tokens: Sequence[Token], place: int) -> list[Spot]:
    """A literal of bytes, `'\\x00ff'::bytea`."""
    named = type_at(tokens, place + 2)
    if named is None or named[0] != t.BYTES:
        return []
    return [Spot(tokens[place].start, tokens[named[1] - 1].end + 1, text=sql_of_value(tokens[place].text, t.BYTES))]
