"""Arrays as PostgreSQL writes them: `{1,NULL,"a b"}`."""

from __future__ import annotations

import re
from typing import Final

from strandline.jobs.server.pg_values.refusal import Refusal, SqlState

_ELEMENT: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+?))\s*(?:,|$)', re.S)


def array_elements(text: str) -> list[str | None]:
    """The elements of an array of one dimension.

    Raises:
        Refusal: it is none.
    """
    inside = text.strip()
    if not (inside.startswith("{") and inside.endswith("}")):
        raise _none(text)
    inside = inside[1:-1]
    found: list[str | None] = []
    place = 0
    while place < len(inside):
        element = _ELEMENT.match(inside, place)
        if element is None:
            raise _none(text)
        quoted, plain = element.groups()
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.S))
        else:
            found.append(None if plain.upper() == "NULL" else plain)
        place = element.end()
    return found


def _none(text: str) -> Refusal:
    return Refusal(SqlState.BAD_TEXT, f"the parameter '{text[:40]}' is no array of one dimension")
