"""Parser rules for PIVOT and UNPIVOT after a table or subquery: each is read as the query that it stands for.

    t PIVOT (SUM(v) FOR k IN ('a', 'b' AS other))
        (SELECT * EXCEPT (v, k), SUM(v) FILTER (WHERE k = 'a') AS a, SUM(v) FILTER (WHERE k = 'b') AS other
         FROM t GROUP BY ALL)

    t UNPIVOT (v FOR k IN (a, b AS other))
        (SELECT * EXCEPT (a, b), 'a' AS k, a AS v FROM t WHERE a IS NOT NULL
         UNION ALL SELECT * EXCEPT (a, b), 'other' AS k, b AS v FROM t WHERE b IS NOT NULL)

The columns that the clause does not name are those that it groups by. None of these words is one of the language: each
is free as the name of a column or table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.value_clauses import ValueClauses

_WORDS: Final = ("PIVOT", "UNPIVOT")


class PivotClauses(ValueClauses):
    """The rules; each moves the parser past the clause, or raises where the text is wrong."""

    def _is_pivot(self) -> bool:
        """True before PIVOT ( and UNPIVOT (, where the word is not the alias of a table."""
        after = self._next.token_type if self._next is not None else None
        word = self._curr.text.upper() if self._curr is not None else ""
        nulls = word == "UNPIVOT" and self._next is not None and self._next.text.upper() in ("INCLUDE", "EXCLUDE")
        return word in _WORDS and (after is TokenType.L_PAREN or nulls)

    def _pivoted(self, table: exp.Expr) -> exp.Expr:
        """The table, or what the clauses after it make of it."""
        while self._is_pivot():
            self._advance()
            made = self._pivot(table) if self._prev.text.upper() == "PIVOT" else self._unpivot(table)
            table = exp.Subquery(this=made, alias=self._parse_table_alias())
        return table

    def _pivot(self, table: exp.Expr) -> exp.Select:
        place = self._prev
        self._match_l_paren()
        aggregates = self._parse_csv(lambda: self._parse_alias(self._parse_bitwise(), explicit=True))
        if not self._match_text_seq("FOR"):
            self.raise_error("expected PIVOT (aggregate FOR column IN (value, …))")
        column = self._parse_column()
        values = self._values_in()
        self._match_r_paren()
        named = [each for each in aggregates if isinstance(each, exp.Alias)]
        if not isinstance(column, exp.Column) or not aggregates:
            self.raise_error("expected PIVOT (aggregate FOR column IN (value, …))", place)
            return exp.Select()
        if len(aggregates) > 1 and len(named) != len(aggregates):
            self.raise_error("each of several aggregates of PIVOT needs a name: SUM(v) AS total", place)
        read = [each.copy() for item in (*aggregates, column) for each in item.find_all(exp.Column)]
        items: list[exp.Expr] = [_all_but(read)]
        for value, name in values:
            for each in aggregates:
                test = exp.Where(this=exp.EQ(this=column.copy(), expression=value.copy()))
                shown = f"{name}_{each.alias}" if len(aggregates) > 1 else name
                item = exp.Filter(this=each.unalias().copy(), expression=test)
                items.append(exp.alias_(item, shown, quoted=True))
        group = exp.Group()
        group.set("all", True)
        return exp.Select(expressions=items, from_=exp.From(this=table), group=group)

    def _unpivot(self, table: exp.Expr) -> exp.Query:
        place = self._prev
        with_nulls = self._match_text_seq("INCLUDE", "NULLS")
        if not with_nulls:
            self._match_text_seq("EXCLUDE", "NULLS")
        self._match_l_paren()
        shown = self._parse_id_var()
        if not self._match_text_seq("FOR"):
            self.raise_error("expected UNPIVOT (value FOR name IN (column, …))")
        name = self._parse_id_var()
        columns = self._values_in()
        self._match_r_paren()
        if shown is None or name is None or not all(isinstance(each, exp.Column) for each, _ in columns):
            self.raise_error("expected UNPIVOT (value FOR name IN (column, …))", place)
            return exp.Select()
        made: exp.Query | None = None
        for column, text in columns:
            items = [
                _all_but([each for each, _ in columns]),
                exp.alias_(exp.Literal.string(text), name.name),
                exp.alias_(column.copy(), shown.name),
            ]
            select = exp.Select(expressions=items, from_=exp.From(this=table.copy()))
            if not with_nulls:
                there = exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))
                select.set("where", exp.Where(this=there))
            made = select if made is None else exp.Union(this=made, expression=select, distinct=False)
        assert made is not None
        return made

    def _values_in(self) -> list[tuple[exp.Expr, str]]:
        """The values of IN (…), each with the name that it has as a column."""
        if not self._match(TokenType.IN):
            self.raise_error("expected IN (…) with the values that become columns")
        self._match_l_paren()
        if self._curr is not None and self._curr.token_type in (TokenType.SELECT, TokenType.WITH):
            raise _not_constant()
        items = self._parse_csv(lambda: self._parse_alias(self._parse_bitwise(), explicit=True))
        self._match_r_paren()
        found: list[tuple[exp.Expr, str]] = []
        for item in items:
            value = item.unalias()
            if not isinstance(value, exp.Literal | exp.Boolean | exp.Column | exp.Neg):
                raise _not_constant()
            found.append((value, item.alias or _name_of(value)))
        if not found:
            self.raise_error("expected IN (…) with the values that become columns")
        return found


def _name_of(value: exp.Expr) -> str:
    """The name of a value as a column."""
    if isinstance(value, exp.Boolean | exp.Neg):
        return value.sql()
    return value.name.lower() if isinstance(value, exp.Column) else value.name


def _not_constant() -> NotSupported:
    what = "PIVOT takes a list of constants: which columns there are does not depend on rows"
    return NotSupported(what, hint="PIVOT (SUM(v) FOR k IN ('a', 'b'))")


def _all_but(columns: Sequence[exp.Expr]) -> exp.Star:
    """`* EXCEPT (a, b)`."""
    named = {each.name.lower(): exp.Column(this=each.this.copy()) for each in columns}
    return exp.Star(except_=list(named.values()))
