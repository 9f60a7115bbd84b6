"""Java's patterns for dates and times (`yyyy-MM-dd''T''HH:mm`), translated to DuckDB's formats.

Spark writes by them as they are. A pattern is a list of tokens: one letter repeated, quoted text, or anything else.

    yyyy-MM-dd'T'HH:mm   ->   %Y-%m-%dT%H:%M
"""

from __future__ import annotations

import re

from strandline.jobs.model.errors import InvalidQuery

# DuckDB's format for each token; a token that is not here has none.
FORMATS = {
    **dict.fromkeys(("yyyy", "uuuu", "y", "u"), "%Y"),
    **dict.fromkeys(("yy", "uu"), "%y"),
    **{"MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "LL": "%m", "L": "%-m"},
    **{"dd": "%d", "d": "%-d", "DDD": "%j", "D": "%-j"},
    **dict.fromkeys(("E", "EE", "EEE"), "%a"),
    "EEEE": "%A",
    **{"HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "a": "%p"},
    **{"SSS": "%g", "SSSSSS": "%f"},
}
# In UTC.
ZONES = {
    **dict.fromkeys(("z", "zz", "zzz", "VV"), "UTC"),
    "zzzz": "Coordinated Universal Time",
    **dict.fromkeys(("X", "XX", "XXX"), "Z"),
    **dict.fromkeys(("Z", "ZZ", "ZZZ", "x", "xx"), "+0000"),
    "xxx": "+00:00",
}
_LETTERS = "GyuMLdDEahkKHmsSnNAVzOXxZQq"
# Java's patterns have optional parts in square brackets, which DuckDB's formats lack, and keep the others for later.
RESERVED = "[]{}#"
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^'A-Za-z]+", re.DOTALL)


def written(pattern: str) -> str:
    """The format of `strftime`.

    Raises:
        InvalidQuery: a part of the pattern has no meaning, or none that DuckDB can write.
    """
    return _translated(pattern, {**FORMATS, **ZONES})


def check(pattern: str) -> None:
    """Check that all of a pattern has a meaning.

    Raises:
        InvalidQuery: a letter has none, or a sign that is written in quotes only; or a quote is not closed.
    """
    for letters, quoted in tokens(pattern):
        sign = next((each for each in letters if each in RESERVED), None)
        if not quoted and sign is not None:
            raise InvalidQuery(f"'{sign}' in the pattern '{pattern}' is not supported", hint=f"as a text: '{sign}'")
        if not quoted and letters[0].isalpha() and letters[0] not in _LETTERS:
            raise InvalidQuery(f"'{letters}' in the pattern '{pattern}' means nothing", hint="yyyy MM dd HH mm ss SSS")


def for_spark(pattern: str) -> str:
    """The pattern without the letters that Spark refuses: `u` is its `y`; raises as `written`."""
    return "".join(
        ("'" + token.replace("'", "''") + "'" if token else "''") if quoted else token.replace("u", "y")
        for token, quoted in tokens(pattern)
    )


def _translated(pattern: str, words: dict[str, str]) -> str:
    made = []
    for token, quoted in tokens(pattern):
        if quoted or not token[0].isalpha():
            made.append(token.replace("%", "%%"))
        elif token in words:
            made.append(words[token])
        else:
            raise InvalidQuery(
                f"'{token}' in the pattern '{pattern}' cannot be written", hint="yyyy MM dd HH mm ss SSS"
            )
    return "".join(made)


def tokens(pattern: str) -> list[tuple[str, bool]]:
    """The tokens, each with True if it is quoted text; a doubled quote is a quote."""
    found, position = [], 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != position:
            break
        position = match.end()
        text = match.group(1)
        found.append((match.group(), False) if text is None else (text.replace("''", "'") or "'", True))
    if position != len(pattern):
        raise InvalidQuery(f"a quote is not closed in the pattern '{pattern}'")
    return found
