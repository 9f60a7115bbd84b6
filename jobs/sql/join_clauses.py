"""Parser rules for joins: ASOF JOIN, and the condition that every other join states.

a ASOF JOIN b ON …      ASOF is no word of the language, so that a column may have the name
a JOIN b                refused: forgotten, ON would make a row of every pair; `a CROSS JOIN b` and `a, b` ask for that
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.errors import SqlSyntaxError
from strandline.jobs.sql.value_clauses import ValueClauses

FILTERING = ("SEMI", "ANTI")
"""The words of joins that keep rows by whether a match is there, and show nothing of it."""
_ON = "JOIN … ON a.x = b.x, or USING (x); CROSS JOIN makes a row of every pair"


class JoinClauses(ValueClauses):
    """The rules; each moves the parser past the join, or raises where the text is wrong."""

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        comma = self._match(TokenType.COMMA, advance=False)
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is None or comma or join.side or _has_condition(join):
            return join  # without ON, LEFT and its like are refused where they are read
        place = self._curr or self._prev
        raise SqlSyntaxError(
            f"the join with '{join.alias_or_name}' needs ON",
            line=place.line,
            column=max(place.col - (place.end - place.start), 1),
            hint=_ON,
        )

    def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
        nearest = self._prev if self._match_text_seq("ASOF") else None
        method, side, kind = super()._parse_join_parts()
        if kind is None and self._is_filtering_join():
            self._advance()
            kind = self._prev
        return nearest or method, side, kind

    def _is_filtering_join(self) -> bool:
        """True before SEMI JOIN and ANTI JOIN, where SEMI is not the alias of a table."""
        following = self._next.text.upper() if self._next else ""
        return self._curr is not None and self._curr.text.upper() in FILTERING and following == "JOIN"

    def _is_asof_join(self) -> bool:
        """True before ASOF JOIN, where ASOF is not the alias of a table."""
        words = (self._next.text.upper() if self._next else "", self._curr.text.upper() if self._curr else "")
        return words[1] == "ASOF" and words[0] in ("JOIN", "LEFT", "RIGHT", "FULL", "INNER")


def _has_condition(join: exp.Join) -> bool:
    """True if a join states its condition, or is of a kind that has none or whose reader asks for it."""
    calls = isinstance(join.this, exp.Table) and isinstance(join.this.this, exp.Anonymous)  # UNNEST (…)
    return bool(join.args.get("on") or join.args.get("using") or join.method or join.kind == "CROSS" or calls)
