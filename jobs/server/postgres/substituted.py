"""A statement's text with values in the place of its parameters, and the way back from a place in it.

    SELECT * FROM public.by_town WHERE town = $1
    SELECT * FROM by_town WHERE town = 'Rome'

The schema `public`, which tools write before every name, goes too: the language has no schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot.tokenizer_core import Token, TokenType

from jobs.model import types as t
from jobs.server.pg_values.wire_types import type_named
from jobs.sql.from_text import tokenize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.model.types import SqlType

_PARAMETER: Final = re.compile(r"\$([1-9]\d{0,4})")
_COUNTS: Final = (TokenType.LIMIT, TokenType.OFFSET)
_SCHEMA: Final = "public"


@dataclass(frozen=True)
class Spot:
    """A piece of the text that another takes the place of.

    Attributes:
        begin, end: of the piece, characters from 0.
        parameter: its number; 0 for a schema, which nothing takes the place of.
        type: the type that the text itself gives it: of a cast (`$1::date`), of a LIMIT.
        is_count: it stands after LIMIT or OFFSET.
    """

    begin: int
    end: int
    parameter: int = 0
    type: SqlType | None = None
    is_count: bool = False


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
    """The parameters and schemas of a text.

    Raises:
        SqlSyntaxError: a quote or comment is not closed.
    """
    tokens = tokenize(text)
    found: list[Spot] = []
    for place, token in enumerate(tokens):
        number = _PARAMETER.fullmatch(token.text)
        if number is not None and token.token_type is TokenType.VAR:
            found.append(_parameter(tokens, place, int(number[1])))
        elif _is_schema(tokens, place):
            found.append(Spot(token.start, tokens[place + 1].end + 1))
    return found


def substituted(text: str, places: Sequence[Spot], values: Sequence[str]) -> Substituted:
    """The text with these values, `$1` first, and without schemas."""
    pieces: list[str] = []
    moved: list[tuple[int, int]] = []
    done = length = 0
    for spot in places:
        value = values[spot.parameter - 1] if spot.parameter else ""
        pieces += [text[done : spot.begin], value]
        length += spot.begin - done + len(value)
        done = spot.end
        moved.append((length, done))
    return Substituted("".join((*pieces, text[done:])), tuple(moved))


def _parameter(tokens: Sequence[Token], place: int, number: int) -> Spot:
    token = tokens[place]
    end, cast = token.end + 1, None
    if [each.token_type for each in tokens[place + 1 : place + 2]] == [TokenType.DCOLON] and place + 2 < len(tokens):
        cast = type_named(tokens[place + 2].text)
        end = tokens[place + 2].end + 1 if cast is not None else end
    if place and tokens[place - 1].token_type in _COUNTS:
        return Spot(token.start, end, number, t.BIGINT, is_count=True)
    return Spot(token.start, end, number, cast)


def _is_schema(tokens: Sequence[Token], place: int) -> bool:
    following = [each.token_type for each in tokens[place + 1 : place + 2]]
    begins = place == 0 or tokens[place - 1].token_type is not TokenType.DOT
    return begins and following == [TokenType.DOT] and tokens[place].text.lower() == _SCHEMA
