"""Misspelt words of the language: `FORM` for FROM is taken as an alias, and the fault shows only at the next word."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlglot.tokenizer_core import Token

_CLAUSES = (
    *("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "PARTITION", "HAVING", "WINDOW", "LIMIT", "JOIN", "INNER", "LEFT"),
    *("RIGHT", "FULL", "OUTER", "UNION", "VALUES", "WITH", "WITHIN", "EMIT", "CHANGES", "PRIMARY", "BETWEEN", "USING"),
)
# Words and operators of other dialects, and what says the same here.
_INSTEAD = {
    **dict.fromkeys(("RLIKE", "REGEXP", "SIMILAR"), "text ~ pattern, or REGEXP_LIKE(text, pattern)"),
    "COLLATE": "texts are compared by their code points: LCASE(text) leaves case out",
    "DIV": "INT / INT is an INT",
    "MINUS": "EXCEPT",
    "TOP": "LIMIT n after the query",
    **dict.fromkeys(("APPLY", "LATERAL"), "join a subquery with ROW_NUMBER() OVER (PARTITION BY … ORDER BY …)"),
}
# FORM and FROM share 0.75, as does any transposition in a word of four letters; FORMAT and FROM 0.6.
_ALIKE = 0.74


def meant(word: str, known: Iterable[str] = _CLAUSES) -> str | None:
    """The hint for a word that is close to a known one, and is none itself; None when there is none."""
    choices = list(known)
    if word.upper() in choices:
        return None
    close = get_close_matches(word.upper(), choices, n=1, cutoff=_ALIKE)
    return f"did you mean {close[0]}?" if close else None


def meant_before(tokens: Sequence[Token], line: int | None, column: int | None) -> str | None:
    """The hint for a fault at a place of a statement: the word there, or the one before it, is misspelt.

    Args:
        tokens: the statement's.
        line, column: where the parser could not go on, 1-based.
    """
    before = [token for token in tokens if (token.line, token.col - len(token.text) + 1) <= (line or 0, column or 0)]
    said = next((_INSTEAD[word] for token in reversed(before[-2:]) if (word := token.text.upper()) in _INSTEAD), None)
    if said is not None:
        return said
    pairs = list(zip([None, *before], before, strict=False))[-2:]
    words = (token for last, token in reversed(pairs) if token.token_type is TokenType.VAR and not _is_value(last))
    return next((hint for token in words if (hint := meant(token.text)) is not None), None)


def _is_value(last: Token | None) -> bool:
    """True if what follows that token is a value, such as the JSON of an option."""
    return last is not None and last.token_type is TokenType.EQ
