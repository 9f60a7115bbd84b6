"""Column descriptions: the comments that stand beside columns in a definition's SQL.

CREATE STREAM checkins (
  id BIGINT KEY,      -- the package            the first column named on the comment's line
  place VARCHAR);     /* where it was seen */
SELECT id, MAX(rowtime) AS seen  -- newest event     of a query: the last
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from strandline.jobs.model.definitions import Source
from strandline.jobs.sql.dialect import Strandline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot.tokenizer_core import Token

    from strandline.jobs.model.definitions import View


def column_comments(definition: Source | View) -> dict[str, str]:
    """{column: its comment}, of the columns that have one."""
    names = {column.name for column in definition.columns}
    found: dict[str, str] = {}
    for _, line in groupby(Strandline().tokenize(definition.sql), key=lambda token: token.line):
        tokens = list(line)
        text = " ".join(comment.strip() for token in tokens for comment in token.comments)
        named = [name for token in tokens if (name := _name(token, names)) is not None]
        if text and named:
            found[named[0] if isinstance(definition, Source) else named[-1]] = text
    return found


def _name(token: Token, names: Sequence[str] | set[str]) -> str | None:
    """The column that a token names: as it is written, or in the case that names without quotes are folded to."""
    return next((each for each in (token.text, token.text.lower()) if each in names), None)
