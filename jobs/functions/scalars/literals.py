"""String literals as each engine writes them, for templates whose text depends on a literal's value."""

from __future__ import annotations

import re
from typing import Literal

Dialect = Literal["spark", "duckdb"]
_ESCAPED = {"spark": re.compile(r"\\(.)", re.DOTALL), "duckdb": re.compile(r"'(')")}


def quoted(text: str, dialect: str) -> str:
    """`text` as a literal."""
    if dialect == "spark":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "''") + "'"


def unquoted(literal: str, dialect: str) -> str | None:
    """The value of a literal; None when the text is anything else than one literal."""
    if len(literal) < 2 or literal[0] != "'" or literal[-1] != "'":
        return None
    text = _ESCAPED[dialect].sub(r"\1", literal[1:-1])
    return text if quoted(text, dialect) == literal else None
