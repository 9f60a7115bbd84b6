"""Types as PostgreSQL writes them in a statement, one token or several.

int8    character varying    double precision    timestamp(3) with time zone    numeric(12, 2)    text[]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.server.pg_values.wire_types import type_named

if TYPE_CHECKING:
    from collections.abc import Sequence

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
